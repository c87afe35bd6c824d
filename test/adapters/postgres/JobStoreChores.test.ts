import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { Database, long, texts, uuids } from "../../../src/adapters/postgres/Database.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import { pruneJobsSql } from "../../../src/adapters/postgres/store/Chores.ts"
import { dropExpired } from "../../../src/adapters/postgres/store/SubmitSql.ts"
import * as Unleased from "../../../src/adapters/postgres/store/Unleased.ts"
import * as JobId from "../../../src/domain/JobId.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import { settlement } from "../../contracts/JobStoreContractSteps.ts"
import * as Ids from "../../support/Ids.ts"
import * as Plans from "../../support/Plans.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const keyTtlMs = 60_000

const layer = () => Layer.provideMerge(JobStorePostgres.layer({ wake: false, keyTtlMs }), Postgres.layer)

const fresh = (count: number) => Array.from({ length: count }, Ids.jobId)

const add = Effect.fnUntraced(function*(ids: ReadonlyArray<JobId.JobId>) {
  yield* Rows.pending(ids.map((id) => ({ id })))
})

/** All that there is of jobs, table by table. */
const rows = Effect.map(
  Rows.query(
    `SELECT (SELECT count(*)::int FROM deadman.job) AS job, (SELECT count(*)::int FROM deadman.body) AS body,
            (SELECT count(*)::int FROM deadman.journal) AS journal, (SELECT count(*)::int FROM deadman.key) AS key,
            (SELECT count(*)::int FROM deadman.effect) AS effect`
  ),
  ([row]) => row
)

const addTrails = (ids: ReadonlyArray<JobId.JobId>) =>
  Rows.query(
    `WITH x AS (SELECT id FROM unnest($1::uuid[]) x(id)),
     g AS (INSERT INTO deadman.journal (id, result) SELECT id, '1' FROM x),
     k AS (INSERT INTO deadman.key (key, job, fingerprint) SELECT 'key ' || id, id, 'f' FROM x)
     INSERT INTO deadman.effect (key, job, epoch, worker, at_ms) SELECT 'effect ' || id, id, 1, 'ada', 1 FROM x`,
    [uuids(ids)]
  )

const pruneAll = Effect.fnUntraced(function*(limit = 500, completedMs = 60_000, deadMs = 120_000) {
  const store = yield* JobStore
  const total = { jobs: 0, keys: 0, calls: 0 }
  let more = true
  while (more) {
    const pruned = yield* store.prune({ completedMs, deadMs, limit })
    assert.isAtMost(pruned.jobs, limit)
    total.jobs += pruned.jobs
    total.keys += pruned.keys
    total.calls += 1
    more = pruned.more
    assert.isBelow(total.calls, 200)
  }
  return total
})

