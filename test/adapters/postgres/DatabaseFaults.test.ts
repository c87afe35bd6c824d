/** What a server or its administrator may do to connections that stay: demote it, alter the schema, fill its queues. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { Client } from "pg"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import { migrate } from "../../../src/adapters/postgres/Migrations.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import { claimOf, request, settlement, written } from "../../contracts/JobStoreContractSteps.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as PostgresServer from "../../support/PostgresServer.ts"
import * as Rows from "../../support/Rows.ts"

const lanes = ["hot", "quick", "vital", "read", "handler"] as const

const storeLayer = JobStorePostgres.layer({ wake: true, keyTtlMs: 60_000 })

/** What the sessions of this database begin with from now on. Those that there are keep what they have. */
const altered = (change: string) =>
  Rows.query(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I ${change}', current_database()); END $$`)

/** Another process, with a connection for each lane. */
const another = Effect.gen(function*() {
  const url = yield* Postgres.Url
  const context = yield* Layer.buildWithScope(
    Layer.fresh(Layer.provideMerge(storeLayer, Database.layer({ url, storePool: 1, handlerPool: 1 }))),
    yield* Effect.scope
  )
  return <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.provideContext(effect, context)
})

const insertRoute = `INSERT INTO deadman.route (type, queue) VALUES (gen_random_uuid()::text, 'q')`

it.layer(Postgres.layer, { excludeTestServices: true })("Database: a server that was demoted", (it) => {
  it.effect("its connections are given up by the first statement that it refuses, and the next one leads elsewhere", () =>
    Effect.gen(function*() {
      yield* Rows.query(insertRoute)
      yield* altered("SET default_transaction_read_only = on")
      const within = yield* another
      const database = yield* within(Database.Database)
      yield* Effect.forEach(lanes, (lane) => database.query(lane, `SELECT 1`))
      const { ping } = yield* database.listen("deadman_wake")
      // The name leads to the new primary now. What was opened before is as it was.
      yield* altered("RESET default_transaction_read_only")
      for (const lane of lanes) {
        const error = yield* Effect.flip(database.query(lane, insertRoute))
        assert.deepStrictEqual([error.kind, error.code], ["unavailable", "25006"], lane)
        yield* database.query(lane, insertRoute)
      }
      assert.strictEqual((yield* Effect.flip(ping(10_000))).code, "25006")
      yield* (yield* database.listen("deadman_wake")).ping(10_000)
    }))

  it.effect("so are those of transactions", () =>
    Effect.gen(function*() {
      yield* altered("SET default_transaction_read_only = on")
      const within = yield* another
      const database = yield* within(Database.Database)
      const write = database.transaction("handler", (session) => session.query(insertRoute))
      yield* database.query("handler", `SELECT 1`)
      yield* altered("RESET default_transaction_read_only")
      assert.strictEqual((yield* Effect.flip(write)).code, "25006")
      yield* write
    }))
})

it.layer(Postgres.layer, { excludeTestServices: true })("Database: settings of the database", (it) => {
  it.effect("a stricter isolation is not taken over", () =>
    Effect.gen(function*() {
      yield* altered("SET default_transaction_isolation = serializable")
      const within = yield* another
      const database = yield* within(Database.Database)
      for (const lane of lanes) {
        const [row] = yield* database.query(lane, `SELECT current_setting('transaction_isolation') AS level`)
        assert.deepStrictEqual<unknown>(row, { level: "read committed" }, lane)
      }
    }))
})

/** Submits, claims and settles so many jobs, one of which fails and is due at once. */
const used = Effect.fnUntraced(function*(count: number, limitsByName = false) {
  const store = yield* JobStore
  const jobs = yield* Jobs.jobs(count, { type: yield* Jobs.freshType })
  const { answers } = yield* store.submit(jobs, { atomic: false })
  assert.isTrue(answers.every(({ _tag }) => _tag === "Created"), JSON.stringify(answers[0]))
  const asked = { ...yield* request(jobs[0]!, { limit: count }), limitsByName }
  const taken = yield* store.claim(asked)
  assert.lengthOf(taken, count)
  const settled = yield* store.settle(
    taken.map((job, n) => settlement(claimOf(asked.lease, job), n === 0 ? "fail" : "complete", { delayMs: 0 }))
  )
  assert.deepStrictEqual(settled, taken.map(() => written))
  const [failed] = yield* store.get([taken[0]!.id])
  assert.strictEqual(failed?.errors[0]?.message, "it went wrong")
  assert.lengthOf(yield* store.claim(yield* request(jobs[0]!)), 1)
})

it.layer(Postgres.layer, { excludeTestServices: true })("Database: an upgrade by another process", (it) => {
  it.effect("statements that were prepared before it are prepared anew, and no caller notices", () =>
    Effect.gen(function*() {
      const within = yield* another
      const all = Effect.gen(function*() {
        yield* used(1)
        yield* used(Database.few + 1)
      })
      yield* within(all)
      for (
        const ddl of [
          `ALTER TABLE deadman.job ADD COLUMN added int`,
          `ALTER TABLE deadman.body ADD COLUMN added text NOT NULL DEFAULT 'x'`,
          // What claims answer has another type then: "cached plan must not change result type".
          `ALTER TABLE deadman.body ALTER COLUMN timeout_ms TYPE smallint`,
          `DROP INDEX deadman.job_ready`,
          `CREATE INDEX job_ready ON deadman.job (route, rank, id) WHERE rank IS NOT NULL`,
          `CREATE OR REPLACE FUNCTION deadman.now_ms() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
           AS $$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 $$`
        ]
      ) {
        yield* Rows.query(ddl)
        yield* within(all)
      }
    }))

  it.effect("one inside a transaction fails once, and then no more", () =>
    Effect.gen(function*() {
      const within = yield* another
      yield* within(used(1, true))
      yield* Rows.query(`ALTER TABLE deadman.body ALTER COLUMN timeout_ms TYPE int`)
      const { cause } = yield* within(Effect.flip(used(1, true)))
      assert.deepInclude(cause, { kind: "broken", code: "0A000" })
      yield* within(used(1, true))
    }))
})

/** A session that listens, and leaves a transaction open: nothing is taken out of the queue while it does. */
const listener = (url: Redacted.Redacted) =>
  Effect.gen(function*() {
    const client = new Client({ connectionString: Redacted.value(url) })
    yield* Effect.acquireRelease(Effect.promise(() => client.connect()), () => Effect.promise(() => client.end()))
    for (const text of [`LISTEN somebody_elses`, `BEGIN`, `SELECT 1`]) {
      yield* Effect.promise(() => client.query(text))
    }
    return client
  })

it.live(
  "where the queue of notifications is full, jobs go on without them, and no payload or outcome is to blame",
  () =>
    Effect.gen(function*() {
      // Before Postgres 17 it is 8 GB and cannot be set.
      const server = yield* PostgresServer.start({ settings: { max_notify_queue_pages: "64" } })
      yield* migrate(server.url)
      yield* Effect.gen(function*() {
        const database = yield* Database.Database
        const client = yield* listener(server.url)
        const notify = database.query("read", `SELECT pg_notify($1::text, repeat('x', 7000))`, ["somebody_elses"])
        const full = yield* Effect.flip(Effect.forever(notify))
        assert.deepStrictEqual([full.kind, full.code], ["unavailable", "54000"])
        yield* used(1)
        yield* used(Database.few + 1)
        const store = yield* JobStore
        // A batch of all or nothing is a transaction: the queue refuses its COMMIT.
        const batch = [yield* Jobs.job({ key: { key: yield* Jobs.freshKey, fingerprint: "f" } }), yield* Jobs.job()]
        const { answers } = yield* store.submit(batch, { atomic: true })
        assert.deepStrictEqual(answers.map(({ _tag }) => _tag), ["Created", "Created"])
        assert.lengthOf(yield* store.get(batch.map(({ id }) => id)), 2)
        const hinting = (lane: Database.Lane) => {
          let runs = 0
          return database.transaction(lane, (session) => {
            runs += 1
            return session.query(`SELECT pg_notify('deadman_wake', 'x')`)
          }).pipe(Effect.match({ onFailure: ({ code }) => [code, runs], onSuccess: () => ["done", runs] }))
        }
        for (const lane of lanes) {
          assert.deepStrictEqual(yield* hinting(lane), ["done", 2], lane)
        }
        yield* Effect.promise(() => client.query("ROLLBACK"))
        // Soon after, and without a restart: Postgres itself would leave the queue as full as it is.
        yield* eventually(
          "notifications go again",
          Effect.map(Effect.suspend(() => hinting("read")), ([, runs]) => runs === 1)
        )
      }).pipe(Effect.provide(Layer.provideMerge(storeLayer, Database.layer({ url: server.url }))))
    }).pipe(Effect.scoped),
  180_000
)
