import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import { countsSql, examineMax, listStatement } from "../../../src/adapters/postgres/store/Reads.ts"
import { mark } from "../../../src/adapters/postgres/store/Rows.ts"
import { JobType, Queue } from "../../../src/domain/Job.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import { JobStore, type ListRequest } from "../../../src/ports/JobStore.ts"
import * as Steps from "../../contracts/JobStoreContractSteps.ts"
import * as Clock from "../../support/Clock.ts"
import * as Ids from "../../support/Ids.ts"
import * as Pages from "../../support/Pages.ts"
import * as Plans from "../../support/Plans.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const layer = Layer.provideMerge(JobStorePostgres.layer({ wake: false, keyTtlMs: 60_000 }), Postgres.layer)

const fresh = (count: number) => Array.from({ length: count }, () => ({ id: Ids.jobId() }))

const walk = (request: Omit<ListRequest, "offset" | "before">) => Pages.walk(request, { pagesMax: 999 })

const idsOf = (jobs: ReadonlyArray<{ readonly id: JobId }>) => jobs.map(({ id }) => id)

it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })("JobStorePostgres, a crowd", (it) => {
  it.effect("a walk over 5,000 jobs shows each once, newest first, while others come", () =>
    Effect.gen(function*() {
      const there = fresh(5_000)
      yield* Rows.pending(there)
      const writer = yield* Effect.forkChild(Effect.forever(Effect.suspend(() => Rows.pending(fresh(20)))))
      const { jobs } = yield* walk({ limit: 100 })
      yield* Fiber.interrupt(writer)

      const ids = idsOf(jobs)
      assert.strictEqual(new Set(ids).size, ids.length)
      assert.deepStrictEqual(ids, ids.toSorted().toReversed())
      const seen = new Set(ids)
      assert.deepStrictEqual(idsOf(there).filter((id) => !seen.has(id)), [])
    }), 180_000)
})

it.layer(layer, { excludeTestServices: true })("JobStorePostgres, marks", (it) => {
  it.effect("the index of what has failed or is dead lets go of a job that runs again", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const marks = Effect.map(
        Rows.query(`SELECT id, mark::int AS mark FROM deadman.job`),
        (rows) => new Map(rows.map((row) => [row["id"], row["mark"]]))
      )
      const [claimed, retried] = yield* Steps.submittedAll(2)
      for (const job of [claimed!, retried!]) {
        yield* Steps.settled((yield* Steps.held(Clock.wait, job)).claim, "fail")
      }
      const before = yield* marks
      assert.deepStrictEqual([before.get(claimed!.id), before.get(retried!.id)], [mark.failed, mark.failed])
      yield* store.retry(retried!.id)
      yield* Steps.held(Clock.wait, claimed!)
      const after = yield* marks
      assert.deepStrictEqual([after.get(claimed!.id), after.get(retried!.id)], [null, null])
    }))
})

