/** From schema 2, with which processes run already, to ours: on tables of any size, and while those processes go on. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Redacted } from "effect"
import { randomUUID } from "node:crypto"
import { Client } from "pg"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import { migrate, schemaVersion } from "../../../src/adapters/postgres/Migrations.ts"
import { LeaseId } from "../../../src/domain/Claim.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import { freshDatabase } from "../../support/Database.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"
import * as SchemaTwo from "../../support/SchemaTwo.ts"

const { on } = SchemaTwo

/** One connection of `pg`, ended with the scope. */
const connected = (url: Redacted.Redacted) =>
  Effect.gen(function*() {
    const client = new Client({ connectionString: Redacted.value(url) })
    client.on("error", () => undefined)
    yield* Effect.acquireRelease(
      Effect.promise(() => client.connect()),
      () => Effect.promise(() => client.end().catch(() => undefined))
    )
    return (text: string, params: Array<unknown> = []) =>
      Effect.map(
        Effect.promise(() => client.query<Record<string, unknown>>(text, params)),
        ({ rows }) => rows
      )
  })

const oldDatabase = Effect.fnUntraced(function*(jobs: number) {
  const { url } = yield* freshDatabase
  yield* SchemaTwo.make(url, jobs)
  return url
})

const indexes = (url: Redacted.Redacted) =>
  on(
    url,
    `SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
     WHERE c.relname IN ('job_expire', 'job_prune', 'body_tick') ORDER BY c.relname`
  )

const allValid = ["body_tick", "job_expire", "job_prune"].map((relname) => ({ relname, indisvalid: true }))

const versionOf = (url: Redacted.Redacted) =>
  Effect.map(on(url, "SELECT schema_version FROM deadman.meta"), ([row]) => row?.["schema_version"])

it.live(
  "a database with many jobs is brought up to date while others submit, claim and settle: none waits for a second",
  () =>
    Effect.gen(function*() {
      const url = yield* oldDatabase(300_000)
      let over = false
      const longest = { submit: 0, claim: 0, settle: 0 }
      let ended = 0
      const working = Effect.gen(function*() {
        const send = yield* connected(url)
        const timed = Effect.fnUntraced(function*(what: keyof typeof longest, text: string, params: Array<unknown>) {
          const before = performance.now()
          const rows = yield* send(text, params)
          longest[what] = Math.max(longest[what], performance.now() - before)
          return rows
        })
        while (!over) {
          const lease = randomUUID()
          yield* timed("submit", SchemaTwo.submit, [randomUUID()])
          const jobs = yield* timed("claim", SchemaTwo.claim, SchemaTwo.claimParams(lease))
          const ids = jobs.map(({ id }) => id)
          const epochs = jobs.map(({ epoch }) => epoch)
          const done = yield* timed("settle", SchemaTwo.settle, [ids, epochs, ids.map(() => lease)])
          assert.lengthOf(done, jobs.length)
          ended += done.length
        }
      })
      const workers = yield* Effect.forkChild(Effect.all([working, working], { concurrency: 2, discard: true }))
      yield* eventually("jobs end", Effect.sync(() => ended > 20))
      yield* Effect.sleep("1 second")
      // What a statement takes here and now, when nobody migrates.
      const before = Math.max(...Object.values(longest))
      // Somebody reads at length meanwhile.
      const reads = yield* connected(url)
      yield* reads("BEGIN")
      yield* reads("SELECT 1 FROM deadman.job JOIN deadman.body USING (id) LIMIT 1")
      const migrating = yield* Effect.forkChild(migrate(url))
      yield* Effect.sleep("2500 millis")
      yield* reads("COMMIT")
      yield* Fiber.join(migrating)
      over = true
      yield* Fiber.join(workers)

      for (const ms of Object.values(longest)) {
        assert.isBelow(ms, Math.max(1_000, 5 * before), JSON.stringify(longest))
      }
      assert.strictEqual(yield* versionOf(url), schemaVersion)
      assert.deepStrictEqual(yield* indexes(url), allValid)
    }).pipe(Effect.scoped),
  180_000
)

