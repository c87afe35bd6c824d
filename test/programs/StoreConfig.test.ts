/** What is made of an address, and said of one that cannot be used: before anything connects. */
import { assert, it } from "@effect/vitest"
import { ConfigProvider, Effect, Redacted } from "effect"
import { userInfo } from "node:os"
import * as Target from "../../src/adapters/postgres/Target.ts"
import * as StoreConfig from "../../src/programs/StoreConfig.ts"
import * as Certificates from "../support/Certificates.ts"
import * as Files from "../support/Files.ts"

const { file } = Files.make()

const authority = Certificates.authority("an authority")
const own = authority.issue("app")
// Bundles of authorities, as clouds hand them out.
const ca = file("ca.pem", authority.cert + Certificates.authority("another").cert)
const cert = file("own.pem", own.cert)
const key = file("own.key", own.key)
const other = file("other.key", authority.issue("other").key)

const profileOf = (env: Record<string, string>) =>
  Effect.map(
    Effect.provide(StoreConfig.fromEnv, ConfigProvider.layer(ConfigProvider.fromEnv({ env }))),
    ({ profile }) => profile._tag === "postgres" ? profile : null
  )

const urlOf = (env: Record<string, string>) =>
  Effect.map(profileOf(env), (profile) => profile === null ? null : Redacted.value(profile.url))

/** As the driver is told. */
const optionsOf = (address: string) =>
  Effect.map(profileOf({ DEADMAN_DATABASE_URL: address }), (profile) => Target.options(profile!, "deadman-test"))

it.effect("an address without a user gets the one that psql would take", () =>
  Effect.gen(function*() {
    const address = "postgres://host:5432/name?sslmode=disable"
    const own = encodeURIComponent(userInfo().username)
    assert.strictEqual(
      yield* urlOf({ DEADMAN_DATABASE_URL: address }),
      `postgres://${own}@host:5432/name?sslmode=disable`
    )
    assert.strictEqual(
      yield* urlOf({ DEADMAN_DATABASE_URL: address, PGUSER: "a b@c" }),
      "postgres://a%20b%40c@host:5432/name?sslmode=disable"
    )
    assert.strictEqual(
      yield* urlOf({ DEADMAN_DATABASE_URL: "postgres://:secret@host/name", PGUSER: "me" }),
      "postgres://me:secret@host/name"
    )
  }))

it.effect("an address with a user stays as it is", () =>
  Effect.gen(function*() {
    for (
      const address of ["postgres://you@host/name", "postgres://host/name?user=you", "postgresql://you:x@[::1]:1/n"]
    ) {
      assert.strictEqual(yield* urlOf({ DEADMAN_DATABASE_URL: address, PGUSER: "me" }), address)
    }
  }))

it.effect("an address with a socket is one, in each of its spellings", () =>
  Effect.gen(function*() {
    for (
      const [address, url] of [
        ["postgres:///name?host=/run/postgresql&user=me", "postgres://localhost/name?host=/run/postgresql&user=me"],
        ["postgres://me:pw@/name?host=/cloudsql/a:b:c", "postgres://me:pw@localhost/name?host=/cloudsql/a:b:c"],
        ["postgres://me@%2Frun%2Fpostgresql/name", "postgres://me@%2Frun%2Fpostgresql/name"]
      ] as const
    ) {
      assert.strictEqual(yield* urlOf({ DEADMAN_DATABASE_URL: address }), url)
      // As with psql, sslmode is for the network.
      assert.isFalse((yield* optionsOf(`${address}${address.includes("?") ? "&" : "?"}sslmode=require`)).ssl)
    }
  }))

