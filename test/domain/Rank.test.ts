import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { instantMaxMs, InstantMs, Priority, priorityMax } from "../../src/domain/Job.ts"
import { rank, stepDefaultMs, stepMaxMs } from "../../src/domain/Rank.ts"

const StepMs = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: stepMaxMs }))

describe("Rank", () => {
  it.prop("is a safe integer for everything a job may be", [InstantMs, Priority, StepMs], ([due, priority, step]) => {
    assert.isTrue(Number.isSafeInteger(rank(due, priority, step)))
  })

  it("is a safe integer at the corners", () => {
    for (const priority of [-priorityMax, priorityMax]) {
      assert.isTrue(Number.isSafeInteger(rank(instantMaxMs, priority, stepMaxMs)))
      assert.isTrue(Number.isSafeInteger(rank(0, priority, stepMaxMs)))
    }
  })

  it.prop(
    "a job is overtaken exactly by what comes within the difference of priority times the step",
    [InstantMs, InstantMs, Priority, Priority],
    ([due, later, low, high]) => {
      const [a, b] = [Math.min(low, high), Math.max(low, high)]
      const bound = (b - a) * stepDefaultMs
      const overtakes = rank(later, b, stepDefaultMs) < rank(due, a, stepDefaultMs)
      assert.strictEqual(overtakes, later - due < bound)
    }
  )

  it.prop("equal priorities go by time alone", [InstantMs, InstantMs, Priority, StepMs], ([a, b, priority, step]) => {
    assert.strictEqual(rank(a, priority, step) < rank(b, priority, step), a < b)
  })

  it("one step of priority is worth a minute of waiting", () => {
    assert.isBelow(rank(59_999, 1, stepDefaultMs), rank(0, 0, stepDefaultMs))
    assert.strictEqual(rank(60_000, 1, stepDefaultMs), rank(0, 0, stepDefaultMs))
    assert.isAbove(rank(60_001, 1, stepDefaultMs), rank(0, 0, stepDefaultMs))
  })
})
