/** Laws of `JobStore`: dead letters, and what is deleted in the end. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { NewJob } from "../../src/domain/Job.ts"
import { JobStore } from "../../src/ports/JobStore.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Steps from "./JobStoreContractSteps.ts"

const hour = 3_600_000

const letterOf = Effect.fnUntraced(function*({ id }: Pick<NewJob, "id">) {
  const store = yield* JobStore
  const letters = yield* store.deadLetters(10_000)
  return letters.find((letter) => letter.id === id) ?? null
})

/** Prunes until there is nothing more to prune at once. */
const pruneAll = Effect.fnUntraced(function*(options: { readonly completedMs: number; readonly deadMs: number }) {
  const store = yield* JobStore
  for (let round = 0; round < 100; round++) {
    const { more } = yield* store.prune({ ...options, limit: 1_000 })
    if (!more) return
  }
  assert.fail("there is always more to prune")
})

export const retentionLaws: Steps.Laws = (it, pass) => {
  const completed = Effect.fnUntraced(function*(change: Partial<NewJob> = {}) {
    const job = yield* Steps.submitted(change)
    yield* Steps.settled((yield* Steps.held(pass, job)).claim, "complete")
    return job
  })

  it.effect("13: a job that is dead is announced until its announcement is told", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const [cancelled, exhausted, crashed, cutOff] = yield* Steps.submittedAll(4)
      assert.isNull(yield* letterOf(cancelled!))
      yield* store.cancel(cancelled!.id)
      yield* Steps.settled((yield* Steps.held(pass, exhausted!)).claim, "die")
      yield* Steps.lost(pass, crashed!, 1, { counted: true, lossesMax: 1 })
      yield* Steps.held(pass, cutOff!)
      yield* store.cancel(cutOff!.id)
      const jobs = [cancelled!, exhausted!, crashed!, cutOff!]

      const first = yield* Effect.forEach(jobs, letterOf)
      const second = yield* Effect.forEach(jobs, letterOf)

      const reasons = ["cancelled", "attempts_exhausted", "crash_loop", "cancelled"] as const
      for (const [index, job] of jobs.entries()) {
        const { finishedAtMs } = yield* Steps.read(job.id)
        assert.deepStrictEqual(first[index], {
          id: job.id,
          type: job.type,
          queue: job.queue,
          reason: reasons[index]!,
          attempts: index === 1 ? 1 : 0,
          diedAtMs: finishedAtMs!
        })
      }
      assert.deepStrictEqual(second, first)
      yield* store.announced([cancelled!.id, crashed!.id, yield* Jobs.freshId])
      const third = yield* Effect.forEach(jobs, letterOf)
      assert.deepStrictEqual(third.map((letter) => letter !== null), [false, true, false, true])
      yield* store.announced(jobs.map(({ id }) => id))
      yield* store.announced([])
      assert.deepStrictEqual(yield* Effect.forEach(jobs, letterOf), [null, null, null, null])
      assert.include(yield* Steps.read(crashed!.id), { state: "dead", reason: "crash_loop" })
    }))

  it.effect("13: deadLetters takes at most its limit", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(3)
      yield* Effect.forEach(jobs, ({ id }) => store.cancel(id))

      assert.lengthOf(yield* store.deadLetters(2), 2)
    }))

  it.effect("13: a completed job is not announced, and being told so of others changes nothing", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const done = yield* completed()
      const waiting = yield* Steps.submitted()

      assert.isNull(yield* letterOf(done))
      yield* store.announced([waiting.id])
      yield* store.cancel(waiting.id)
      assert.isNotNull(yield* letterOf(waiting))
    }))

  it.effect("prune deletes what is final for longer than it is kept, and nothing else", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const done = yield* completed()
      const dead = yield* Steps.submitted()
      yield* store.cancel(dead.id)
      yield* store.announced([dead.id])
      const [pending, running, failed] = yield* Steps.submittedAll(3)
      yield* Steps.held(pass, running!)
      yield* Steps.settled((yield* Steps.held(pass, failed!)).claim, "fail", { delayMs: hour })
      yield* pass(50)
      const all = [done.id, dead.id, pending!.id, running!.id, failed!.id]

      yield* pruneAll({ completedMs: hour, deadMs: hour })
      assert.lengthOf(yield* store.get(all), 5)
      yield* pruneAll({ completedMs: 30, deadMs: hour })
      assert.deepStrictEqual(Steps.sortedIds(yield* store.get(all)), all.slice(1).toSorted())
      yield* pruneAll({ completedMs: hour, deadMs: 30 })
      assert.deepStrictEqual(Steps.sortedIds(yield* store.get(all)), all.slice(2).toSorted())
      const left = yield* store.list({ type: done.type, limit: 10, offset: 0 })
      assert.deepStrictEqual(left.jobs, [])
    }))

  it.effect("prune counts what it deletes, and says whether there is more", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      yield* pass(10)
      yield* pruneAll({ completedMs: 0, deadMs: 0 })
      const type = yield* Jobs.freshType
      yield* Effect.forEach(Array.from({ length: 5 }), () => completed({ type }))
      yield* pass(10)

      let deleted = 0
      for (let round = 0; round < 20 && deleted < 5; round++) {
        const { jobs } = yield* store.prune({ completedMs: 5, deadMs: hour, limit: 2 })
        assert.isAtMost(jobs, 2)
        deleted += jobs
      }

      assert.strictEqual(deleted, 5)
      yield* Steps.eventually(
        pass,
        "the counts have followed",
        Effect.map(store.counts, ({ byType }) => (byType[type] ?? 0) === 0 ? true : null)
      )
    }))

  it.effect("13: prune keeps a dead job until it is announced", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted()
      yield* store.cancel(job.id)
      yield* pass(20)
      yield* pruneAll({ completedMs: 0, deadMs: 0 })
      assert.isNotNull(yield* letterOf(job))
      yield* store.announced([job.id])

      yield* pruneAll({ completedMs: 0, deadMs: 0 })

      assert.lengthOf(yield* store.get([job.id]), 0)
    }))

  it.effect("2: prune keeps a job as long as its key lives", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const key = { key: yield* Jobs.freshKey, fingerprint: "f" }
      const job = yield* completed({ key })
      yield* pass(20)

      yield* pruneAll({ completedMs: 0, deadMs: 0 })

      assert.strictEqual((yield* Steps.read(job.id)).state, "completed")
      const { answers } = yield* store.submit([yield* Jobs.job({ key })], { atomic: false })
      assert.deepStrictEqual(answers, [{ _tag: "Replayed", id: job.id }])
    }))

  it.effect("6: an outcome for a job that was pruned is stale and harms nothing", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted()
      const { claim } = yield* Steps.held(pass, job)
      yield* Steps.settled(claim, "complete")
      yield* pass(20)
      yield* pruneAll({ completedMs: 0, deadMs: 0 })

      assert.deepStrictEqual(yield* Steps.settle(claim, "complete"), { _tag: "Stale", currentEpoch: 0 })
    }))
}
