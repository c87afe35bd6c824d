/** What a steady flow of urgent jobs leaves to the others. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { Queue, queueDefault } from "../../../src/domain/Job.ts"
import * as Rank from "../../../src/domain/Rank.ts"
import { make, pass } from "../../support/WorkerWorld.ts"

const strict = Queue.make("strict")

/** Four slots of 100 ms at nine tenths of what they can do, for `ms`; 40 low jobs are there from the start. */
const flooded = Effect.fnUntraced(function*(queue: Queue, stepMs: number, ms: number) {
  const world = yield* make()
  yield* world.queues.put(queue, { stepMs })
  const low = yield* Effect.forEach(Array.from({ length: 40 }), () => world.submit("work", { queue }))
  yield* world.start({ work: () => Effect.sleep(100) }, { slots: 4 })
  const done = () =>
    Effect.map(Effect.forEach(low, world.job), (jobs) => jobs.filter(({ state }) => state === "completed").length)
  let doneMs: number | null = null
  for (let passed = 0; passed < ms; passed += 1_000) {
    for (let n = 0; n < 36; n++) {
      yield* world.submit("work", { queue, priority: 1 })
      yield* pass(1_000 / 36, 1_000 / 36)
    }
    if (doneMs === null && (yield* done()) === 40) {
      doneMs = passed + 1_000
    }
  }
  return { doneMs, left: 40 - (yield* done()) }
})

describe("J92: urgent jobs at nine tenths of the capacity", () => {
  it.effect("others are done within the ageing bound, and what they themselves take", () =>
    Effect.gen(function*() {
      const { doneMs } = yield* flooded(queueDefault, 3_000, 8_000)
      // The step, a second for 40 of them at 40 a second, and a second of looking.
      assert.isAtMost(doneMs ?? Infinity, 5_000)
    }))

  it.effect("with strict priority they get what is left over, as is documented", () =>
    Effect.gen(function*() {
      const { left } = yield* flooded(strict, Rank.stepMaxMs, 6_000)
      assert.isAbove(left, 0)
    }))
})