it.effect("each sslmode trusts whom psql trusts", () =>
  Effect.gen(function*() {
    const at = "postgres://me:pw@host/name"
    const sslOf = (parameters: string) => Effect.map(optionsOf(`${at}?${parameters}`), ({ ssl }) => ssl)
    assert.isFalse((yield* optionsOf(at)).ssl)
    assert.isFalse(yield* sslOf("sslmode=disable"))
    assert.isUndefined(yield* sslOf("sslmode=prefer"))
    assert.deepStrictEqual(yield* sslOf("sslmode=require"), { rejectUnauthorized: false })
    // A script that appends it does not look whether it is there.
    assert.deepStrictEqual(yield* sslOf("sslmode=require&sslmode=require"), { rejectUnauthorized: false })
    // A file makes it look, as in libpq.
    const named = yield* sslOf(`sslmode=require&sslrootcert=${ca}`)
    assert.deepStrictEqual(Object.keys(Object(named)), ["ca", "checkServerIdentity"])
    assert.deepStrictEqual(Object.keys(Object(yield* sslOf(`sslmode=verify-ca&sslrootcert=${ca}`))), [
      "ca",
      "checkServerIdentity"
    ])
    assert.deepStrictEqual(yield* sslOf("sslmode=verify-ca"), {})
    assert.deepStrictEqual(yield* sslOf("sslmode=verify-full"), {})
    assert.deepStrictEqual(yield* sslOf("sslmode=verify-full&sslrootcert=system"), {})
    assert.deepStrictEqual(yield* sslOf("sslrootcert=system"), {})
    const whole = yield* sslOf(`sslmode=verify-full&sslrootcert=${ca}&sslcert=${cert}&sslkey=${key}`)
    assert.deepStrictEqual(Object.keys(Object(whole)), ["ca", "cert", "key"])
    for (
      const [parameters, unverified] of [["sslmode=require", true], [
        `sslmode=require&sslrootcert=${ca}`,
        false
      ]] as const
    ) {
      assert.strictEqual((yield* profileOf({ DEADMAN_DATABASE_URL: `${at}?${parameters}` }))?.unverified, unverified)
    }
  }))

it.effect("a name and a patience of its own are heeded, and what has no effect is named", () =>
  Effect.gen(function*() {
    const at = "postgres://me@host/name"
    assert.deepInclude(yield* optionsOf(at), { applicationName: "deadman-test", connectTimeout: 3_000 })
    assert.deepInclude(yield* optionsOf(`${at}?application_name=billing&connect_timeout=10`), {
      applicationName: "billing",
      connectTimeout: 10_000
    })
    // Everything has a limit.
    assert.deepInclude(yield* optionsOf(`${at}?connect_timeout=0`), { connectTimeout: 60_000 })
    const neon = yield* profileOf({
      DEADMAN_DATABASE_URL: `${at}?sslmode=require&channel_binding=require&options=-c%20search_path%3Dx&pgbouncer=true`
    })
    assert.deepStrictEqual(neon?.ignored, ["channel_binding", "pgbouncer"])
    const java = yield* profileOf({ DEADMAN_DATABASE_URL: `${at}?currentSchema=app` })
    assert.deepStrictEqual(java?.ignored, ["currentSchema"])
    // Where a password ended in &er=x&ed=y, these are pieces of it.
    const unknown = yield* profileOf({ DEADMAN_DATABASE_URL: `${at}?er=x&pgbouncer=true&ed=y` })
    assert.deepStrictEqual(unknown?.ignored, ["a parameter", "pgbouncer"])
  }))

