/** The doctor as a process, against things that are wrong for real. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { randomBytes } from "node:crypto"
import { type AddressInfo, createServer, type Server } from "node:net"
import * as Checkup from "../../../src/adapters/postgres/Checkup.ts"
import * as Cli from "../../support/Cli.ts"
import { freshDatabase } from "../../support/Database.ts"
import * as Processes from "../../support/Processes.ts"
import * as RedisServer from "../../support/RedisServer.ts"
import { describeWithKafka, describeWithRedis, kafkaBrokers } from "../../support/TestServers.ts"

interface Said {
  readonly well: boolean
  readonly findings: ReadonlyArray<
    { readonly level: string; readonly about: string; readonly code: string; readonly text: string }
  >
}

const doctor = Effect.fnUntraced(function*(env: Readonly<Record<string, string>>, ...args: ReadonlyArray<string>) {
  const ran = yield* Cli.run(["doctor", "--json", ...args], { env })
  assert.match(ran.out, /^\{.*\}\n$/s, ran.err)
  const said = JSON.parse(ran.out) as Said
  assert.strictEqual(ran.code, said.well ? 0 : 1, ran.out)
  return said
})

const levelOf = ({ findings }: Said, code: string): string | undefined =>
  findings.find((finding) => finding.code === code)?.level

const sqlOn = <A, E>(url: Redacted.Redacted, body: (sql: SqlClient.SqlClient) => Effect.Effect<A, E>) =>
  Effect.flatMap(SqlClient.SqlClient, body).pipe(
    Effect.provide(PgClient.layer({ url, maxConnections: 1, applicationName: "doctor-test" }))
  )

const fresh = Effect.map(freshDatabase, ({ name, url }) => ({
  name,
  url,
  env: { DEADMAN_DATABASE_URL: Redacted.value(url) }
}))

it.live("without a server it says so, and that jobs wait which nobody handles", () =>
  Effect.gen(function*() {
    const { env, url } = yield* fresh
    const idle = yield* doctor(env)
    assert.isTrue(idle.well, JSON.stringify(idle))
    assert.strictEqual(levelOf(idle, "no_server"), "worth a look")
    assert.strictEqual(levelOf(idle, "clock"), "good")
    yield* sqlOn(url, (sql) => sql`SELECT deadman.submit('doctor.fax', '{}')`)
    const waiting = yield* doctor(env)
    assert.strictEqual(levelOf(waiting, "no_server"), "bad")
    assert.strictEqual(levelOf(waiting, "unhandled"), "bad")
  }).pipe(Effect.scoped), 180_000)

it.live(
  "finds a schema that is not there, rights that are missing, and a database that is away",
  () =>
    Effect.gen(function*() {
      const { env, name, url } = yield* fresh
      const other = new URL(env.DEADMAN_DATABASE_URL)
      other.pathname = "/postgres"
      assert.strictEqual(levelOf(yield* doctor({ DEADMAN_DATABASE_URL: other.href }), "schema"), "bad")

      const role = `doctor_${randomBytes(4).toString("hex")}`
      yield* Effect.acquireRelease(
        sqlOn(url, (sql) =>
          sql.unsafe(`CREATE ROLE ${role} LOGIN PASSWORD 'doctor'`).pipe(
            Effect.andThen(sql.unsafe(`GRANT USAGE ON SCHEMA deadman TO ${role}`)),
            Effect.andThen(sql.unsafe(`GRANT SELECT ON ALL TABLES IN SCHEMA deadman TO ${role}`))
          )),
        () =>
          Effect.orDie(
            sqlOn(
              url,
              (sql) => sql.unsafe(`DROP OWNED BY ${role}`).pipe(Effect.andThen(sql.unsafe(`DROP ROLE ${role}`)))
            )
          )
      )
      const poor = new URL(env.DEADMAN_DATABASE_URL)
      poor.username = role
      poor.password = "doctor"
      const said = yield* doctor({ DEADMAN_DATABASE_URL: poor.href })
      assert.strictEqual(levelOf(said, "rights"), "bad")
      assert.include(JSON.stringify(said), `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA deadman`)
      assert.notInclude(JSON.stringify(said), poor.href)

      const away = yield* doctor({
        DEADMAN_DATABASE_URL: `postgres://x@127.0.0.1:${yield* Processes.freePort}/${name}`
      })
      assert.strictEqual(levelOf(away, "away"), "bad")
    }).pipe(Effect.scoped),
  180_000
)

it.live(
  "finds a transaction that is held open, dead rows, a weak setting and another version",
  () =>
    Effect.gen(function*() {
      const { env, name, url } = yield* fresh
      yield* sqlOn(url, (sql) =>
        Effect.gen(function*() {
          yield* sql.unsafe(`ALTER DATABASE ${name} SET synchronous_commit = off`)
          yield* sql.unsafe(`ALTER TABLE deadman.effect SET (autovacuum_enabled = off)`)
          yield* sql.unsafe(
            `INSERT INTO deadman.effect SELECT 'k' || n, gen_random_uuid(), 1, 'w', 1 FROM generate_series(1, 12000) n`
          )
          yield* sql.unsafe(`DELETE FROM deadman.effect`)
          yield* sql.unsafe(
            `INSERT INTO deadman.session (name, started_at_ms, seen_at_ms, detail, counters)
           VALUES ('old-one', deadman.now_ms(), deadman.now_ms() + 60000,
             '{"role": "server", "version": "0.0.1", "handlers": [], "slots": 1, "running": 0, "runaways": 1,
               "draining": false}', '{}')`
          )
        }))
      yield* Effect.forkScoped(
        sqlOn(url, (sql) => sql.withTransaction(Effect.andThen(sql`SELECT 1`, Effect.never)))
      )
      let said: Said = { well: true, findings: [] }
      yield* Processes.eventually(
        () => JSON.stringify(said),
        Effect.map(doctor(env, "--old", "500ms"), (found) => {
          said = found
          return levelOf(found, "oldest_transaction") !== "good" && levelOf(found, "bloat") === "worth a look"
        }),
        "60 seconds",
        "200 millis"
      )
      assert.strictEqual(levelOf(said, "synchronous_commit"), "bad")
      assert.strictEqual(levelOf(said, "versions"), "worth a look")
      assert.strictEqual(levelOf(said, "runaways"), "worth a look")
      assert.include(JSON.stringify(said), "pg_terminate_backend")
      const text = yield* Cli.run(["doctor", "--old", "500ms"], { env })
      assert.strictEqual(text.code, 1)
      assert.match(text.out, /^BAD +postgres +synchronous_commit is off/m)
      assert.match(text.out, /\d+ bad, \d+ worth a look, \d+ well\n$/)
    }).pipe(Effect.scoped),
  180_000
)

it.live(
  "sees a replication slot that nobody uses, and how much log it keeps",
  () =>
    Effect.gen(function*() {
      const { url } = yield* fresh
      const slot = `doctor_${randomBytes(4).toString("hex")}`
      yield* Effect.acquireRelease(
        sqlOn(url, (sql) => sql`SELECT 1 AS made FROM pg_create_physical_replication_slot(${slot}, true)`),
        () => Effect.orDie(sqlOn(url, (sql) => sql`SELECT 1 AS dropped FROM pg_drop_replication_slot(${slot})`))
      )
      // Something to keep.
      yield* sqlOn(url, (sql) => sql`INSERT INTO deadman.effect SELECT 'slot', gen_random_uuid(), 1, 'w', 1`)
      const { replicas, unfrozen } = yield* Checkup.look(url)
      const found = replicas.find(({ name }) => name === slot)
      assert.deepInclude(found, { isSlot: true, active: false, transactions: 0 })
      assert.isAbove(found?.logBytes ?? 0, 0)
      assert.isAbove(unfrozen, 0)
    }).pipe(Effect.scoped),
  180_000
)

it.live(
  "asks for the server only where one is named, and tells a wrong variable from a fault",
  () =>
    Effect.gen(function*() {
      const { env } = yield* fresh
      const url = `http://127.0.0.1:${yield* Processes.freePort}`
      const said = yield* doctor(env, "--url", url)
      assert.strictEqual(levelOf(said, "away"), "bad")
      const wrong = yield* Cli.run(["doctor"], { env: { DEADMAN_DATABASE_URL: "mysql://root:hunter2@h/d" } })
      assert.strictEqual(wrong.code, 2)
      assert.include(wrong.err, "DEADMAN_DATABASE_URL")
      assert.notInclude(wrong.err, "hunter2")
      const nothing = yield* doctor({ DEADMAN_DATA_DIR: "test/no-such-folder" })
      assert.strictEqual(levelOf(nothing, "no_data"), "worth a look")
    }).pipe(Effect.scoped),
  180_000
)

/** As PgBouncer answers a start with settings that it was not told to ignore. */
const refusingPooler = Effect.map(
  Effect.acquireRelease(
    Effect.callback<Server>((resume) => {
      const fields = "SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: statement_timeout\0\0"
      const answer = Buffer.alloc(5 + fields.length)
      answer.write("E")
      answer.writeInt32BE(4 + fields.length, 1)
      answer.write(fields, 5)
      const server = createServer((client) => {
        client.on("error", () => client.destroy())
        client.once("data", () => client.end(answer))
      })
      server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
    }),
    (server) => Effect.sync(() => server.close())
  ),
  (server) => (server.address() as AddressInfo).port
)

