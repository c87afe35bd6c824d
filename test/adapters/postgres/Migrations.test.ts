import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { randomBytes } from "node:crypto"
import { type AddressInfo, connect, createServer, type Server } from "node:net"
import * as Checkup from "../../../src/adapters/postgres/Checkup.ts"
import { isHopeless, migrate, schemaVersion } from "../../../src/adapters/postgres/Migrations.ts"
import { freshDatabase } from "../../support/Database.ts"

const on = (url: Redacted.Redacted, ...statements: ReadonlyArray<string>) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      Effect.forEach(statements, (statement) => sql.unsafe<Record<string, unknown>>(statement)),
      (all) => all.at(-1) ?? []
    )).pipe(Effect.provide(PgClient.layer({ url, maxConnections: 1, applicationName: "deadman-tests" })))

const emptyDatabase = Effect.gen(function*() {
  const database = yield* freshDatabase
  yield* on(database.url, `DROP SCHEMA IF EXISTS deadman CASCADE`)
  return database
})

const as = (url: Redacted.Redacted, role: string) => {
  const parsed = new URL(Redacted.value(url))
  parsed.username = role
  parsed.password = "test"
  return Redacted.make(parsed.href)
}

/** Somebody who may read and write the tables, and change nothing else. */
const humbleRole = (url: Redacted.Redacted) =>
  Effect.acquireRelease(
    Effect.gen(function*() {
      const role = `deadman_humble_${randomBytes(4).toString("hex")}`
      yield* on(
        url,
        `CREATE ROLE ${role} LOGIN PASSWORD 'test'`,
        `REVOKE ALL ON SCHEMA public FROM PUBLIC`,
        `GRANT USAGE ON SCHEMA public TO ${role}`
      )
      return role
    }),
    (role) => Effect.orDie(on(url, `DROP OWNED BY ${role}`, `DROP ROLE ${role}`))
  )

it.live(
  "ten processes that start at once on an empty database all find the schema right",
  () =>
    Effect.gen(function*() {
      for (let round = 0; round < 5; round++) {
        const { url } = yield* emptyDatabase
        yield* Effect.all(Array.from({ length: 10 }, () => migrate(url)), { concurrency: "unbounded", discard: true })
        const rows = yield* on(url, `SELECT schema_version, only_row FROM deadman.meta`)
        assert.deepStrictEqual(rows, [{ schema_version: schemaVersion, only_row: true }])
      }
    }).pipe(Effect.scoped),
  180_000
)

it.live("where the schema is right, nothing but reading is asked for", () =>
  Effect.gen(function*() {
    const { url } = yield* emptyDatabase
    yield* migrate(url)
    const role = yield* humbleRole(url)
    yield* on(url, `GRANT USAGE ON SCHEMA deadman TO ${role}`, `GRANT SELECT ON deadman.meta TO ${role}`)
    yield* migrate(as(url, role))
    // What would have been there to do needs more.
    yield* on(url, `UPDATE deadman.meta SET schema_version = 0`)
    assert.strictEqual((yield* Effect.flip(migrate(as(url, role))))._tag, "MigrationFailed")
  }).pipe(Effect.scoped))

it.live("a migration that fails leaves nothing behind, and says why", () =>
  Effect.gen(function*() {
    const { url } = yield* emptyDatabase
    const role = yield* humbleRole(url)
    const error = yield* Effect.flip(migrate(as(url, role)))
    assert.strictEqual(error._tag, "MigrationFailed")
    assert.include(error.message, "permission denied")
    assert.notInclude(error.message, "test@")
    // In the way of the last table but one: what was made before it goes again.
    yield* on(url, `CREATE SCHEMA deadman`, `CREATE TABLE deadman.effect (n int)`)
    assert.strictEqual((yield* Effect.flip(migrate(url)))._tag, "MigrationFailed")
    assert.deepStrictEqual(
      yield* on(url, `SELECT relname FROM pg_class WHERE relnamespace = 'deadman'::regnamespace`),
      [
        { relname: "effect" }
      ]
    )
    yield* on(url, `DROP TABLE deadman.effect`)
    yield* migrate(url)
  }).pipe(Effect.scoped))