const secret = "hunter2"
const wrong: ReadonlyArray<readonly [said: RegExp, address: string]> = [
  [/must look like postgres:\/\/user:password@host/, `mysql://root:${secret}@h/d`],
  [/must look like postgres:\/\/user:password@host.*%40 for @/, `postgres://me:${secret}#x@host/name`],
  [/must look like postgres:/, `postgres:///name`],
  // What looks like parameters is the rest of a password.
  [/must look like postgres:/, `postgres://me:12345?${secret}@host/name`],
  [/must look like postgres:/, `postgres://me:12345?secret=${secret}@host/name`],
  [/must look like postgres:/, `postgres://me@host/name?password=x&${secret}`],
  [/must look like postgres:/, `postgres://me@host/name?password=x&${secret}=y&channel_binding=require`],
  [/must look like postgres:/, `postgres://me@host/name?password=x&hunter`],
  [/must look like postgres:.*%23 for #/, `postgres://me@host/name?password=${secret}#b&sslmode=verify-full`],
  [/must look like postgres:/, `postgres://me@host/name?password=${secret}#`],
  [/must look like postgres:/, `postgres://me:${secret}@host/name#&sslmode=verify-full`],
  [/must look like postgres:.*%2F for \//, `postgres://me:12/${secret}@host/name`],
  [/must look like postgres:/, `postgres://me:p@${secret}/word@host/name`],
  [/must look like postgres:/, `postgres://me:${secret}@/name`],
  [/names several hosts: give one/, `postgres://me:${secret}@a:5432,b:5432/name`],
  [/names several hosts: give one/, `postgres://me:${secret}@a,b/name`],
  [/names several hosts: give one/, `postgres://me:${secret}@a/name?host=a,b`],
  [/a % that escapes nothing: write %25/, `postgres://me:${secret}%@host/name`],
  [/port that is none/, `postgres://me:${secret}@host:0/name`],
  [/port that is none/, `postgres://me:${secret}@host/name?port=70000`],
  [/connect_timeout that is none/, `postgres://me:${secret}@host/name?connect_timeout=soon`],
  [/has host= without a value: leave it out/, `postgres://me:${secret}@host/name?host=`],
  [/has port= without a value/, `postgres://me:${secret}@host/name?port=&port=5432`],
  [/has sslmode= without a value/, `postgres://me:${secret}@host/name?sslmode=`],
  [
    /has sslmode twice, and not the same: give it once/,
    `postgres://me:${secret}@host/name?sslmode=foo&sslmode=require`
  ],
  [
    /has sslmode twice, and not the same: give it once/,
    `postgres://me:${secret}@host/name?sslmode=verify-full&x=y&sslmode=disable`
  ],
  [/has password twice/, `postgres://me@host/name?password=${secret}&password=${secret}2`],
  [/has connect_timeout= without a value/, `postgres://me:${secret}@host/name?connect_timeout=`],
  [
    /sslrootcert=system with sslmode=require, which is weaker: write sslmode=verify-full/,
    `postgres://me:${secret}@host/name?sslmode=require&sslrootcert=system`
  ],
  ...(["disable", "prefer", "verify-ca"] as const).map((mode) =>
    [
      new RegExp(`sslrootcert=system with sslmode=${mode}, which is weaker`),
      `postgres://me:${secret}@host/name?sslrootcert=system&sslmode=${mode}`
    ] as const
  ),
  [/ssl=….*sslmode=verify-full/, `postgres://me:${secret}@host/name?ssl=true`],
  [/sslmode=no-verify: it is one of/, `postgres://me:${secret}@host/name?sslmode=no-verify`],
  [
    /^sslrootcert in DEADMAN_DATABASE_URL has no effect without TLS: write sslmode=verify-full/,
    `postgres://me:${secret}@h/n?sslrootcert=${ca}`
  ],
  [/^sslrootcert in .* has no effect without TLS/, `postgres://me:${secret}@h/n?sslmode=prefer&sslrootcert=${ca}`],
  [
    /^sslrootcert in .* names a file that cannot be read: ENOENT/,
    `postgres://me:${secret}@h/n?sslmode=require&sslrootcert=${ca}x`
  ],
  [
    /^sslkey in .* must be set too: sslcert in .* is one half/,
    `postgres://me:${secret}@h/n?sslmode=require&sslcert=${cert}`
  ],
  [
    /^sslkey in .* is not the key of the first certificate in sslcert/,
    `postgres://me:${secret}@h/n?sslmode=require&sslcert=${cert}&sslkey=${other}`
  ],
  [
    /^sslrootcert in .* names a file without a certificate/,
    `postgres://me:${secret}@h/n?sslmode=require&sslrootcert=${key}`
  ]
]

it.effect.each(wrong.map(([said, address]) => ({ said, address })))(
  "$said",
  ({ address, said }) =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(profileOf({ DEADMAN_DATABASE_URL: address }))
      assert.match(error.message, said)
      assert.include(error.message, "DEADMAN_DATABASE_URL")
      assert.notInclude(error.message, secret)
    })
)