it.live(
  "tells a pooler, a login and a certificate that are wrong from a Postgres that is away",
  () =>
    Effect.gen(function*() {
      const { env } = yield* fresh
      const pooler = { DEADMAN_DATABASE_URL: `postgres://me:hunter2@127.0.0.1:${yield* refusingPooler}/name` }
      const said = yield* doctor(pooler)
      assert.strictEqual(levelOf(said, "refused"), "bad")
      assert.match(JSON.stringify(said), /looks like a pooler in front of Postgres. Connect to Postgres itself/)
      const migrated = yield* Cli.run(["migrate", "--json"], { env: pooler })
      assert.strictEqual(migrated.code, 1)
      assert.strictEqual(JSON.parse(migrated.out).error.code, "refused")
      assert.include(migrated.err, "Connect to Postgres itself")
      const guess = new URL(env.DEADMAN_DATABASE_URL)
      guess.password = "hunter2"
      assert.strictEqual(levelOf(yield* doctor({ DEADMAN_DATABASE_URL: guess.href }), "refused"), "bad")
      const tls = yield* doctor({ DEADMAN_DATABASE_URL: `${env.DEADMAN_DATABASE_URL}?sslmode=require` })
      assert.strictEqual(levelOf(tls, "refused"), "bad")
      assert.include(JSON.stringify(tls), "does not support TLS")
      assert.notInclude(JSON.stringify([said, tls]) + migrated.err + migrated.out, "hunter2")
    }).pipe(Effect.scoped),
  180_000
)

