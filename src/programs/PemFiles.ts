/**
 * The certificates and keys that variables, or an address, name by their files: read once, at the start, and looked at
 * before anything connects. A driver handed a file of the wrong kind says so late, in the words of OpenSSL, or silently
 * trusts nobody.
 *
 * What is in these files is never part of a message.
 */
import { type Config, Effect, Redacted } from "effect"
import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto"
import { readFileSync } from "node:fs"
import { because } from "../domain/Because.ts"
import type { Pem } from "../domain/Pem.ts"
import * as Variables from "./process/Variables.ts"

export interface Names {
  readonly ca: string
  readonly cert: string
  readonly key: string
}

/** A file, and how whoever named it calls that. */
export interface Named {
  readonly name: string
  readonly path: string | null
}

type Failed = Variables.Misconfigured | Config.ConfigError

const read = Effect.fnUntraced(function*({ name, path }: Named): Effect.fn.Return<string | null, Failed> {
  if (path === null) {
    return null
  }
  if (path.includes("-----BEGIN") || path.includes("\n")) {
    return yield* Variables.wrong(name, "must be the path of a PEM file, not what is in it")
  }
  return yield* Effect.try({
    try: () => readFileSync(path, "utf8"),
    // Not the message: it repeats the path, which may be the key itself, in base64.
    catch: (cause) =>
      Variables.wrong(name, `names a file that cannot be read: ${(cause as NodeJS.ErrnoException).code ?? "unknown"}`)
  })
})

const named = (name: string): Effect.Effect<Named, Failed> =>
  Effect.map(Variables.text(name), (path) => ({ name, path }))

const checked = <A>(name: string, rule: string, check: () => A): Effect.Effect<A, Variables.Misconfigured> =>
  Effect.try({ try: check, catch: (cause) => Variables.wrong(name, `${rule}: ${because(cause)}`) })

const certificatesIn = (name: string, text: string): Effect.Effect<ReadonlyArray<X509Certificate>, Failed> => {
  const found = text.match(/-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g) ?? []
  return found.length === 0
    ? Effect.fail(
      Variables.wrong(name, "names a file without a certificate in PEM (-----BEGIN CERTIFICATE-----): convert it")
    )
    : checked(name, "names a file with a broken certificate", () => found.map((one) => new X509Certificate(one)))
}

const keyIn = (name: string, text: string): Effect.Effect<KeyObject, Failed> =>
  checked(name, "must name a file with a private key in PEM, not encrypted", () => createPrivateKey(text))

/** What the files hold. Without TLS, which `how` says how to get, a file that is named is a contradiction. */
export const load = Effect.fnUntraced(function*(
  files: { readonly ca: Named; readonly cert: Named; readonly key: Named },
  withTls: boolean,
  how: string
): Effect.fn.Return<Pem, Failed> {
  if (!withTls) {
    for (const { name, path } of [files.ca, files.cert, files.key]) {
      if (path !== null) {
        return yield* Variables.wrong(name, `has no effect without TLS: ${how}, or leave it out`)
      }
    }
    return { ca: null, own: null }
  }
  const [ca, cert, key] = [yield* read(files.ca), yield* read(files.cert), yield* read(files.key)]
  if (ca !== null) {
    yield* certificatesIn(files.ca.name, ca)
  }
  if (cert === null || key === null) {
    if (cert !== key) {
      const [there, missing] = cert === null ? [files.key, files.cert] : [files.cert, files.key]
      return yield* Variables.wrong(missing.name, `must be set too: ${there.name} is one half of it`)
    }
    return { ca, own: null }
  }
  const [own] = yield* certificatesIn(files.cert.name, cert)
  const secret = yield* keyIn(files.key.name, key)
  if (own?.checkPrivateKey(secret) !== true) {
    return yield* Variables.wrong(files.key.name, `is not the key of the first certificate in ${files.cert.name}`)
  }
  return { ca, own: { cert, key: Redacted.make(key) } }
})

/** The same for files that variables name. */
export const fromEnv = Effect.fnUntraced(function*(
  names: Names,
  withTls: boolean,
  how: string
): Effect.fn.Return<Pem, Failed> {
  const [ca, cert, key] = [yield* named(names.ca), yield* named(names.cert), yield* named(names.key)]
  return yield* load({ ca, cert, key }, withTls, how)
})