it.live(
  "a statement that holds one table and comes to another never waits for long, nor is it ended as deadlocked",
  () =>
    Effect.gen(function*() {
      const url = yield* oldDatabase(100)
      const send = yield* connected(url)
      yield* send("BEGIN")
      yield* send("LOCK TABLE deadman.job IN ROW EXCLUSIVE MODE")
      const migrating = yield* Effect.forkChild(migrate(url))
      const from = performance.now()
      let longest = 0
      // For longer than the migration takes to lose its patience.
      while (performance.now() - from < 9_000) {
        const before = performance.now()
        yield* send("SAVEPOINT here")
        yield* send("LOCK TABLE deadman.body IN ACCESS SHARE MODE")
        yield* send("ROLLBACK TO here")
        longest = Math.max(longest, performance.now() - before)
        yield* Effect.sleep("20 millis")
      }
      yield* send("COMMIT")
      yield* Fiber.join(migrating)
      assert.isBelow(longest, 1_000)
      assert.strictEqual(yield* versionOf(url), schemaVersion)
    }).pipe(Effect.scoped),
  180_000
)

it.live(
  "ten processes that start at once on an older database all find the schema right",
  () =>
    Effect.gen(function*() {
      const url = yield* oldDatabase(30_000)
      yield* Effect.all(Array.from({ length: 10 }, () => migrate(url)), { concurrency: "unbounded", discard: true })
      assert.strictEqual(yield* versionOf(url), schemaVersion)
      assert.deepStrictEqual(yield* indexes(url), allValid)
    }).pipe(Effect.scoped),
  180_000
)

/** The step that gives the SQL functions delays is 0009. */
const versionBeforeDelays = 8

/** The step that makes indexes beside running processes is 0007. */
const versionBeforeIndexes = 6

it.live(
  "who is killed half-way leaves a version in between, and the next one goes on there",
  () =>
    Effect.gen(function*() {
      const url = yield* oldDatabase(30_000)
      const reads = yield* connected(url)
      yield* reads("BEGIN ISOLATION LEVEL REPEATABLE READ")
      yield* reads("SELECT 1")
      const first = yield* Effect.forkChild(Effect.exit(migrate(url)))
      const started = on(
        url,
        `SELECT a.pid FROM pg_stat_progress_create_index p JOIN pg_stat_activity a USING (pid)
         WHERE a.datname = current_database() AND p.phase LIKE 'waiting for old snapshots%'`
      )
      yield* eventually("an index is made", Effect.map(started, (rows) => rows.length > 0))
      yield* on(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_progress_create_index WHERE datname = current_database()"
      )
      assert.strictEqual((yield* Fiber.join(first))._tag, "Failure")
      assert.strictEqual(yield* versionOf(url), versionBeforeIndexes)
      assert.isFalse((yield* indexes(url)).some(({ indisvalid }) => indisvalid === true))
      assert.lengthOf(yield* indexes(url), 1)

      yield* reads("COMMIT")
      yield* migrate(url)
      assert.strictEqual(yield* versionOf(url), schemaVersion)
      assert.deepStrictEqual(yield* indexes(url), allValid)
    }).pipe(Effect.scoped),
  180_000
)

it.live("a process of before adds routes with the rights that it had, and they are as their queue is", () =>
  Effect.gen(function*() {
    const url = yield* oldDatabase(0)
    const role = `deadman_old_${randomUUID().slice(0, 8)}`
    yield* Effect.acquireRelease(
      on(
        url,
        `CREATE ROLE ${role}`,
        `GRANT USAGE ON SCHEMA deadman TO ${role}`,
        `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA deadman TO ${role}`
      ),
      () => Effect.orDie(on(url, `DROP OWNED BY ${role}`, `DROP ROLE ${role}`))
    )
    yield* migrate(url)
    const rows = yield* on(
      url,
      `INSERT INTO deadman.queue (name, paused, created_at_ms) VALUES ('q', true, 1)`,
      `SET ROLE ${role}`,
      `INSERT INTO deadman.route (type, queue) VALUES ('new', 'q') RETURNING paused`,
      `SELECT paused FROM deadman.route WHERE type = 'new'`
    )
    assert.deepStrictEqual(rows, [{ paused: true }])
  }).pipe(Effect.scoped))

