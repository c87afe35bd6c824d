import { assert, describe, it } from "@effect/vitest"
import * as Pace from "../../../src/adapters/kafka/Pace.ts"

const options = { perSecond: 20, burst: 5, full: 100 }

describe("Pace", () => {
  it("lets a few small requests go at once, and then as many as the rate allows", () => {
    const pace = Pace.make(options)
    assert.deepStrictEqual(Array.from({ length: 5 }, () => pace.spend(0, 0)), [0, 0, 0, 0, 0])
    assert.strictEqual(pace.spend(0, 0), 50)
    assert.strictEqual(pace.spend(50, 0), 50)
    assert.strictEqual(pace.spend(1_050, 0), 0)
  })

  it("never holds up a request that carries a full load", () => {
    const pace = Pace.make(options)
    for (let n = 0; n < 1_000; n++) {
      assert.strictEqual(pace.spend(0, 100 + n), 0)
    }
    assert.strictEqual(pace.spend(0, 0), 0)
  })
})
