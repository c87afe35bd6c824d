/** Laws of `JobStore`: a time to start by, and a retention of a job's own. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { NewJob } from "../../src/domain/Job.ts"
import { JobStore, keptLeastMs } from "../../src/ports/JobStore.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Steps from "./JobStoreContractSteps.ts"

const hour = 3_600_000

/** In so many milliseconds by the store's clock. */
const inMs = (ms: number) => Effect.flatMap(JobStore, (store) => Effect.map(store.now, (now) => now + ms))

const expireAll = Effect.flatMap(JobStore, (store) => store.expire(1_000))

/** Prunes until there is nothing more to prune at once. */
const pruneAll = Effect.fnUntraced(function*(
  options: { readonly completedMs: number; readonly deadMs: number; readonly leastMs?: number }
) {
  const store = yield* JobStore
  for (let round = 0; round < 100; round++) {
    const { more } = yield* store.prune({ leastMs: 0, ...options, limit: 1_000 })
    if (!more) return
  }
  assert.fail("there is always more to prune")
})

export const termLaws: Steps.Laws = (it, pass) => {
  /** Waits until its own time is over, where that of the store is long. */
  const pruned = ({ id }: Pick<NewJob, "id">) =>
    Steps.eventually(
      pass,
      "it is gone",
      Effect.gen(function*() {
        const store = yield* JobStore
        yield* pruneAll({ completedMs: hour, deadMs: hour })
        return (yield* store.get([id])).length === 0 ? true : null
      })
    )

  const completed = Effect.fnUntraced(function*(change: Partial<NewJob> = {}) {
    const job = yield* Steps.submitted(change)
    yield* Steps.settled((yield* Steps.held(pass, job)).claim, "complete")
    return job
  })

  it.effect("18: a job that nobody claimed in time is claimed by nobody, and is dead as expired", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const startByMs = yield* inMs(150)
      const late = yield* Steps.submitted({ startByMs })
      const waits = yield* Steps.submitted({ startByMs, runAtMs: startByMs })
      const early = yield* Steps.submitted({ startByMs: yield* inMs(hour), type: late.type })
      yield* Steps.eventually(pass, "the time is over", Effect.map(store.now, (now) => now > startByMs ? true : null))
      yield* store.promoteIds([waits.id])

      const { claimed } = yield* store.claimIds({
        ...(yield* Steps.request(late, { types: [late.type, waits.type] })),
        ids: [late.id, waits.id]
      })
      const taken = [...(yield* Steps.take(late)), ...(yield* Steps.take(waits))]
      const before = yield* Steps.read(late.id)
      const { jobs, nextInMs } = yield* expireAll

      assert.deepStrictEqual([claimed, Steps.idsOf(taken)], [[], [early.id]])
      assert.include(before, { state: "pending", reason: null, startByMs })
      assert.isAtLeast(jobs, 2)
      assert.isTrue(nextInMs === null || nextInMs <= hour)
      for (const { id } of [late, waits]) {
        const job = yield* Steps.read(id)
        assert.include(job, { state: "dead", reason: "expired", attempts: 0, deliveries: 0, startByMs })
        assert.isAtLeast(job.finishedAtMs ?? 0, startByMs)
      }
      const letters = yield* store.deadLetters(10_000)
      assert.strictEqual(letters.find(({ id }) => id === late.id)?.reason, "expired")
      assert.strictEqual((yield* Steps.read(early.id)).state, "running")
    }))

  it.effect("18: expire takes at most its limit, and says how long until the next one", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      yield* expireAll
      yield* Steps.submittedAll(3, { startByMs: 1 })
      yield* Steps.submitted({ startByMs: yield* inMs(2_000) })

      const first = yield* store.expire(2)
      const second = yield* store.expire(10)
      const third = yield* store.expire(10)

      assert.deepStrictEqual([first.jobs, second.jobs, third.jobs], [2, 1, 0])
      assert.isAtMost(second.nextInMs ?? hour, 2_000)
    }))

  it.effect("18: what was claimed once does not expire, however it came back", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const startByMs = yield* inMs(5_000)
      const jobs = yield* Steps.submittedAll(6, { startByMs })
      const [failed, released, lost, running, done, dead] = jobs as [NewJob, NewJob, NewJob, NewJob, NewJob, NewJob]
      yield* Steps.settled((yield* Steps.held(pass, failed)).claim, "fail", { delayMs: 0 })
      yield* Steps.settled((yield* Steps.held(pass, released)).claim, "release")
      yield* Steps.lost(pass, lost, 1)
      yield* Steps.held(pass, running)
      yield* Steps.settled((yield* Steps.held(pass, done)).claim, "complete")
      yield* Steps.settled((yield* Steps.held(pass, dead)).claim, "die")
      yield* Steps.eventually(pass, "the time is over", Effect.map(store.now, (now) => now > startByMs ? true : null))
      yield* expireAll

      const states = yield* Effect.forEach(jobs, ({ id }) => Effect.map(Steps.read(id), ({ state }) => state))
      assert.deepStrictEqual(states, ["failed", "pending", "pending", "running", "completed", "dead"])
      assert.strictEqual((yield* Steps.read(dead.id)).reason, "attempts_exhausted")
      yield* Effect.forEach([failed, released, lost], (job) => Steps.held(pass, job))
    }))

  it.effect("18: a job that is cancelled does not expire as well", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted({ startByMs: 1 })
      yield* store.cancel(job.id)
      yield* expireAll

      assert.include(yield* Steps.read(job.id), { state: "dead", reason: "cancelled" })
    }))

  it.effect("18: a retention of its own is what a job is kept for, whatever the others are", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const short = yield* completed({ retainMs: 0 })
      const long = yield* completed({ retainMs: hour })
      const again = { ...long, id: yield* Jobs.freshId }
      yield* store.resubmit(long.id, again.id)
      yield* Steps.settled((yield* Steps.held(pass, again)).claim, "complete")
      const plain = yield* completed()
      const dead = yield* Steps.submitted({ retainMs: 0 })
      yield* store.cancel(dead.id)
      const pending = yield* Steps.submitted({ retainMs: 0 })
      const all = [short.id, long.id, again.id, plain.id, dead.id, pending.id]
      yield* pass(50)

      yield* pruneAll({ completedMs: hour, deadMs: hour })
      const first = Steps.sortedIds(yield* store.get(all))
      yield* store.announced([dead.id])
      yield* pruneAll({ completedMs: 20, deadMs: 20 })
      const second = Steps.sortedIds(yield* store.get(all))

      // A dead one goes when it was announced, and not before.
      assert.deepStrictEqual(first, [long.id, again.id, plain.id, dead.id, pending.id].toSorted())
      assert.deepStrictEqual(second, [long.id, again.id, pending.id].toSorted())
      assert.strictEqual((yield* Steps.read(long.id)).retainMs, hour)
    }))

  it.effect("3, 18: a submit that is sent again finds the job that has ended since, however short it is kept", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Jobs.job({ type: yield* Jobs.freshType, retainMs: 0 })
      const first = (yield* store.submit([job], { atomic: false })).answers
      yield* Steps.settled((yield* Steps.held(pass, job)).claim, "complete")
      yield* pass(50)
      yield* pruneAll({ completedMs: 0, deadMs: 0, leastMs: keptLeastMs })
      yield* store.prune({ completedMs: 0, deadMs: 0, limit: 1_000 })

      // The answer was lost.
      assert.deepStrictEqual((yield* store.submit([job], { atomic: false })).answers, first)
      assert.include(yield* Steps.read(job.id), { state: "completed", deliveries: 1 })
      yield* pruneAll({ completedMs: hour, deadMs: hour })
      assert.deepStrictEqual(yield* store.get([job.id]), [])
    }))

  it.effect("18: a retention counts from the end of the job", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted({ retainMs: 1_500 })
      const { claim } = yield* Steps.held(pass, job)
      yield* pass(1_600)
      yield* Steps.settled(claim, "complete")
      yield* pruneAll({ completedMs: hour, deadMs: hour })
      assert.lengthOf(yield* store.get([job.id]), 1)
      yield* pruned(job)
    }))

  it.effect("17, 18: a job is kept for the window in which it is unique, and no longer", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const unique = { fields: null, window_ms: 1_500, states: ["completed"], on_conflict: "skip" } as const
      const job = yield* completed({ retainMs: 0, unique })
      yield* pass(20)
      yield* pruneAll({ completedMs: 0, deadMs: 0 })
      const { answers } = yield* store.submit([yield* Jobs.job({ type: job.type, unique })], { atomic: false })
      assert.deepStrictEqual(answers, [{ _tag: "Skipped", id: job.id }])
      yield* pruned(job)
    }))

  it.effect("2, 18: a refused entry with terms leaves the others of its batch alone", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Jobs.jobs(9, { type: yield* Jobs.freshType, retainMs: 1_000 })
      const batch = jobs.map((job, index) => index === 4 ? { ...job, payload: `{"a":"\\u0000"}` } : job)

      const { answers } = yield* store.submit(batch, { atomic: false })

      assert.deepStrictEqual(
        answers.map(({ _tag }) => _tag),
        jobs.map((_, index) => index === 4 ? "Refused" : "Created")
      )
      assert.lengthOf(yield* store.get(jobs.map(({ id }) => id)), 8)
    }))
}