it.live("a role that was allowed to submit from SQL may still do so when the functions are those of a later step", () =>
  Effect.gen(function*() {
    const { url } = yield* freshDatabase
    const role = `deadman_shop_${randomUUID().slice(0, 8)}`
    yield* Effect.acquireRelease(
      on(
        url,
        `CREATE ROLE ${role}`,
        `GRANT USAGE ON SCHEMA deadman TO ${role}`,
        `GRANT EXECUTE ON FUNCTION deadman.submit(text, jsonb, jsonb) TO ${role}`,
        `UPDATE deadman.meta SET schema_version = ${versionBeforeDelays}`
      ),
      () => Effect.orDie(on(url, `DROP OWNED BY ${role}`, `DROP ROLE ${role}`))
    )
    yield* migrate(url)
    assert.strictEqual(yield* versionOf(url), schemaVersion)
    const rows = yield* on(
      url,
      `SET ROLE ${role}`,
      `SELECT deadman.submit('t', '1', '{"delay_ms": 5}') IS NOT NULL AS done`
    )
    assert.deepStrictEqual(rows, [{ done: true }])
  }).pipe(Effect.scoped))

const store = Layer.provideMerge(JobStorePostgres.layer({ wake: false, keyTtlMs: 60_000 }), Postgres.layer)

it.layer(store, { excludeTestServices: true, timeout: "2 minutes" })("beside processes of schema 2", (it) => {
  it.effect("they claim jobs with a time to start by, and what was started so does not expire", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const url = yield* Postgres.Url
      const send = yield* connected(url)
      const job = yield* Jobs.job({ type: yield* Jobs.freshType, startByMs: (yield* store.now) + 3_000 })
      const ended = yield* Jobs.job({ type: yield* Jobs.freshType, startByMs: job.startByMs! })
      yield* store.submit([job, ended], { atomic: false })
      const lease = randomUUID()
      const claimed = yield* send(SchemaTwo.claim, SchemaTwo.claimParams(lease, job.type))
      assert.deepStrictEqual(claimed.map(({ epoch, id }) => ({ epoch, id })), [{ epoch: 1, id: job.id }])
      const other = randomUUID()
      yield* send(SchemaTwo.claim, SchemaTwo.claimParams(other, ended.type))
      assert.lengthOf(yield* send(SchemaTwo.settle, [[ended.id], [1], [other]]), 1)

      yield* eventually("the time is over", Effect.map(store.now, (now) => now > job.startByMs!))
      const waiting = Rows.query("SELECT id FROM deadman.job WHERE expire_ms IS NOT NULL")
      assert.lengthOf(yield* waiting, 2)
      yield* store.abandon([LeaseId.make(lease)])
      assert.strictEqual((yield* store.expire(100)).jobs, 0)
      // Nothing of it is left to be looked at again.
      assert.lengthOf(yield* waiting, 0)
      const [found] = yield* store.get([job.id])
      assert.strictEqual(found?.state, "pending")
    }).pipe(Effect.scoped))

  it.effect("and one that came back from them is claimed after that time", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const send = yield* connected(yield* Postgres.Url)
      const job = yield* Jobs.job({ type: yield* Jobs.freshType, startByMs: (yield* store.now) + 3_000 })
      yield* store.submit([job], { atomic: false })
      const lease = randomUUID()
      assert.lengthOf(yield* send(SchemaTwo.claim, SchemaTwo.claimParams(lease, job.type)), 1)
      yield* eventually("the time is over", Effect.map(store.now, (now) => now > job.startByMs!))
      yield* store.abandon([LeaseId.make(lease)])
      const again = yield* store.claim({
        lease: yield* Jobs.freshLease,
        leaseMs: 60_000,
        worker: "ada",
        types: [job.type],
        limit: 10,
        freeSlots: 10,
        bytes: 1_000_000
      })
      assert.deepStrictEqual(again.map(({ deliveries, id }) => ({ deliveries, id })), [{ deliveries: 2, id: job.id }])
    }).pipe(Effect.scoped))
})
