import { assert, it } from "@effect/vitest"
import { Effect, Layer, Random } from "effect"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import { Epoch } from "../../../src/domain/Claim.ts"
import { JobType, type NewJob, Queue } from "../../../src/domain/Job.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import { type JobState, jobStates } from "../../../src/domain/JobState.ts"
import type { Unique } from "../../../src/domain/Unique.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import * as Steps from "../../contracts/JobStoreContractSteps.ts"
import * as Ids from "../../support/Ids.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const layer = Layer.provideMerge(JobStorePostgres.layer({ wake: true, keyTtlMs: 0 }), Postgres.layer)

const types = ["a", "b", "c"].map((name) => JobType.make(name))
const queues = ["left", "right"].map((name) => Queue.make(name))
const settleSteps = ["complete", "fail", "die", "release", "again"] as const

const unique: Unique = { fields: null, window_ms: null, states: ["pending", "running", "failed"], on_conflict: "skip" }

const terms: ReadonlyArray<{ readonly expires: boolean; readonly change: Partial<NewJob> }> = [
  { expires: false, change: {} },
  { expires: false, change: {} },
  { expires: true, change: { retainMs: 100 } },
  { expires: true, change: { unique } },
  { expires: false, change: { unique: { ...unique, on_conflict: "replace" } } }
]

const pick = <A>(items: ReadonlyArray<A>): Effect.Effect<A> =>
  Effect.map(Random.nextIntBetween(0, items.length), (n) => items[Math.min(n, items.length - 1)]!)

/** Does one thing that a process may do, to some of the jobs there are. */
const act = Effect.fnUntraced(function*(known: Array<JobId>, done: Map<string, number>) {
  const store = yield* JobStore
  const did = (what: string, n = 1) => done.set(what, (done.get(what) ?? 0) + n)
  const draw = yield* Random.nextIntBetween(0, 10)
  const id = known.length === 0 ? Ids.jobId() : yield* pick(known)
  if (draw < 2) {
    const delayed = yield* Random.nextBoolean
    const nowMs = yield* store.now
    const [type, queue] = [yield* pick(types), yield* pick(queues)]
    const jobs = yield* Effect.forEach(
      Array.from({ length: 5 }),
      () =>
        Effect.flatMap(pick(terms), (own) =>
          Effect.flatMap(pick(["1", "2", "3"]), (payload) =>
            Jobs.job({
              type,
              queue,
              payload,
              runAtMs: delayed ? nowMs + 50 : null,
              startByMs: own.expires ? nowMs + 100 : null,
              ...own.change
            })))
    )
    const { answers } = yield* store.submit(jobs, { atomic: yield* Random.nextBoolean })
    did("skip", answers.filter(({ _tag }) => _tag === "Skipped").length)
    known.push(...jobs.map(({ id }) => id))
  } else if (draw < 6) {
    const asked = yield* Steps.request({ type: types[0]! }, { types, limit: 8 })
    const claimed = yield* store.claim(asked)
    yield* store.claim(asked)
    const fate = yield* Random.nextIntBetween(0, 4)
    if (fate === 0) {
      const lease = (yield* store.look).leases.find((record) => record.lease === asked.lease)
      const counted = yield* Random.nextBoolean
      const reclaimed = yield* store.reclaim(lease === undefined ? [] : [{ lease: lease.lease, token: lease.token }], {
        counted,
        lossesMax: 2
      })
      did("reclaim", reclaimed.filter(({ _tag }) => _tag === "Reclaimed").length)
    } else if (fate === 1) {
      yield* store.abandon([asked.lease])
    } else {
      const settlements = yield* Effect.forEach(
        claimed,
        ({ epoch, id }) =>
          Effect.map(
            pick(settleSteps),
            (step) => Steps.settlement({ id, epoch: Epoch.make(epoch), lease: asked.lease }, step, { delayMs: 20 })
          )
      )
      did("settle", (yield* store.settle(settlements)).filter(({ _tag }) => _tag === "Settled").length)
      yield* store.settle(settlements.slice(0, 2))
      yield* store.endLeases([asked.lease])
    }
  } else if (draw === 6) {
    did((yield* store.cancel(id))._tag)
  } else if (draw === 7) {
    did((yield* store.retry(id))._tag)
  } else if (draw === 8) {
    const as = Ids.jobId()
    const { jobs: [ended] } = yield* store.list({
      state: yield* pick<JobState>(["completed", "dead"]),
      limit: 1,
      offset: 0
    })
    did(`resubmit ${(yield* store.resubmit(ended?.id ?? id, as))._tag}`)
    known.push(as)
  } else {
    did("promote", (yield* store.promote(5)).jobs.length)
    yield* store.announced((yield* store.deadLetters(5)).map(({ id }) => id))
    did("expire", (yield* store.expire(5)).jobs)
    did("prune", (yield* store.prune({ completedMs: 300, deadMs: 300, limit: 5 })).jobs)
    yield* store.counts
  }
})

it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })("JobStorePostgres", (it) => {
  it.effect("the tally says what is so, after any mixture of operations", () =>
    Effect.gen(function*() {
      const seed = "tally"
      const known: Array<JobId> = []
      const done = new Map<string, number>()
      yield* Effect.forEach(
        Array.from({ length: 6 }),
        () => Effect.forEach(Array.from({ length: 80 }), () => act(known, done), { discard: true }),
        { concurrency: "unbounded", discard: true }
      ).pipe(Random.withSeed(seed))

      assert.deepStrictEqual(yield* Rows.untallied, [])
      const store = yield* JobStore
      const { byState } = yield* store.counts
      const truth = yield* Rows.query(`SELECT state, count(*)::int AS n FROM deadman.job GROUP BY state ORDER BY state`)
      assert.deepStrictEqual(
        jobStates.map((state) => byState[state]),
        jobStates.map((_, code) => Number(truth.find((row) => row["state"] === code)?.["n"] ?? 0))
      )
      // One order of locks everywhere: whoever waits does not wait in a circle.
      const [server] = yield* Rows.query(
        `SELECT deadlocks::int AS n FROM pg_stat_database WHERE datname = current_database()`
      )
      assert.strictEqual(server?.["n"], 0)
      // A mixture that never got anywhere would be true as well.
      for (
        const what of [
          "reclaim",
          "settle",
          "Cancelled",
          "Rebooked",
          "resubmit Created",
          "promote",
          "expire",
          "skip",
          "prune"
        ]
      ) {
        assert.isAbove(done.get(what) ?? 0, 0, what)
      }
    }), 180_000)
})
