import { assert, describe, it } from "@effect/vitest"
import { Cause, Schema } from "effect"
import { check } from "../../src/domain/JsonText.ts"
import { failure, messageMax, nameMax, result, resultMaxBytes } from "../../src/domain/Sanitise.ts"

const read = (value: unknown): unknown => JSON.parse(result(value) ?? "\"nothing\"")

const throwing = (): never => {
  throw new Error("hostile")
}

const cyclic: Record<string, unknown> = { name: "loop" }
cyclic["self"] = { back: cyclic }

/** Answers with another object like itself, for ever. */
const endless = (): object => ({
  get a() {
    return endless()
  },
  get b() {
    return endless()
  }
})

const revoked = (): object => {
  const { proxy, revoke } = Proxy.revocable({}, {})
  revoke()
  return proxy
}

/** What a handler may have made; the code here has no other use for it than to hand it on. */
const date = (ms: number): Date => Reflect.construct(Date, [ms])

const deep = (levels: number): unknown => {
  let value: unknown = "core"
  for (let level = 0; level < levels; level++) value = { next: value }
  return value
}

class Tagged extends Schema.TaggedError<Tagged>()("Tagged", { field: Schema.String }) {}

const oddities: ReadonlyArray<readonly [string, unknown]> = [
  ["NUL", "a\u0000b"],
  ["half a pair", "a\ud83db\ude00"],
  ["keys with NUL", { "k\u0000": 1, "\ud83d": 2 }],
  ["BigInt", { n: 12345678901234567890n }],
  ["a cycle", cyclic],
  ["a function", { f: () => 1 }],
  ["a symbol", { s: Symbol("x") }],
  ["a date", date(0)],
  ["no date", date(Number.NaN)],
  ["a map", new Map([["a", 1]])],
  ["a map of objects", new Map([[{}, { deep: 1n }]])],
  ["a set", new Set([1, "two", 3n])],
  ["an error", new Error("boom")],
  ["a long string", "x".repeat(5_000_000)],
  ["a deep object", deep(100_000)],
  ["a throwing toJSON", { toJSON: throwing }],
  ["a toJSON that answers itself", {
    toJSON() {
      return this
    }
  }],
  ["a toJSON that answers a BigInt", { toJSON: () => 1n }],
  ["a throwing getter", {
    get x() {
      return throwing()
    },
    y: 1
  }],
  ["endless getters", endless()],
  ["a revoked proxy", revoked()],
  ["a proxy whose keys throw", new Proxy({}, { ownKeys: throwing })],
  ["a proxy that always throws", new Proxy({}, { get: throwing, getPrototypeOf: throwing, has: throwing })],
  ["a sparse array", Array.from({ length: 3 }).concat(new Array(4_000_000_000))],
  ["a hole", [, 1]], // eslint-disable-line no-sparse-arrays
  ["bytes", new Uint8Array(1_000_000)],
  ["numbers that are none", [Number.NaN, Infinity, -Infinity, -0]],
  ["no prototype", Object.create(null)],
  ["__proto__ as a member", JSON.parse("{\"__proto__\":{\"x\":1}}")],
  ["many values", Array.from({ length: 1_000_000 }, (_, index) => index)],
  ["megabytes", Array.from({ length: 100 }, () => "y".repeat(60_000))],
  ["null", null],
  ["undefined within", { a: undefined, b: [undefined] }],
  ["a promise", Promise.resolve(1)],
  ["a tagged error", new Tagged({ field: "f" })],
  ["a cause", Cause.die(new Error("in a cause"))]
]

