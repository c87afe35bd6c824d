import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import {
  Backoff,
  ceilingMs,
  defaults,
  delayMs,
  lossBaseMs,
  lossCapMs,
  lossCeilingMs
} from "../../src/domain/Backoff.ts"

const Attempt = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 1_000_000_000 }))
const Draw = Schema.Number.check(Schema.isBetween({ minimum: 0, maximum: 0.9999999999 }))

const capOf = (backoff: Backoff): number => backoff.kind === "fixed" ? backoff.delay_ms : backoff.cap_ms

describe("Backoff", () => {
  it.prop("a ceiling lies between 0 and the cap, and is never NaN", [Backoff, Attempt], ([backoff, attempt]) => {
    const ceiling = ceilingMs(backoff, attempt)

    assert.isTrue(Number.isSafeInteger(ceiling))
    assert.isAtLeast(ceiling, 0)
    assert.isAtMost(ceiling, capOf(backoff))
  })

  it.prop("a ceiling never falls with a further attempt", [Backoff, Attempt], ([backoff, attempt]) => {
    assert.isAtMost(ceilingMs(backoff, attempt), ceilingMs(backoff, attempt + 1))
  })

  it.prop("a delay is a whole number within its ceiling, for any draw", [Backoff, Attempt, Draw], (
    [backoff, attempt, draw]
  ) => {
    const delay = delayMs(backoff, attempt, draw)

    assert.isTrue(Number.isSafeInteger(delay))
    assert.isAtLeast(delay, 0)
    assert.isAtMost(delay, ceilingMs(backoff, attempt))
  })

  it.prop("attempts beyond all measure give the cap", [Backoff], ([backoff]) => {
    for (const attempt of [65, 1_024, 1_025, 1e9, Number.MAX_SAFE_INTEGER, Number.MAX_VALUE, Infinity]) {
      const expected = backoff.kind === "exponential" && backoff.base_ms === 0 ? 0 : capOf(backoff)
      assert.strictEqual(ceilingMs(backoff, attempt), expected)
    }
  })

  it.prop("attempts that never were count as the first", [Backoff], ([backoff]) => {
    for (const attempt of [0, -1, -Infinity]) {
      assert.strictEqual(ceilingMs(backoff, attempt), ceilingMs(backoff, 1))
    }
  })

  it("the default doubles from a second to fifteen minutes", () => {
    assert.deepStrictEqual(
      Array.from({ length: 12 }, (_, index) => ceilingMs(defaults, index + 1) / 1_000),
      [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]
    )
  })

  it("the draw spreads a delay over the whole of its range", () => {
    assert.strictEqual(delayMs(defaults, 3, 0), 0)
    assert.strictEqual(delayMs(defaults, 3, 0.5), 2_000)
    assert.strictEqual(delayMs(defaults, 3, 0.9999999), 3_999)
    assert.strictEqual(delayMs({ kind: "fixed", delay_ms: 500 }, 40, 0.5), 250)
  })

  it.prop("a loss waits at most twice as long as the one before, within the cap", [Attempt], ([losses]) => {
    const ceiling = lossCeilingMs(losses)

    assert.isTrue(Number.isSafeInteger(ceiling))
    assert.isAtLeast(ceiling, lossBaseMs)
    assert.isAtMost(ceiling, lossCapMs)
    assert.strictEqual(lossCeilingMs(losses + 1), Math.min(lossCapMs, ceiling * 2))
  })

  it("the first loss waits at most 250 ms", () => {
    assert.deepStrictEqual([0, 1, 2, 3, Infinity].map(lossCeilingMs), [250, 250, 500, 1_000, lossCapMs])
  })
})
