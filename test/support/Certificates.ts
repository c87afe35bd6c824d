/**
 * Certificates of an authority of a test's own, without a program for it: Node signs, and reads certificates, but writes
 * none, so the few structures of X.509 that a handshake needs are put together here.
 */
import { generateKeyPairSync, type KeyObject, randomBytes, sign, X509Certificate } from "node:crypto"
import { isIPv4, isIPv6 } from "node:net"

export interface Certificate {
  readonly cert: string
  readonly key: string
}

type Dates = readonly [from: string, until: string]

export interface Authority {
  readonly cert: string
  /** For servers of these names and addresses, and for a client of this name; `dates` as `YYMMDDhhmmssZ`. */
  readonly issue: (name: string, hosts?: ReadonlyArray<string>, dates?: Dates) => Certificate
}

const der = (tag: number, ...parts: ReadonlyArray<Buffer>): Buffer => {
  const body = Buffer.concat(parts)
  const { length } = body
  const head = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff]
  return Buffer.concat([Buffer.from([tag, ...head]), body])
}
const sequence = (...parts: ReadonlyArray<Buffer>) => der(0x30, ...parts)
const id = (hex: string) => der(0x06, Buffer.from(hex, "hex"))
const yes = Buffer.from([0x01, 0x01, 0xff])

const ecdsaWithSha256 = sequence(id("2a8648ce3d040302"))
const commonName = (name: string) => sequence(der(0x31, sequence(id("550403"), der(0x0c, Buffer.from(name)))))
const long: Dates = ["200101000000Z", "491231235959Z"]
const validity = (dates: Dates) => sequence(...dates.map((date) => der(0x17, Buffer.from(date))))
const extension = (oid: string, value: Buffer) => sequence(id(oid), yes, der(0x04, value))
const isAuthority = extension("551d13", sequence(yes))
/** Of a v6 address the words that `::` leaves out, too. */
const bytesOf = (address: string): Buffer => {
  if (isIPv4(address)) {
    return Buffer.from(address.split(".").map(Number))
  }
  const [before, after] = address.split("::").map((part) => part.split(":").filter((word) => word !== ""))
  const words = [...before!, ...Array<string>(8 - before!.length - (after?.length ?? 0)).fill("0"), ...(after ?? [])]
  return Buffer.from(words.map((word) => word.padStart(4, "0")).join(""), "hex")
}
const hostsOf = (hosts: ReadonlyArray<string>) =>
  extension(
    "551d11",
    sequence(
      ...hosts.map((host) => isIPv4(host) || isIPv6(host) ? der(0x87, bytesOf(host)) : der(0x82, Buffer.from(host)))
    )
  )

const pem = (bytes: Buffer) =>
  `-----BEGIN CERTIFICATE-----\n${
    bytes.toString("base64").replaceAll(/.{64}/g, "$&\n").trim()
  }\n-----END CERTIFICATE-----\n`

const signed = (
  subject: string,
  issuer: string,
  publicKey: KeyObject,
  by: KeyObject,
  extensions: Buffer,
  dates: Dates
) => {
  const body = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    ecdsaWithSha256,
    commonName(issuer),
    validity(dates),
    commonName(subject),
    publicKey.export({ type: "spki", format: "der" }),
    der(0xa3, sequence(extensions))
  )
  const signature = der(0x03, Buffer.from([0]), sign("sha256", body, by))
  return pem(sequence(body, ecdsaWithSha256, signature))
}

const pair = () => generateKeyPairSync("ec", { namedCurve: "prime256v1" })

export const authority = (name: string): Authority => {
  const own = pair()
  const cert = signed(name, name, own.publicKey, own.privateKey, isAuthority, long)
  return {
    cert,
    issue: (subject, hosts = [subject], dates = long) => {
      const { privateKey, publicKey } = pair()
      const issued = signed(subject, name, publicKey, own.privateKey, hostsOf(hosts), dates)
      if (!new X509Certificate(issued).verify(own.publicKey)) {
        throw new Error("the certificate is not signed as it says")
      }
      return { cert: issued, key: privateKey.export({ type: "pkcs8", format: "pem" }).toString() }
    }
  }
}
