import { assert, describe, it } from "@effect/vitest"
import { Option, Schema } from "effect"
import * as JobId from "../../src/domain/JobId.ts"

const Time = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2 ** 48 - 1 }))
const Byte = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 255 }))
const Random = Schema.Array(Byte).check(Schema.isMinLength(10), Schema.isMaxLength(10))

describe("JobId", () => {
  it.prop("is a UUID of version 7 that holds the time", [Time, Random], ([time, random]) => {
    const id = JobId.make(time, Uint8Array.from(random))

    assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    assert.strictEqual(Number.parseInt(id.replaceAll("-", "").slice(0, 12), 16), time)
    assert.deepStrictEqual(JobId.fromText(id), Option.some(id))
    assert.deepStrictEqual(JobId.fromText(id.toUpperCase()), Option.some(id))
  })

  it.prop("sorts by time, as text", [Time, Time, Random, Random], ([a, b, left, right]) => {
    const [one, two] = [JobId.make(a, Uint8Array.from(left)), JobId.make(b, Uint8Array.from(right))]

    assert.isTrue(a === b || (one < two) === (a < b))
  })

  it("each of its 74 random bits tells two ids apart", () => {
    const ids = new Set([JobId.make(1, new Uint8Array(10))])
    for (let bit = 0; bit < 80; bit++) {
      const random = new Uint8Array(10)
      random[bit >> 3] = 1 << (bit & 7)
      ids.add(JobId.make(1, random))
    }

    assert.strictEqual(ids.size, 75)
  })

  it("cuts a time to whole milliseconds, and never leaves its form", () => {
    const random = new Uint8Array(10)
    assert.strictEqual(JobId.make(1.9, random), JobId.make(1, random))
    assert.strictEqual(JobId.make(-5, random), JobId.make(0, random))
    assert.isTrue(Option.isSome(JobId.fromText(JobId.make(2 ** 50, random))))
  })

  it("is not read from anything else", () => {
    for (const text of ["", "1", "01890000-0000-7000-8000-00000000000", "01890000-0000-7000-8000-00000000000g"]) {
      assert.isTrue(Option.isNone(JobId.fromText(text)))
    }
    assert.isTrue(Option.isNone(JobId.fromText(` ${JobId.make(1, new Uint8Array(10))}`)))
    assert.isTrue(Option.isNone(JobId.fromText(`${JobId.make(1, new Uint8Array(10))}\n`)))
  })
})
