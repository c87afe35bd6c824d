import { assert, it } from "@effect/vitest"
import { Effect, Layer, Random } from "effect"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import { Epoch } from "../../../src/domain/Claim.ts"
import { JobType, Queue } from "../../../src/domain/Job.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import { jobStates } from "../../../src/domain/JobState.ts"
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

const pick = <A>(items: ReadonlyArray<A>): Effect.Effect<A> =>
  Effect.map(Random.nextIntBetween(0, items.length), (n) => items[Math.min(n, items.length - 1)]!)

/** Does one thing that a process may do, to some of the jobs there are. */
const act = Effect.fnUntraced(function*(known: Array<JobId>) {
  const store = yield* JobStore
  const draw = yield* Random.nextIntBetween(0, 10)
  const id = known.length === 0 ? Ids.jobId() : yield* pick(known)
  if (draw < 2) {
    const delayed = yield* Random.nextBoolean
    const jobs = yield* Jobs.jobs(5, {
      type: yield* pick(types),
      queue: yield* pick(queues),
      runAtMs: delayed ? (yield* store.now) + 50 : null
    })
    yield* store.submit(jobs, { atomic: yield* Random.nextBoolean })
    known.push(...jobs.map(({ id }) => id))
  } else if (draw < 6) {
    const asked = yield* Steps.request({ type: types[0]! }, { types, limit: 8 })
    const claimed = yield* store.claim(asked)
    const fate = yield* Random.nextIntBetween(0, 4)
    if (fate === 0) {
      const lease = (yield* store.look).leases.find((record) => record.lease === asked.lease)
      const counted = yield* Random.nextBoolean
      yield* store.reclaim(lease === undefined ? [] : [{ lease: lease.lease, token: lease.token }], {
        counted,
        lossesMax: 2
      })
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
      yield* store.settle(settlements)
      yield* store.settle(settlements.slice(0, 2))
      yield* store.endLeases([asked.lease])
    }
  } else if (draw === 6) {
    yield* store.cancel(id)
  } else if (draw === 7) {
    yield* store.retry(id)
  } else if (draw === 8) {
    const as = Ids.jobId()
    yield* store.resubmit(id, as)
    known.push(as)
  } else {
    yield* store.promote(5)
    yield* store.announced((yield* store.deadLetters(5)).map(({ id }) => id))
    yield* store.prune({ completedMs: 100, deadMs: 100, limit: 5 })
    yield* store.counts
  }
})

it.layer(layer, { excludeTestServices: true, timeout: "60 seconds" })("JobStorePostgres", (it) => {
  it.effect("the tally says what is so, after any mixture of operations", () =>
    Effect.gen(function*() {
      const seed = "tally"
      const known: Array<JobId> = []
      yield* Effect.forEach(
        Array.from({ length: 4 }),
        () => Effect.forEach(Array.from({ length: 120 }), () => act(known), { discard: true }),
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
      // A mixture that never got anywhere would be true as well.
      assert.isAbove(truth.length, 3)
      assert.isAbove(known.length, 300)
    }), 60_000)
})