describe("Sanitise.result", () => {
  for (const [what, value] of oddities) {
    it(`makes JSON that can be stored of ${what}`, () => {
      const text = result(value)

      assert.isNotNull(text)
      assert.isNull(check(text ?? ""))
      assert.isAtMost(new TextEncoder().encode(text ?? "").length, resultMaxBytes)
    })
  }

  it.prop("gives back what is JSON already, if it can be stored", [Schema.Json], ([value]) => {
    const text = JSON.stringify(value)
    const made = result(value) ?? ""

    assert.isNull(check(made))
    if (check(text) === null) assert.deepStrictEqual(JSON.parse(made), JSON.parse(text))
  })

  it.prop("any text can be stored", [Schema.String], ([text]) => {
    assert.isNull(check(result(text) ?? ""))
    assert.isNull(check(result({ [text]: text }) ?? ""))
  })

  it("nothing is nothing, and null is null", () => {
    assert.isNull(result(undefined))
    assert.strictEqual(result(null), "null")
    assert.deepStrictEqual(read({ a: undefined, b: [undefined] }), { b: [null] })
  })

  it("says what stood there", () => {
    assert.deepStrictEqual(read("a\u0000b\ud83dc"), "a\ufffdb\ufffdc")
    assert.deepStrictEqual(read("😀"), "😀")
    assert.deepStrictEqual(read(12345678901234567890n), "12345678901234567890")
    assert.deepStrictEqual(read(cyclic), { name: "loop", self: { back: "[circular]" } })
    assert.deepStrictEqual(read(date(0)), "1970-01-01T00:00:00.000Z")
    assert.deepStrictEqual(read(new Map([["a", new Set([1])]])), { a: [1] })
    assert.deepStrictEqual(read(new Map([[1, 2]])), [[1, 2]])
    assert.deepStrictEqual(read(new TypeError("no")), { name: "TypeError", message: "no" })
    assert.deepStrictEqual(
      read({
        get x() {
          return throwing()
        },
        y: 1
      }),
      { x: "[unreadable]", y: 1 }
    )
    assert.deepStrictEqual(read({ toJSON: () => ({ a: 1n }) }), { a: "1" })
    assert.deepStrictEqual(read({ a: { toJSON: throwing }, b: 2 }), { a: "[unreadable]", b: 2 })
    assert.deepStrictEqual(read([() => 1, Symbol("x")]), ["[function]", "Symbol(x)"])
    assert.deepStrictEqual(result(JSON.parse("{\"__proto__\":{\"x\":1}}")), "{\"__proto__\":{\"x\":1}}")
    assert.deepStrictEqual(read(new Uint8Array(9)), "[9 bytes]")
    // @effect-diagnostics-next-line globalDate:off
    assert.isNull(read(new Date(Number.NaN)))
    class Shown {
      readonly a = 1
      toJSON() {
        return this
      }
    }
    assert.deepStrictEqual(read([new Shown(), { toJSON: () => new Shown() }]), [{ a: 1 }, { a: 1 }])
    // Cut in the middle of a pair.
    for (const start of ["", "x"]) {
      assert.isNull(check(result(start + "😀".repeat(40_000)) ?? ""))
    }
  })

  it("one object in two places is no cycle", () => {
    const shared = { n: 1 }
    assert.deepStrictEqual(read([shared, shared, { shared }]), [{ n: 1 }, { n: 1 }, { shared: { n: 1 } }])
  })

  it("what is too large is replaced by a word about it", () => {
    const value = Array.from({ length: 10 }, () => "z".repeat(50_000))

    assert.include(read(value), { too_large: true, bytes_max: resultMaxBytes })
    assert.deepStrictEqual(JSON.parse(result(["ééé"], 9) ?? ""), { too_large: true, bytes: 10, bytes_max: 9 })
    assert.strictEqual(result(["ééé"], 10), "[\"ééé\"]")
    assert.include(read(endless()), { too_large: true })
    assert.deepStrictEqual(read(Array.from({ length: 60_000 }, () => 1)), { too_large: true, values_max: 50_000 })
    assert.strictEqual(result("😀", 6), "\"😀\"")
    assert.deepStrictEqual(JSON.parse(result("😀", 5) ?? ""), { too_large: true, bytes: 6, bytes_max: 5 })
    // What reads itself again and again is not read to its end.
    let reads = 0
    const crowd = new Proxy([], {
      get: (target, name) => {
        reads += name === "length" ? 1 : 0
        return name === "length" ? 10_000_000 : Reflect.get(target, name)
      }
    })
    assert.include(read(crowd), { too_large: true })
    assert.isBelow(reads, 60_000)
    // Together longer than a string may be in JavaScript.
    const long = "x".repeat(60_000)
    assert.deepStrictEqual(read(Array.from({ length: 10_000 }, () => long)), {
      too_large: true,
      bytes_max: resultMaxBytes
    })
    // What errors say counts like all else.
    const error = new Error("x".repeat(messageMax))
    assert.deepStrictEqual(read(Array.from({ length: 10_000 }, () => error)), {
      too_large: true,
      bytes_max: resultMaxBytes
    })
    assert.match(String(read("x".repeat(5_000_000))), /^x{60000}x*… \(5000000 characters\)$/)
  })
})

