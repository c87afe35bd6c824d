import { assert, it } from "@effect/vitest"
import { concurrencyMax, wrongField } from "../../src/domain/QueueSettings.ts"
import * as Rank from "../../src/domain/Rank.ts"

it("what a queue may be told is a whole number within its bounds, or that it has no limit", () => {
  for (const concurrency of [undefined, null, 1, concurrencyMax]) {
    assert.isNull(wrongField(concurrency === undefined ? {} : { concurrency }), String(concurrency))
  }
  for (const concurrency of [0, -1, 1.5, Number.NaN, concurrencyMax + 1]) {
    assert.strictEqual(wrongField({ concurrency }), "concurrency", String(concurrency))
  }
  for (const stepMs of [0, 1, Rank.stepMaxMs]) {
    assert.isNull(wrongField({ stepMs }), String(stepMs))
  }
  for (const stepMs of [-1, 0.5, Infinity, Rank.stepMaxMs + 1]) {
    assert.strictEqual(wrongField({ stepMs }), "stepMs", String(stepMs))
  }
})
