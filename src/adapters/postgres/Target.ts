/**
 * Where a Postgres is and how it is spoken to: an address as psql takes it, and what to do when that Postgres will not have
 * us.
 *
 * The driver reads most of an address by itself. But it checks certificates for every `sslmode` alike, takes no files, and
 * passes over what it does not know: `ssl=true` would be no TLS at all. So it is read here first, as libpq would.
 */
import type { PgConnection } from "@effect/sql-pg"
import { Redacted, Result } from "effect"
import type { ConnectionOptions } from "node:tls"
import { type Pem, tlsOptions } from "../../domain/Pem.ts"
import { isNotYetValid, type TlsTrouble, tlsTrouble } from "../../domain/TlsTrouble.ts"

export interface Server {
  readonly url: Redacted.Redacted
  /** What `sslrootcert`, `sslcert` and `sslkey` name. */
  readonly pem?: Pem | undefined
}

const modes = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] as const
type Mode = (typeof modes)[number]

export interface Address {
  /** For any driver: a host stands in it even where a socket is meant. */
  readonly url: string
  readonly hasUser: boolean
  readonly mode: Mode
  /** The directory of a socket: neither TLS nor a name to check. */
  readonly socket: boolean
  /** Paths of PEM files. */
  readonly files: { readonly ca: string | null; readonly cert: string | null; readonly key: string | null }
  readonly applicationName: string | null
  readonly connectMs: number | null
  /** Parameters without effect here, by name where they are known. */
  readonly ignored: ReadonlyArray<string>
}

const shape = "must look like postgres://user:password@host:5432/name, with what is special in the password escaped " +
  "(%40 for @, %2F for /, %23 for #, %3F for ?, %26 for &)"

const heeded = new Set([
  "host",
  "port",
  "user",
  "password",
  "dbname",
  "options",
  "application_name",
  "connect_timeout",
  "sslmode",
  "sslrootcert",
  "sslcert",
  "sslkey"
])

/** What libpq, other drivers and ORMs know and we do not. Only these are named: any other name may be a piece of a password. */
const others = new Set(
  ("channel_binding client_encoding currentSchema fallback_application_name gssdelegation gssencmode gsslib hostaddr " +
    "keepalives keepalives_count keepalives_idle keepalives_interval krbsrvname load_balance_hosts max_protocol_version " +
    "min_protocol_version passfile replication require_auth requirepeer requiressl scram_client_key scram_server_key " +
    "service servicefile ssl_max_protocol_version ssl_min_protocol_version sslcertmode sslcompression sslcrl sslcrldir " +
    "sslnegotiation sslpassword sslsni target_session_attrs tcp_user_timeout " +
    "connection_limit endpoint pgbouncer pool_timeout prepareThreshold schema socket_timeout sslaccept sslidentity " +
    "statement_cache_size statement_timeout uselibpqcompat").split(" ")
)

/** The authorities that Node knows, which is what is trusted without a file. */
const wellKnown = "system"
const connectMaxMs = 60_000
const ignoredMax = 10
const shownMax = 40

