import { assert, describe, it } from "@effect/vitest"
import { placeOf, standsInWay, statesDefault, type Unique } from "../../src/domain/Unique.ts"

const unique = (change: Partial<Unique> = {}): Unique => ({
  fields: null,
  window_ms: null,
  states: ["pending"],
  on_conflict: "skip",
  ...change
})

describe("Unique", () => {
  it("a job counts until it is final, and within a window also where it was done", () => {
    assert.deepStrictEqual(statesDefault(null), ["pending", "running", "failed"])
    assert.deepStrictEqual(statesDefault(1), ["pending", "running", "failed", "completed"])
  })

  it("a window ends when the job is as old as that, and without one age does not matter", () => {
    const other = { state: "pending", createdAtMs: 1_000 } as const
    assert.isTrue(standsInWay(unique({ window_ms: 500 }), other, 1_499))
    assert.isFalse(standsInWay(unique({ window_ms: 500 }), other, 1_500))
    assert.isTrue(standsInWay(unique(), other, Number.MAX_SAFE_INTEGER))
    assert.isFalse(standsInWay(unique(), { ...other, state: "running" }, 1_000))
  })

  it("a payload that has no fields counts as a whole, whichever are named", () => {
    for (const [one, two] of [[null, 0], ["ab", "ac"], [7, 8]] as const) {
      assert.notStrictEqual(placeOf("t", one, { fields: ["0"] }), placeOf("t", two, { fields: ["0"] }))
      assert.strictEqual(placeOf("t", one, { fields: ["0"] }), placeOf("t", one, { fields: null }))
    }
  })
})
