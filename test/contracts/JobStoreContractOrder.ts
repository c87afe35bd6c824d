/** Laws of `JobStore`: the place in the order that a job has, however it became ready. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { lossBaseMs } from "../../src/domain/Backoff.ts"
import type { Claim } from "../../src/domain/Claim.ts"
import type { NewJob } from "../../src/domain/Job.ts"
import type { JobId } from "../../src/domain/JobId.ts"
import { JobStore, type JobStoreUnavailable } from "../../src/ports/JobStore.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Steps from "./JobStoreContractSteps.ts"

type Done<A> = Effect.Effect<A, JobStoreUnavailable, JobStore>

/** The ways into the store, which write their rows by statements of their own. */
const entrances: Readonly<Record<string, Effect.Effect<Partial<NewJob>>>> = {
  "a plain job": Effect.succeed({}),
  "a job with a key": Effect.map(Jobs.freshKey, (key) => ({ key: { key, fingerprint: "f" } })),
  "a job with a retention of its own": Effect.succeed({ retainMs: 60_000 })
}

export const orderLaws: Steps.Laws = (it, pass) => {
  const claimed = (then: (claim: Claim) => Done<unknown>) => (job: NewJob): Done<JobId> =>
    Effect.flatMap(Steps.held(pass, job), ({ claim }) => Effect.as(then(claim), job.id))

  const released = claimed((claim) => Steps.settled(claim, "release"))
  const abandoned = claimed(({ lease }) => Effect.flatMap(JobStore, (store) => store.abandon([lease])))
  const failed = claimed((claim) => Steps.settled(claim, "fail"))
  const again = claimed((claim) => Steps.settled(claim, "again"))

  /** What brings a job that was ready before back to where it can be claimed; answers under which id. */
  const comebacks: Readonly<Record<string, (job: NewJob) => Done<JobId>>> = {
    released,
    abandoned,
    failed,
    again,
    reclaimed: claimed(({ id, lease }) =>
      Effect.gen(function*() {
        const store = yield* JobStore
        yield* Steps.lapsed(lease)
        yield* pass(lossBaseMs + 1)
        yield* store.promoteIds([id])
      })
    ),
    retried: claimed((claim) =>
      Effect.andThen(
        Steps.settled(claim, "fail", { delayMs: 3_600_000 }),
        Effect.flatMap(JobStore, (store) => store.retry(claim.id))
      )
    ),
    resubmitted: ({ id }) =>
      Effect.gen(function*() {
        const store = yield* JobStore
        yield* store.cancel(id)
        const as = yield* Jobs.freshId
        assert.strictEqual((yield* store.resubmit(id, as))._tag, "Created")
        return as
      })
  }

  /** Whether `id` goes first of all that is ready of this type, before `older`. */
  const isFirst = Effect.fnUntraced(function*(id: JobId, older: NewJob, what: string) {
    const order = [...(yield* Steps.take(older, { limit: 1 })), ...(yield* Steps.take(older))]
    assert.deepStrictEqual(Steps.idsOf(order), [id, older.id], what)
  })

  it.effect("3: a priority counts whichever way a job has come in, also where it had to wait for its time", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      for (const [what, entrance] of Object.entries(entrances)) {
        const older = yield* Steps.submitted()
        const job = yield* Steps.submitted({ type: older.type, priority: 1, ...(yield* entrance) })
        yield* isFirst(job.id, older, what)
        const runAtMs = (yield* store.now) + 30
        const before = yield* Steps.submitted()
        const later = yield* Steps.submitted({ type: before.type, priority: 1, runAtMs, ...(yield* entrance) })
        yield* Steps.reached(pass, runAtMs)
        yield* store.promoteIds([later.id])
        yield* isFirst(later.id, before, `${what}, promoted`)
      }
    }))

  for (const [how, comeback] of Object.entries(comebacks)) {
    it.effect(`3: a priority counts also for a job that was ${how}`, () =>
      Effect.gen(function*() {
        const older = yield* Steps.submitted()
        const job = yield* Steps.submitted({ type: older.type, priority: 1 })
        yield* isFirst(yield* comeback(job), older, how)
      }))
  }

  /** Two of a type, of which the first was ready earlier. */
  const pair = Effect.gen(function*() {
    const older = yield* Steps.submitted()
    yield* pass(20)
    const newer = yield* Steps.submitted({ type: older.type })
    yield* pass(20)
    return { older, newer }
  })

  it.effect("6: what was handed back before it had run, or is asked for while it is ready, keeps its place", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const retried = ({ id }: NewJob) => Effect.as(store.retry(id), id)
      for (const [how, comeback] of Object.entries({ released, abandoned, retried })) {
        const { newer, older } = yield* pair
        yield* comeback(older)
        assert.deepStrictEqual(Steps.idsOf(yield* Steps.take(older)), [older.id, newer.id], how)
      }
    }))

  it.effect("6: what has failed, or asked to run again, goes behind what was ready before it is due", () =>
    Effect.gen(function*() {
      for (const [how, comeback] of Object.entries({ failed, again })) {
        const { newer, older } = yield* pair
        yield* comeback(older)
        assert.deepStrictEqual(Steps.idsOf(yield* Steps.take(older)), [newer.id, older.id], how)
      }
    }))
}