describe("Sanitise.failure", () => {
  for (const [what, value] of oddities) {
    it(`makes a failure of ${what}`, () => {
      const { message, name } = failure(value)

      assert.isAtMost(name.length, nameMax)
      assert.isAtMost(message.length, messageMax)
      assert.isAtLeast(name.length, 1)
      assert.isNull(check(JSON.stringify({ name, message })))
    })
  }

  it("keeps the name and the message of an error", () => {
    assert.deepStrictEqual(failure(new RangeError("too far")), { name: "RangeError", message: "too far" })
    assert.deepStrictEqual(failure("just text"), { name: "Error", message: "just text" })
    assert.deepStrictEqual(failure(undefined), { name: "Error", message: "undefined" })
    assert.deepStrictEqual(failure(null), { name: "Error", message: "null" })
    assert.deepStrictEqual(failure(42n), { name: "Error", message: "42" })
    assert.deepStrictEqual(failure(Symbol("s")), { name: "Error", message: "Symbol(s)" })
    assert.deepStrictEqual(failure({ _tag: "Mine", message: "m" }), { name: "Mine", message: "m" })
    assert.deepStrictEqual(failure({ code: 7 }), { name: "Error", message: "{\"code\":7}" })
  })

  it("looks into a cause, and names a tagged error by its tag", () => {
    assert.deepStrictEqual(failure(Cause.fail("expected")), { name: "Error", message: "expected" })
    assert.deepStrictEqual(failure(Cause.die(new TypeError("defect"))), { name: "TypeError", message: "defect" })
    assert.deepStrictEqual(failure(Cause.fail(Cause.fail(new TypeError("below")))), {
      name: "TypeError",
      message: "below"
    })
    const tagged = failure(new Tagged({ field: "what it says" }))
    assert.strictEqual(tagged.name, "Tagged")
    assert.include(tagged.message, "what it says")
  })

  it("says what lies below an error, to a depth of three, once", () => {
    const fetchFailed = new TypeError("fetch failed", { cause: new Error("connect ECONNREFUSED 127.0.0.1:9000") })
    assert.deepStrictEqual(failure(fetchFailed), {
      name: "TypeError",
      message: "fetch failed: connect ECONNREFUSED 127.0.0.1:9000"
    })
    const nested = [1, 2, 3, 4, 5].reduceRight<Error | undefined>(
      (cause, n) => new Error(`e${n}`, { cause }),
      undefined
    )
    assert.strictEqual(failure(nested).message, "e1: e2: e3: e4")
    assert.strictEqual(failure(new Error("it broke: why", { cause: new Error("why") })).message, "it broke: why")
    assert.strictEqual(failure(new Error("it", { cause: "words" })).message, "it: words")
    assert.strictEqual(failure(new Error("it", { cause: 7n })).message, "it")
    assert.strictEqual(failure(new Error("it", { cause: { code: "E_CODE" } })).message, "it: E_CODE")
  })

  it("says what errors that were gathered say", () => {
    const refused = new AggregateError([new Error("connect ECONNREFUSED ::1:9"), new Error("other")])
    assert.strictEqual(failure(refused).message, "connect ECONNREFUSED ::1:9")
    assert.strictEqual(
      failure(new TypeError("fetch failed", { cause: refused })).message,
      "fetch failed: connect ECONNREFUSED ::1:9"
    )
    const empty = Object.assign(new AggregateError([]), { code: "ECONNREFUSED" })
    assert.strictEqual(failure(new Error("it", { cause: empty })).message, "it: ECONNREFUSED")
  })

  it("says that nothing was said, rather than nothing", () => {
    for (const silent of [new Error(), new Error(""), new AggregateError([]), {}, Object.create(null)]) {
      assert.strictEqual(failure(silent).message, "no message")
    }
    assert.strictEqual(failure(new Error("", { cause: new Error("below") })).message, "below")
  })

  it("survives causes that turn in a circle, cannot be read, or are long", () => {
    const circle = new Error("round")
    circle.cause = new Error("and round", { cause: circle })
    assert.strictEqual(failure(circle).message, "round: and round")
    const hostile = new Error("fine")
    Object.defineProperty(hostile, "cause", { get: throwing })
    assert.strictEqual(failure(hostile).message, "fine")
    const below = new Proxy(new Error("x"), { get: throwing, getPrototypeOf: throwing, has: throwing })
    assert.strictEqual(failure(new Error("fine", { cause: below })).message, "fine")
    assert.strictEqual(failure(new Error("fine", { cause: revoked() })).message, "fine")
    const long = failure(new Error("short", { cause: new Error("\u0000".repeat(1_000_000)) })).message
    assert.isAtMost(long.length, 600)
    assert.isNull(check(JSON.stringify(long)))
    assert.match(long, /^short: \ufffd+… \(1000000 characters\)$/)
  })

  it("cuts what is too long, and says how long it was", () => {
    const { message, name } = failure(Object.assign(new Error("m".repeat(5_000)), { name: "n".repeat(300) }))

    assert.strictEqual(message.length, messageMax)
    assert.match(message, /m… \(5000 characters\)$/)
    assert.strictEqual(name.length, nameMax)
    assert.strictEqual(failure(new Error("m".repeat(messageMax))).message, "m".repeat(messageMax))
    assert.isNull(check(JSON.stringify(failure(new Error("😀".repeat(5_000))))))
  })

  it("survives an error that cannot be read", () => {
    const hostile = new Proxy(new Error("x"), { get: throwing, getPrototypeOf: throwing, has: throwing })
    assert.isNull(check(JSON.stringify(failure(hostile))))
    assert.deepStrictEqual(failure(revoked()), { name: "Error", message: "[unreadable]" })
    const error = new Error("fine")
    Object.defineProperty(error, "name", { get: throwing })
    assert.deepStrictEqual(failure(error), { name: "Error", message: "fine" })
    Object.defineProperty(error, "message", { value: 7n })
    assert.strictEqual(failure(error).name, "Error")
  })
})
