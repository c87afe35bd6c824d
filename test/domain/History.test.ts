import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { append, empty, firstKept, type History, newestKept } from "../../src/domain/History.ts"

const Length = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 200 }))

const grown = (length: number): History<number> =>
  Array.from({ length }, (_, index) => index).reduce<History<number>>(append, empty)

describe("History", () => {
  it.prop("keeps the first few and the newest, and counts the rest", [Length], ([length]) => {
    const { entries, omitted } = grown(length)
    const all = Array.from({ length }, (_, index) => index)

    assert.strictEqual(entries.length + omitted, length)
    assert.deepStrictEqual(
      entries,
      all.filter((index) => index < firstKept || index >= length - newestKept)
    )
  })

  it("leaves out nothing until it is full, then the oldest of the newest", () => {
    const full = grown(firstKept + newestKept)
    assert.deepStrictEqual([full.entries.length, full.omitted], [15, 0])

    const over = append(full, 15)

    assert.deepStrictEqual(over, { entries: [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], omitted: 1 })
    assert.deepStrictEqual(full.entries.length, 15)
  })
})