it.live(
  "a Redis and a Kafka that are misconfigured keep nothing else from being looked at",
  () =>
    Effect.gen(function*() {
      const { env } = yield* fresh
      const said = yield* doctor({
        ...env,
        DEADMAN_REDIS_URL: "http://:hunter2@127.0.0.1:6379",
        DEADMAN_KAFKA_BROKERS: "no port"
      })
      const refused = said.findings.filter(({ code }) => code === "refused")
      assert.deepStrictEqual(refused.map(({ about, level }) => [about, level]), [["redis", "bad"], ["kafka", "bad"]])
      assert.include(refused[0]?.text, "DEADMAN_REDIS_URL")
      assert.include(refused[1]?.text, "DEADMAN_KAFKA_BROKERS")
      assert.notInclude(JSON.stringify(said), "hunter2")
      for (const code of ["schema", "clock", "backlog"]) {
        assert.strictEqual(levelOf(said, code), "good")
      }
    }).pipe(Effect.scoped),
  180_000
)

describeWithRedis("the doctor and Redis", () => {
  it.live("finds a policy that throws keys away, and a Redis that is away", () =>
    Effect.gen(function*() {
      const { env } = yield* fresh
      const redis = yield* RedisServer.start({ settings: { "maxmemory-policy": "allkeys-lru" } })
      const evicting = yield* doctor({ ...env, DEADMAN_REDIS_URL: redis.url })
      assert.strictEqual(levelOf(evicting, "eviction"), "worth a look")
      yield* redis.configSet("maxmemory-policy", "noeviction")
      assert.isUndefined(levelOf(yield* doctor({ ...env, DEADMAN_REDIS_URL: redis.url }), "eviction"))
      const away = { ...env, DEADMAN_REDIS_URL: `redis://:hunter2@127.0.0.1:${yield* Processes.freePort}` }
      const said = yield* doctor(away)
      assert.strictEqual(levelOf(said, "away"), "bad")
      assert.notInclude(JSON.stringify(said), "hunter2")
    }).pipe(Effect.scoped), 180_000)
})

describeWithKafka("the doctor and Kafka", () => {
  it.live("counts brokers and topics, and finds a Kafka that is away", () =>
    Effect.gen(function*() {
      const { env } = yield* fresh
      const said = yield* doctor({ ...env, DEADMAN_KAFKA_BROKERS: yield* kafkaBrokers })
      assert.strictEqual(levelOf(said, "brokers"), "good")
      assert.isDefined(levelOf(said, "topic"))
      const away = yield* doctor({ ...env, DEADMAN_KAFKA_BROKERS: `127.0.0.1:${yield* Processes.freePort}` })
      assert.strictEqual(levelOf(away, "away"), "bad")
    }).pipe(Effect.scoped), 180_000)
})