/** What a driver's parser takes for no address: `postgres:///name?host=/run/postgresql`, with a login or without. */
const withHost = (text: string): string => text.replace(/^(postgres(?:ql)?:\/\/(?:[^/?#]*@)?)(?=[/?]|$)/, "$1localhost")

const decoded = (text: string): string | null => {
  try {
    return decodeURIComponent(text)
  } catch {
    return null
  }
}

/** What `text` says, or what is wrong with it, to be read behind the name of whatever holds it. Never its secrets. */
export const parse = (text: string): Result.Result<Address, string> => {
  const authority = /^postgres(?:ql)?:\/\/([^/?#]*)/.exec(text)?.[1]
  // To a URL a # ends the address, to psql it is a character: a password with one would take `sslmode` with it.
  if (authority === undefined || text.includes("#")) {
    return Result.fail(shape)
  }
  if (authority.slice(authority.lastIndexOf("@") + 1).includes(",")) {
    return Result.fail("names several hosts: give one, the primary's, or a name that follows the primary")
  }
  let url: URL
  try {
    url = new URL(withHost(text))
  } catch {
    return Result.fail(shape)
  }
  // A password with a bare /: what is taken for the host, the port and the name are pieces of it, and a @ is left in the name.
  if (url.pathname.includes("@")) {
    return Result.fail(shape)
  }
  if ([url.username, url.password, url.pathname, url.hostname].some((part) => decoded(part) === null)) {
    return Result.fail("has a % that escapes nothing: write %25 for it")
  }
  const given = new Map(url.searchParams)
  // Here as good as left out, to the driver a host without a name or a mode that it does not know.
  const empty = [...url.searchParams].find(([name, value]) => heeded.has(name) && value === "")
  if (empty !== undefined) {
    return Result.fail(`has ${empty[0]}= without a value: leave it out`)
  }
  // The last one would count, and the driver ask for all of them to be right. Whoever appends what is there already is fine.
  const twice = [...given.keys()].find((name) => heeded.has(name) && new Set(url.searchParams.getAll(name)).size > 1)
  if (twice !== undefined) {
    return Result.fail(`has ${twice} twice, and not the same: give it once`)
  }
  const of = (name: string) => given.get(name) ?? null
  const host = of("host") ?? decoded(url.hostname.replace(/^\[|\]$/g, "")) ?? ""
  if (host.includes(",")) {
    return Result.fail("names several hosts: give one, the primary's, or a name that follows the primary")
  }
  // A name that `withHost` made up.
  if (host === "" || (of("host") === null && authority.replace(/^.*@/, "") === "")) {
    return Result.fail(shape)
  }
  for (const port of [url.port, of("port")]) {
    if (port !== null && port !== "" && !(/^\d{1,5}$/.test(port) && Number(port) >= 1 && Number(port) <= 65_535)) {
      return Result.fail("has a port that is none: it is a number from 1 to 65535")
    }
  }
  if (given.has("ssl")) {
    return Result.fail("has ssl=…, which psql does not know: write sslmode=verify-full, or sslmode=require")
  }
  const strange = [...given].filter(([name]) => !heeded.has(name))
  // A piece of a password with a ? or an & in it, perhaps with the host behind it: nothing of it may be shown.
  if (strange.some(([name, value]) => !/^[A-Za-z_]+$/.test(name) || value === "" || value.includes("@"))) {
    return Result.fail(shape)
  }
  const ca = of("sslrootcert")
  const mode = modes.find((mode) => mode === (of("sslmode") ?? (ca === wellKnown ? "verify-full" : "disable")))
  if (mode === undefined) {
    return Result.fail(
      `has sslmode=${String(of("sslmode")).slice(0, shownMax)}: it is one of disable, prefer, require, verify-ca and ` +
        "verify-full"
    )
  }
  // With less, anybody who has a certificate of a well-known authority would do.
  if (ca === wellKnown && mode !== "verify-full") {
    return Result.fail(`has sslrootcert=${wellKnown} with sslmode=${mode}, which is weaker: write sslmode=verify-full`)
  }
  const seconds = of("connect_timeout")
  if (seconds !== null && !/^\d{1,6}$/.test(seconds)) {
    return Result.fail("has a connect_timeout that is none: it is a number of seconds")
  }
  return Result.succeed({
    url: url.href,
    hasUser: url.username !== "" || of("user") !== null,
    mode,
    socket: host.startsWith("/"),
    files: { ca: ca === wellKnown ? null : ca, cert: of("sslcert"), key: of("sslkey") },
    applicationName: of("application_name"),
    // None at all is what 0 stands for.
    connectMs: seconds === null ? null : Math.min(Number(seconds) * 1_000 || connectMaxMs, connectMaxMs),
    ignored: [...new Set(strange.map(([name]) => others.has(name) ? name : "a parameter"))].slice(0, ignoredMax)
  })
}

/** Whether TLS is certain, so that files for it mean something. */
export const encrypts = ({ mode, socket }: Address): boolean =>
  !socket && (mode === "require" || mode === "verify-ca" || mode === "verify-full")

/** Whether nobody looks at who answers. */
export const isUnverified = (address: Address, pem: Pem | undefined): boolean =>
  encrypts(address) && address.mode === "require" && (pem?.ca ?? null) === null

/** What stands in a certificate of somebody's own authority need not be the name. */
const anyName = () => undefined

/** `undefined` leaves it to the driver: with `prefer` the server decides, and a certificate is checked. */
const sslOf = (address: Address, pem: Pem | undefined): false | ConnectionOptions | undefined => {
  if (!encrypts(address)) {
    return address.socket || address.mode === "disable" ? false : undefined
  }
  const ca = pem?.ca ?? null
  return {
    ...(pem === undefined ? {} : tlsOptions(pem)),
    ...(address.mode === "verify-full"
      ? {}
      : ca !== null
      ? { checkServerIdentity: anyName }
      // Among the well-known authorities a name is all that tells one server from another.
      : address.mode === "verify-ca"
      ? {}
      : { rejectUnauthorized: false })
  }
}

/** What the driver is told of the server. An address that cannot be read is left to it, to say so. */
export const options = (
  { pem, url }: Server,
  applicationName: string
): Pick<PgConnection.Config, "url" | "ssl" | "applicationName" | "connectTimeout"> => {
  const parsed = parse(Redacted.value(url))
  if (Result.isFailure(parsed)) {
    return { url, applicationName, connectTimeout: 3_000 }
  }
  const address = parsed.success
  const ssl = sslOf(address, pem)
  return {
    url: Redacted.make(address.url),
    ...(ssl === undefined ? {} : { ssl }),
    applicationName: address.applicationName ?? applicationName,
    connectTimeout: address.connectMs ?? 3_000
  }
}

const tlsAdvices: Readonly<Record<TlsTrouble, string>> = {
  unknown_authority:
    "It is not known who signed its certificate: name the file with its authority's by sslrootcert=FILE in " +
    "DEADMAN_DATABASE_URL",
  other_name:
    "Name the host in DEADMAN_DATABASE_URL as its certificate does, or trust its authority alone: sslmode=verify-ca",
  own_certificate: "It wants a client certificate, or another one: see sslcert and sslkey in DEADMAN_DATABASE_URL",
  expired: "Its certificate is over or not valid yet: renew it, or mend this machine's clock",
  no_tls: "That port may not speak TLS: name another in DEADMAN_DATABASE_URL, or leave sslmode out"
}

/** The first major version with what the statements need. */
export const serverMin = 15

/** By the words of the driver, which are its own in every language, and of poolers, which know one. */
const advices: ReadonlyArray<readonly [words: RegExp, advice: string]> = [
  // What each of our connections is opened with, and servers of before 14 do not know: they cannot be asked for their version.
  [
    /"(idle_session_timeout|client_connection_check_interval)"/,
    `This looks like a Postgres that is too old: Deadman needs ${serverMin} or newer`
  ],
  [/startup parameter/, "This looks like a pooler in front of Postgres. Connect to Postgres itself"],
  [
    /does not support TLS/,
    "Give it a certificate (ssl = on), or leave sslmode out of DEADMAN_DATABASE_URL where nobody is in between"
  ],
  [/requested password/, "Name the password in DEADMAN_DATABASE_URL"],
  [/Unsupported SASL mechanisms/, "Let it log this user in by a password (scram-sha-256)"]
]

/** By what the server says of itself, whatever its language. */
const codes: Readonly<Record<string, string>> = {
  "28P01": "Mend the user or the password in DEADMAN_DATABASE_URL",
  "28000":
    "Its pg_hba.conf does not let this user in from here. If it only does so over TLS, add sslmode=verify-full (or " +
    "require) to DEADMAN_DATABASE_URL",
  "3D000": "Create that database, or name another in DEADMAN_DATABASE_URL",
  "42501": "docs/operations.md lists the rights that a role needs"
}

/** What an error of a connection says: that of several addresses which all failed has no words of its own. */
export const reasonOf = (cause: unknown): string | null => {
  const { code, message } = Object(cause) as { readonly code?: unknown; readonly message?: unknown }
  return typeof message === "string" && message !== "" ? message : typeof code === "string" ? code : null
}

/** What to do about what no waiting cures; `null` for an outage, and for what only its own words explain. */
export const adviceOf = (code: string | null, message: string): string | null => {
  const known = codes[code ?? ""] ?? advices.find(([words]) => words.test(message))?.[1]
  const trouble = known === undefined ? tlsTrouble(`${message} ${code}`) : null
  return known ?? (trouble === null ? null : tlsAdvices[trouble])
}

/** Node has codes of five letters too: that of a cut socket is EPIPE. */
export const isSqlState = (code: string): boolean => /^(?=.*\d)[0-9A-Z]{5}$/.test(code)

/** Whether nobody answered: no way there, nobody at that port, or a connection that broke off without a word. */
export const isSilent = (code: string | null, message: string): boolean =>
  code === null ? /timed out|closed/.test(message) : !isSqlState(code) && /^E(?!RR_)[A-Z_]+$/.test(code)

/**
 * Where that is, for people: host and port, or a socket, and nothing of the login. `null` where the address says none.
 */
export const placeOf = (url: Redacted.Redacted): string | null => {
  const parsed = parse(Redacted.value(url))
  if (Result.isFailure(parsed)) {
    return null
  }
  const { hostname, port, searchParams } = new URL(parsed.success.url)
  const host = searchParams.get("host") ?? decodeURIComponent(hostname)
  const at = searchParams.get("port") ?? (port === "" ? "5432" : port)
  return host.startsWith("/")
    ? `${host}/.s.PGSQL.${at}`
    : host.includes(":") && !host.startsWith("[")
    ? `[${host}]:${at}`
    : `${host}:${at}`
}

/** SQLSTATE classes that no waiting cures: a wrong password, no such database, missing rights, an unknown setting. */
const hopeless = /^(28|3D|42|0A|08P01)/

/**
 * Whether it answers and will not have us. One that hangs up before it has said anything may be a wrong port, and is advised
 * so, but is more often one that starts anew behind a proxy. A certificate that is not valid yet will be.
 */
export const isRefusal = (code: string | null, message: string): boolean => {
  if (code !== null && isSqlState(code)) {
    return hopeless.test(code)
  }
  const words = `${message} ${code}`
  return adviceOf(code, message) !== null && tlsTrouble(words) !== "no_tls" && !isNotYetValid(words)
}
