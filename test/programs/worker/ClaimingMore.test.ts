/** What a worker does that was told, by a claim that brought less than asked for, that there may be more. */
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect } from "effect"
import { JobType } from "../../../src/domain/Job.ts"
import type { JobStore } from "../../../src/ports/JobStore.ts"
import * as Jobs from "../../support/Jobs.ts"
import { make, pass } from "../../support/WorkerWorld.ts"

/** A store whose claims take nothing and say that there may be more, so many times; and whether each was a glance. */
const telling = () => {
  const told = { glances: [] as Array<boolean>, times: 0 }
  const store = (store: JobStore["Service"]): JobStore["Service"] => ({
    ...store,
    claim: (request) =>
      Effect.suspend(() => {
        if (told.glances.length >= told.times) {
          return store.claim(request)
        }
        told.glances.push(request.glance === true)
        request.onMore?.()
        return Effect.succeed([])
      })
  })
  return { told, store }
}

describe("ClaimLoop, told that there may be more", () => {
  it.effect("asks again at once, and more and more rarely where that does not help", () =>
    Effect.gen(function*() {
      const { store, told } = telling()
      const world = yield* make({ store })
      yield* world.start({ noop: () => undefined }, { poll: Duration.minutes(1) })
      yield* pass(100)
      const run = Effect.fnUntraced(function*(times: number, ms: number) {
        told.glances.length = 0
        told.times = times
        const id = yield* world.submit("noop")
        yield* pass(ms, 1)
        return [told.glances.length, (yield* world.job(id)).state] as const
      })
      assert.deepStrictEqual(yield* run(1, 1), [1, "completed"])
      assert.deepStrictEqual(told.glances, [false])
      assert.deepStrictEqual(yield* run(4, 100), [4, "completed"])
      // Somebody may lock a job for minutes. After the first two a look is enough.
      const [asked] = yield* run(Infinity, 5_000)
      assert.isAtMost(asked, 14)
      assert.deepStrictEqual(told.glances.slice(0, 3), [false, false, true])
      told.times = 0
      yield* pass(9_000, 50)
      assert.strictEqual((yield* world.store.counts).byState.pending, 0)
    }))

  it.effect("asks the same again, also where messages arrive", () =>
    Effect.gen(function*() {
      const { store, told } = telling()
      const world = yield* make({ delivering: true, store })
      yield* world.start({ noop: () => undefined }, { poll: Duration.minutes(1) })
      yield* pass(100)
      const delivered = yield* world.submit("noop")
      yield* pass(100)
      assert.strictEqual((yield* world.job(delivered)).state, "completed")
      told.times = 4
      const job = yield* Jobs.job({ type: JobType.make("noop"), priority: 1 })
      yield* world.store.submit([job], { atomic: false })
      yield* world.transport.wake([{ _tag: "Ready" }])
      yield* pass(100, 1)
      assert.deepStrictEqual([told.glances.length, (yield* world.job(job.id)).state], [4, "completed"])
    }))
})