it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })("JobStorePostgres, lists", (it) => {
  const rare = fresh(3)
  const [failed, dead, running] = [fresh(3), fresh(3), fresh(3)]
  const crowd = fresh(2 * examineMax + 2_000)
  const type = JobType.make("rare")

  const prepared = Effect.gen(function*() {
    yield* Rows.pending(rare, "rare", "apart")
    yield* Rows.query(`UPDATE deadman.body SET tags = '{odd}' WHERE id = '${rare[1]!.id}'`)
    yield* Rows.pending([...failed, ...dead, ...running])
    yield* Rows.claim(idsOf(failed))
    yield* Rows.fail(idsOf(failed), 600_000)
    yield* Rows.claim(idsOf(running))
    yield* Rows.end(idsOf(dead).slice(0, 1), "dead")
    yield* Rows.end(idsOf(dead).slice(1), "dead", 0, true)
    yield* Rows.pending(crowd)
    yield* Rows.end(idsOf(crowd), "completed")
  })

  it.effect(
    "a filter that matches little makes short pages with a cursor, and misses nothing",
    () =>
      Effect.gen(function*() {
        yield* prepared
        const store = yield* JobStore
        const first = yield* store.list({ type, limit: 10, offset: 0 })
        assert.deepStrictEqual(first.jobs, [])
        assert.isNotNull(first.next)

        for (const filter of [{ type }, { queue: Queue.make("apart") }, { type, queue: Queue.make("apart") }]) {
          const { jobs, pages } = yield* walk({ ...filter, limit: 10 })
          assert.deepStrictEqual(idsOf(jobs), idsOf(rare).toReversed())
          assert.isAbove(pages, 2)
        }
        assert.deepStrictEqual(idsOf((yield* walk({ tag: "odd", limit: 10 })).jobs), [rare[1]!.id])
        assert.deepStrictEqual((yield* walk({ type: JobType.make("unheard-of"), limit: 10 })).jobs, [])
      }),
    180_000
  )

  it.effect("what failed, is dead or runs is found at once, behind a crowd of others", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      for (const [state, expected] of [["failed", failed], ["dead", dead], ["running", running]] as const) {
        const page = yield* store.list({ state, limit: 10, offset: 0 })
        assert.deepStrictEqual(idsOf(page.jobs), idsOf(expected).toReversed(), state)
        assert.isNull(page.next)
        const [last] = (yield* store.list({ state, limit: 1, offset: 2 })).jobs
        assert.strictEqual(last?.id, expected[0]!.id)
        assert.deepStrictEqual(idsOf((yield* walk({ state, limit: 1 })).jobs), idsOf(expected).toReversed())
      }
    }))

  it.effect("a deep offset is reached, and the pages behind it follow", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const newest = idsOf(crowd).toReversed()
      const page = yield* store.list({ limit: 5, offset: 11_000 })
      assert.deepStrictEqual(idsOf(page.jobs), newest.slice(11_000, 11_005))
      assert.strictEqual(page.next, newest[11_004])
      assert.deepStrictEqual((yield* store.list({ limit: 5, offset: 1_000_000 })).jobs, [])
    }))

  it.effect("a page of a table that was never analyzed costs the server little", () =>
    Effect.gen(function*() {
      const buffers = Effect.fnUntraced(function*(request: Omit<ListRequest, "offset" | "limit">) {
        const { params, text } = listStatement({ ...request, limit: 50, offset: 0 })
        return Plans.buffersOf(yield* Plans.explainAlone(text, params))
      })
      for (const analyzed of [false, true]) {
        if (analyzed) {
          yield* Rows.query(`ANALYZE deadman.job, deadman.body, deadman.lease`)
        }
        assert.isBelow(yield* buffers({}), 1_000)
        for (const state of ["failed", "dead", "running"] as const) {
          assert.isBelow(yield* buffers({ state }), 100, `${state}, analyzed: ${analyzed}`)
        }
        assert.isBelow(yield* buffers({ type }), 5_000)
      }
    }), 180_000)

  it.effect("the counts are those of the jobs, also after the tally was summed up", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const expected = { pending: 3, running: 3, failed: 3, completed: crowd.length, dead: 3 }
      assert.deepStrictEqual((yield* store.counts).byState, expected)
      yield* Rows.query(
        `INSERT INTO deadman.tally SELECT r.id, 0, s.n FROM deadman.route r, generate_series(1, 200) i,
           (VALUES (1), (-1)) s(n)`
      )
      assert.deepStrictEqual((yield* store.counts).byState, expected)
      const counts = yield* store.counts
      assert.deepStrictEqual(counts.byState, expected)
      assert.deepStrictEqual(counts.byType, { noop: 9 + crowd.length, rare: 3 })
      assert.deepStrictEqual(counts.byQueue, { default: 9 + crowd.length, apart: 3 })
      const [left] = yield* Rows.query(`SELECT count(*)::int AS n FROM deadman.tally`)
      assert.isBelow(left?.["n"] as number, 20)
    }))
})

it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })(
  "JobStorePostgres, the oldest of a crowd",
  (it) => {
    it.effect(
      "counts read one job of each route that has any, of 50,000 that are ready and past 3,000 other routes",
      () =>
        Effect.gen(function*() {
          yield* Rows.query(`ALTER TABLE deadman.job SET (autovacuum_enabled = false)`)
          yield* Rows.query(
            `INSERT INTO deadman.route (type, queue) SELECT 'none-' || n, 'default' FROM generate_series(1, 3000) n`
          )
          yield* Rows.query(
            `INSERT INTO deadman.tally
         SELECT r.id, v.state, v.n FROM deadman.route r CROSS JOIN (VALUES (3, 10), (0, 1), (0, -1)) v(state, n)`
          )
          for (const type of ["left", "right"]) {
            yield* Rows.many(25_000, { type })
            yield* Rows.query(`INSERT INTO deadman.tally SELECT id, 0, 25000 FROM deadman.route WHERE type = '${type}'`)
          }
          for (const statistics of ["none", "analyzed"]) {
            if (statistics === "analyzed") {
              yield* Rows.query(`ANALYZE deadman.job`)
            }
            const plan = yield* Plans.explainAlone(countsSql)
            const jobs = Plans.nodesOf(plan).filter((node) => node["Relation Name"] === "job")
            assert.deepStrictEqual(
              jobs.map((node) => [node["Node Type"], node["Actual Rows"], node["Actual Loops"]]),
              [["Index Scan", 1, 2]],
              statistics
            )
            const buffers = jobs.reduce((sum, node) => sum + Plans.buffersOf(node), 0)
            assert.isAtMost(buffers, 20, statistics)
          }
        }),
      180_000
    )
  }
)
