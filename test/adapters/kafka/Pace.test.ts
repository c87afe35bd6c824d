import { assert, describe, it } from "@effect/vitest"
import * as Pace from "../../../src/adapters/kafka/Pace.ts"

const full = 1_000

/** Requests per second for ids that come at a steady rate, each request taking 2 ms. */
const requests = (perSecond: number) => {
  let atMs = 0
  let sent = 0
  let count = 0
  while (atMs < 1_000) {
    const load = Math.max(1, Math.floor(atMs * perSecond / 1_000) - sent)
    sent += load
    count += 1
    atMs = Math.max(atMs + 2 + Pace.gapMs(load, full), (sent + 1) / perSecond * 1_000)
  }
  return count
}

describe("Pace", () => {
  it("lets single ids go at once", () => {
    assert.isAtMost(Pace.gapMs(1, full), 1)
    assert.isAtLeast(requests(100), 90)
  })

  it("keeps the requests of a loaded system few", () => {
    for (const perSecond of [4_000, 10_000, 20_000]) {
      assert.isAtMost(requests(perSecond) / perSecond, 0.01)
    }
  })

  it("never holds up a full load", () => {
    assert.strictEqual(Pace.gapMs(full, full), 0)
    assert.strictEqual(Pace.gapMs(5 * full, full), 0)
  })
})