it.layer(layer(), { excludeTestServices: true, timeout: "2 minutes" })("JobStorePostgres, pruning", (it) => {
  it.effect(
    "the tables level off under a steady flow, and nothing of a pruned job stays",
    () =>
      Effect.gen(function*() {
        const unfinished = fresh(50)
        yield* add(unfinished)
        let pruned = 0
        for (let round = 0; round < 8; round++) {
          const ids = fresh(400)
          yield* add(ids)
          yield* addTrails(ids)
          yield* Rows.end(ids.slice(0, 300), "completed", 90_000)
          yield* Rows.end(ids.slice(300), "dead", 150_000)
          pruned += (yield* pruneAll(150)).jobs
          assert.deepStrictEqual(yield* rows, { job: 50, body: 50, journal: 0, key: 0, effect: 0 })
        }
        assert.strictEqual(pruned, 8 * 400)
        assert.deepStrictEqual(yield* Rows.untallied, [])
        const store = yield* JobStore
        assert.lengthOf(yield* store.get(unfinished), 50)
      }),
    180_000
  )

  it.effect("what is kept for longer does not hide what lies behind it", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const [kept, over] = [fresh(5_000), fresh(30)]
      yield* add([...kept, ...over])
      yield* Rows.end(kept, "dead", 90_000)
      yield* Rows.end(over, "completed", 90_000)
      const first = yield* store.prune({ completedMs: 60_000, deadMs: 600_000, limit: 500 })
      assert.strictEqual(first.jobs, 0)
      assert.isTrue(first.more)
      const { calls, jobs } = yield* pruneAll(500, 60_000, 600_000)
      assert.strictEqual(jobs, 30)
      assert.isAbove(calls, 1)
      assert.lengthOf(yield* store.get(kept.slice(0, 100)), 100)
      yield* pruneAll(500, 60_000, 60_000)
      assert.lengthOf(yield* store.get(kept), 0)
    }), 180_000)

  it.effect("two that prune at once delete each job once, and the tally stays true", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const ids = fresh(1_500)
      yield* add(ids)
      yield* Rows.end(ids, "completed", 90_000)
      const all = yield* Effect.forEach(
        Array.from({ length: 4 }),
        () =>
          Effect.forEach(
            Array.from({ length: 4 }),
            () => store.prune({ completedMs: 60_000, deadMs: 60_000, limit: 200 })
          ),
        { concurrency: "unbounded" }
      )
      const rest = yield* pruneAll()
      const pruned = all.flat().reduce((sum, { jobs }) => sum + jobs, rest.jobs)
      assert.strictEqual(pruned, 1_500)
      assert.deepStrictEqual(yield* Rows.untallied, [])
    }), 180_000)

  it.effect("a key goes when its time is over, though its job stays; a key without a job goes at once", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const [waits, alive, expired, orphan] = [Ids.jobId(), Ids.jobId(), Ids.jobId(), Ids.jobId()]
      yield* add([waits, alive, expired])
      yield* Rows.end([alive], "completed", keyTtlMs - 20_000)
      yield* Rows.end([expired], "completed", keyTtlMs + 20_000)
      yield* addTrails([waits, alive, expired, orphan])
      const { keys } = yield* pruneAll(500, 600_000, 600_000)
      assert.strictEqual(keys, 2)
      const left = yield* Rows.query(`SELECT job FROM deadman.key ORDER BY job`)
      assert.deepStrictEqual(left.map((row) => row["job"]), [waits, alive])
      // Its key lives: the job stays although it has been kept long enough.
      yield* pruneAll(500, 0, 0)
      assert.deepStrictEqual((yield* store.get([waits, alive, expired])).map(({ id }) => id).toSorted(), [waits, alive])
    }))

  it.effect("a key that another job has taken over is not dropped for the sake of the one before", () =>
    Effect.gen(function*() {
      const [before, now] = [Ids.jobId(), Ids.jobId()]
      yield* add([before, now])
      yield* Rows.end([before], "completed", keyTtlMs + 20_000)
      const keep = (job: JobId.JobId) =>
        Rows.query(
          `INSERT INTO deadman.key (key, job, fingerprint) VALUES ('handed on', $1::uuid, 'f')
           ON CONFLICT (key) DO UPDATE SET job = EXCLUDED.job`,
          [job]
        )
      const drop = Rows.query(dropExpired, [texts(["handed on"]), uuids([before]), String(keyTtlMs)])
      const left = Rows.query(`SELECT job FROM deadman.key WHERE key = 'handed on'`)
      yield* keep(now)
      yield* drop
      assert.deepStrictEqual(yield* left, [{ job: now }])
      yield* keep(before)
      yield* drop
      assert.deepStrictEqual(yield* left, [])
    }))

  it.effect("many keys are walked in bounded steps", () =>
    Effect.gen(function*() {
      const ids = fresh(5_000)
      yield* Rows.query(
        `INSERT INTO deadman.key (key, job, fingerprint) SELECT k, j, 'f' FROM unnest($1::text[], $2::uuid[]) x(k, j)`,
        [texts(ids.map((id) => `flood ${id}`)), uuids(ids)]
      )
      const { calls, keys } = yield* pruneAll(1_000)
      assert.strictEqual(keys, 5_000)
      assert.isAbove(calls, 4)
    }))
})

it.layer(layer(), { excludeTestServices: true, timeout: "2 minutes" })(
  "JobStorePostgres, ids of a wrong clock",
  (it) => {
    it.effect("a walk ends where nothing is old enough, and now and then goes to the end", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const ahead = (count: number, from: number) =>
          Array.from({ length: count }, (_, n) => JobId.make(from + n, new Uint8Array(10)))
        const over = ahead(3, 9_100_000_000_000)
        yield* pruneAll()
        yield* add([...ahead(2_100, 9_000_000_000_000), ...over])
        yield* Rows.end(over, "completed", 90_000)
        const first = yield* store.prune({ completedMs: 60_000, deadMs: 60_000, limit: 100 })
        assert.deepStrictEqual(first, { jobs: 0, keys: 0, more: false })
        let jobs = 0
        for (let walk = 0; walk < 16; walk++) {
          jobs += (yield* pruneAll()).jobs
        }
        assert.strictEqual(jobs, 3)
      }))
  }
)