it.live("a schema that is newer than the program is refused, also by one that waited for it", () =>
  Effect.gen(function*() {
    const { url } = yield* emptyDatabase
    yield* migrate(url)
    yield* on(url, `UPDATE deadman.meta SET schema_version = ${schemaVersion + 1}`)
    const error = yield* Effect.flip(migrate(url))
    assert.strictEqual(error._tag, "SchemaTooNew")
    assert.include(error.message, `schema version ${schemaVersion + 1}`)
    assert.deepStrictEqual(yield* on(url, `SELECT schema_version FROM deadman.meta`), [
      { schema_version: schemaVersion + 1 }
    ])
  }).pipe(Effect.scoped))

it.live("a database that is not there fails in time and without its password", () =>
  Effect.gen(function*() {
    const error = yield* Effect.flip(migrate(Redacted.make("postgres://deadman:secret@127.0.0.1:1/none")))
    assert.strictEqual(error._tag, "MigrationFailed")
    assert.match(error.message, /^Postgres at 127\.0\.0\.1:1 does not answer: connect ECONNREFUSED/)
    assert.notInclude(error.message, "secret")
  }))

/** As a pooler does that was told to ignore what a session asks for at its start. */
const forgetfulPooler = (target: number) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.callback<Server>((resume) => {
        const server = createServer((client) => {
          const upstream = connect(target, "127.0.0.1")
          let begun = false
          client.on("data", (chunk) => {
            const isStart = !begun && chunk.length >= 8 && chunk.readInt32BE(4) === 3 << 16
            begun ||= isStart
            upstream.write(isStart ? withoutSettings(chunk) : chunk)
          })
          upstream.on("data", (chunk) => client.write(chunk))
          for (const [one, other] of [[client, upstream], [upstream, client]] as const) {
            one.on("error", () => other.destroy())
            one.on("close", () => other.destroy())
          }
        })
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
      }),
      (server) => Effect.sync(() => server.close())
    ),
    (server) => (server.address() as AddressInfo).port
  )

const withoutSettings = (start: Buffer): Buffer => {
  const words = start.subarray(8).toString().split("\0")
  const kept: Array<string> = []
  for (let n = 0; n + 1 < words.length && words[n] !== ""; n += 2) {
    if (["user", "database", "client_encoding", "application_name"].includes(words[n]!)) {
      kept.push(words[n]!, words[n + 1]!)
    }
  }
  const body = Buffer.from(`${kept.join("\0")}\0\0`)
  const head = Buffer.alloc(8)
  head.writeInt32BE(body.length + 8, 0)
  head.writeInt32BE(3 << 16, 4)
  return Buffer.concat([head, body])
}

it.live("H73: a pooler that drops the settings of a session is refused with a clear text, and nothing is changed", () =>
  Effect.gen(function*() {
    const { url } = yield* emptyDatabase
    const behind = new URL(Redacted.value(url))
    behind.port = String(yield* forgetfulPooler(Number(behind.port)))
    const error = yield* Effect.flip(migrate(Redacted.make(behind.href)))
    assert.strictEqual(error._tag, "SettingsNotKept")
    assert.include(error.message, "Connect to Postgres itself")
    assert.deepStrictEqual(yield* on(url, `SELECT 1 FROM pg_namespace WHERE nspname = 'deadman'`), [])
  }).pipe(Effect.scoped))

it.live("a Postgres that is too old is left as it is, and told by its version", () =>
  Effect.gen(function*() {
    const { name, url } = yield* emptyDatabase
    // No old one is at hand: this one says it is.
    yield* on(
      url,
      `CREATE SCHEMA old`,
      `CREATE FUNCTION old.current_setting(name text) RETURNS text LANGUAGE sql AS $$ SELECT CASE name
         WHEN 'server_version_num' THEN '140023' WHEN 'server_version' THEN '14.23'
         ELSE pg_catalog.current_setting(name) END $$`,
      `ALTER DATABASE ${name} SET search_path = old, pg_catalog`
    )
    const error = yield* Effect.flip(migrate(url))
    assert.match(error.message, /^Postgres 14\.23 is too old: Deadman needs 15 or newer\. Upgrade it/)
    assert.isTrue(isHopeless(error))
    assert.deepStrictEqual(yield* on(url, `SELECT FROM pg_namespace WHERE nspname = 'deadman'`), [])
    assert.strictEqual((yield* Checkup.look(url)).versionNumber, 140_023)
  }).pipe(Effect.scoped))