it.layer(layer(), { excludeTestServices: true, timeout: "60 seconds" })(
  "JobStorePostgres, running jobs without a lease",
  (it) => {
    /** Id, state, losses and lost epochs, of all. */
    const found = Rows.query(
      `SELECT id, state::int AS state, losses::int AS losses, lease IS NULL AS free, wait_ms <= deadman.now_ms() AS due,
              lost_epochs FROM deadman.job ORDER BY id`
    )
    const runs = { state: 1, losses: 0, free: false, due: null, lost_epochs: null }

    it.effect("what two walks have seen is taken back, wherever it stands, and nothing else is", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        // Where a walk does not come to unless it goes to the end: as young as running jobs mostly are.
        const [orphan, ...younger] = Array.from(
          { length: 2_101 },
          (_, n) => JobId.make(9_000_000_000_000 - n, new Uint8Array(10))
        ) as [JobId.JobId, ...Array<JobId.JobId>]
        yield* add(younger)
        const [healthy, ended, waiting] = [Ids.jobId(), Ids.jobId(), Ids.jobId()]
        yield* add([orphan, healthy, ended, waiting])
        const [claim] = yield* Rows.claim([orphan])
        yield* Rows.claim([healthy])
        yield* Rows.claim([ended])
        yield* Rows.query(`DELETE FROM deadman.lease WHERE id = $1::uuid`, [claim!.lease])
        const state = Effect.map(found, (rows) => new Map(rows.map(({ id, ...row }) => [String(id), row])))
        yield* pruneAll()
        assert.deepStrictEqual((yield* state).get(orphan), runs, "seen once")
        yield* Rows.end([ended], "completed")
        yield* pruneAll()
        const after = yield* state
        assert.deepStrictEqual(after.get(orphan), { state: 0, losses: 1, free: true, due: true, lost_epochs: [1] })
        assert.deepStrictEqual(after.get(healthy), runs)
        assert.strictEqual(after.get(ended)?.["state"], 3)
        assert.deepStrictEqual(after.get(waiting), { ...runs, state: 0, free: true })
        const [job] = yield* store.get([orphan])
        assert.deepInclude(job?.events[0], { kind: "lease_lost", epoch: 1, worker: "ada" })
        assert.deepStrictEqual(yield* Rows.untallied, [])
        // Whoever held it is too late, and the job runs again.
        assert.deepStrictEqual(
          yield* store.settle([settlement(claim!, "complete", { result: null })]),
          [{ _tag: "Stale", currentEpoch: 1 }]
        )
        yield* store.promoteIds([orphan])
        assert.deepStrictEqual((yield* Rows.claim([orphan])).map(({ epoch }) => epoch), [2])
      }))

    it.effect("one that was settled, or has a lease again, before the second walk is left alone", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const [settled, restored] = [Ids.jobId(), Ids.jobId()]
        yield* add([settled, restored])
        const [first] = yield* Rows.claim([settled])
        const [second] = yield* Rows.claim([restored])
        yield* Rows.query(`DELETE FROM deadman.lease`)
        yield* pruneAll()
        yield* store.settle([settlement(first!, "complete", { result: null })])
        yield* Rows.leases([second!.lease], 5_000, [restored])
        yield* pruneAll()
        yield* pruneAll()
        const left = yield* Rows.query(
          `SELECT state::int AS state, losses::int AS losses FROM deadman.job WHERE id = ANY ($1::uuid[]) ORDER BY id`,
          [uuids([settled, restored])]
        )
        assert.deepStrictEqual(left, [{ state: 3, losses: 0 }, { state: 1, losses: 0 }])
        // Also where it comes back after the second look.
        const { found } = Unleased.make(yield* Database, false)
        const seen = [`${restored}/${second!.lease}`]
        yield* found(seen, 1)
        yield* found(seen, 2)
        assert.deepStrictEqual(
          yield* Rows.query(`SELECT state::int AS state FROM deadman.job WHERE id = $1::uuid`, [restored]),
          [{ state: 1 }]
        )
      }))
  }
)

it.layer(layer(), { excludeTestServices: true, timeout: "2 minutes" })("JobStorePostgres, a large table", (it) => {
  it.effect("pruning walks its index, also where it was never analyzed", () =>
    Effect.gen(function*() {
      // A table of this size is worth an index to a planner that takes a third of it for wanted; a smaller one is read.
      const route = yield* Rows.route()
      for (let n = 0; n < 4; n++) {
        yield* Rows.query(
          `INSERT INTO deadman.job (id, run_at_ms, route, bytes)
           SELECT (lpad(to_hex($2::int * 100000 + g), 32, '0'))::uuid, 1, $1::int, 2 FROM generate_series(1, 50000) g`,
          [route, n]
        )
      }
      const plan = yield* Plans.explainAlone(
        pruneJobsSql,
        ["00000000-0000-0000-0000-000000000000", 2_000, 500, long(0), long(0), long(0)]
      )
      const scans = Plans.nodesOf(plan).filter((node) => node["Relation Name"] === "job")
      assert.isNotEmpty(scans)
      assert.isAtMost(Math.max(...scans.map((node) => node["Actual Rows"])), 2_000)
    }), 180_000)
})
