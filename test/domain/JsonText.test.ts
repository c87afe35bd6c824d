import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { canonical, check, depthMax } from "../../src/domain/JsonText.ts"

const kindOf = (text: string) => check(text)?.kind ?? null
const pathOf = (text: string) => check(text)?.path ?? null

const parses = (text: string): boolean => {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

/** Pieces that JSON is made of, and some that it is not: what they make when strewn is nearly JSON. */
const Piece = Schema.Literals([
  "{",
  "}",
  "[",
  "]",
  ":",
  ",",
  "\"",
  "\"a\"",
  "\"\\n\"",
  "\"\\ud83d\\ude00\"",
  "\\",
  "\\u",
  "0041",
  "true",
  "null",
  "false",
  "0",
  "1",
  "-",
  ".5",
  "e9",
  "E+",
  "10",
  " ",
  "\n",
  "\u0000",
  "\ud83d",
  "tru",
  "é",
  "\t",
  "'",
  "/",
  "{\"a\":1}",
  "[1,2]"
])

const Value = Schema.Json

describe("JsonText.check", () => {
  it.prop("what it lets pass JSON.parse takes, and what JSON.parse refuses it calls malformed", [Schema.Array(Piece)], (
    [pieces]
  ) => {
    const text = pieces.join("")
    const kind = kindOf(text)
    if (kind === null) assert.isTrue(parses(text), text)
    if (kind === "syntax") assert.isFalse(parses(text), text)
  }, { arbitrary: { runs: 3_000, size: 12 } })

  it.prop("it lets pass what JSON.stringify makes, in any layout", [Value], ([value]) => {
    const text = JSON.stringify(value)
    // Strings are drawn from everything, halves of pairs included, and those are refused on purpose.
    const kind = kindOf(text)
    if (/\\u0000|\\ud[89a-f]/.test(text)) {
      assert.include(["nul", "surrogate", null], kind)
    } else {
      assert.isNull(kind, text)
      assert.isNull(kindOf(JSON.stringify(value, null, "\t")))
      assert.isNull(kindOf(`  ${text}\r\n`))
    }
  })

  it.prop("it is total: any text gets an answer", [Schema.String], ([text]) => {
    const refused = check(text)
    assert.strictEqual(refused === null || refused.reason.length > 0, true)
    if (refused === null) assert.isTrue(parses(text))
  })

  it.prop("every whole number that a double holds passes", [Schema.Int], ([value]) => {
    assert.isNull(check(String(value)))
  })

  it.prop("every finite double passes as JavaScript writes it", [Schema.Finite], ([value]) => {
    assert.isNull(check(JSON.stringify(value)))
  })

  it.prop("a whole number beyond 2^53 passes exactly if it is itself again after a double", [
    Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2 ** 52 })),
    Schema.Literals([0n, 1n, 2n, 3n, 1_000n])
  ], ([low, factor]) => {
    const exact = 2n ** 53n * (factor + 1n) + BigInt(low)
    const survives = BigInt(Number(exact)) === exact || JSON.stringify(Number(exact)) === String(exact)
    assert.strictEqual(check(String(exact)) === null, survives, String(exact))
    assert.strictEqual(check(`-${exact}`) === null, survives)
  })

  it("numbers that a double would change are refused", () => {
    for (
      const literal of [
        "1e400",
        "-1e400",
        "1E+999999999999",
        "12345678901234567890",
        "9007199254740993",
        "-9007199254740993",
        "1e-400",
        "-1e-400",
        "0.0000001e-330",
        "123456789012345678.5",
        "1.7976931348623159e308",
        "3e-324",
        "9007199254740992.5",
        `${"9".repeat(400)}`,
        `1${"0".repeat(400)}`
      ]
    ) {
      assert.strictEqual(kindOf(literal), "number", literal)
    }
  })

  it("numbers that a double keeps pass, however they are written", () => {
    for (
      const literal of [
        "0",
        "-0",
        "0.0",
        "-0.0e5",
        "1.0",
        "1E2",
        "1e+2",
        "100e-2",
        "0.1",
        "3.14159265358979323846",
        "9007199254740991",
        "9007199254740992",
        "9007199254740994",
        "-9007199254740992",
        "9223372036854775808",
        "1e21",
        "1e22",
        "1e300",
        "5e-324",
        "2.2250738585072014e-308",
        "1.7976931348623157e308",
        "0e400",
        "0.000e-999",
        `0.${"3".repeat(5_000)}`,
        `1${"0".repeat(300)}`,
        `1${"0".repeat(22)}.000`
      ]
    ) {
      assert.isNull(check(literal), literal)
    }
  })

  it("what is not a number of JSON is malformed", () => {
    for (const text of ["01", "+1", ".5", "1.", "1e", "0x10", "NaN", "Infinity", "-", "1_000", "--1", "1 2"]) {
      assert.strictEqual(kindOf(text), "syntax", text)
    }
  })

  it("a control character is refused where it is not escaped, and a key is called one", () => {
    for (let code = 1; code < 32; code++) {
      assert.strictEqual(kindOf(JSON.stringify("a").replace("a", String.fromCharCode(code))), "syntax", String(code))
    }
    assert.isNull(check("\" \u007f\""))
    assert.match(check("{\"\\u0000\":1}")?.reason ?? "", /^has a key with the character/)
    assert.match(check("[\"\\u0000\"]")?.reason ?? "", /^holds the character/)
  })

  it("NUL is refused in strings and in keys, written out or escaped", () => {
    for (const text of ["\"\\u0000\"", "\"a\u0000b\"", "{\"\\u0000\":1}", "{\"a\u0000\":1}", "[[\"\\u0000\"]]"]) {
      assert.strictEqual(kindOf(text), "nul", JSON.stringify(text))
    }
    assert.isNull(check("\"\\\\u0000\""))
    assert.isNull(check("\"\\u0001\""))
  })

  it("half of a surrogate pair is refused, and so is a pair of two spellings", () => {
    for (
      const text of [
        "\"\\ud83d\"",
        "\"\\ude00\"",
        "\"\ud83d\"",
        "\"\ude00\"",
        "\"\\ud83dx\"",
        "\"\\ud83d\\ud83d\\ude00\"",
        "\"\\ude00\\ud83d\"",
        "{\"\\ud83d\":1}",
        "\"\ud83d\\ude00\"",
        "\"\\ud83d\ude00\"",
        "\"\\ud83d\\n\\ude00\""
      ]
    ) {
      assert.strictEqual(kindOf(text), "surrogate", JSON.stringify(text))
    }
    for (const text of ["\"\\ud83d\\ude00\"", "\"\\uD83D\\uDE00\"", "\"😀\"", "{\"😀\":\"\\u00e9\"}"]) {
      assert.isNull(check(text), text)
    }
  })

  it("256 levels pass, the next does not, and a million do no harm", () => {
    const nested = (levels: number, open: string, close: string, core = "0") =>
      `${open.repeat(levels)}${core}${close.repeat(levels)}`
    assert.isNull(check(nested(depthMax, "[", "]")))
    assert.isNull(check(nested(depthMax, "{\"a\":", "}")))
    assert.isNull(check(nested(depthMax - 1, "[", "]", "[],{}")))
    assert.strictEqual(kindOf(nested(depthMax + 1, "[", "]")), "depth")
    assert.strictEqual(kindOf(nested(depthMax, "[", "]", "{}")), "depth")
    assert.strictEqual(kindOf(nested(1_000_000, "[", "]")), "depth")
    assert.strictEqual(kindOf(nested(1_000_000, "{\"a\":", "}")), "depth")
    assert.isNull(check(`[${"[],".repeat(100_000)}[]]`))
  })

  it("the place of what is refused is told", () => {
    assert.strictEqual(pathOf("1e400"), "$")
    assert.strictEqual(pathOf("{\"n\":1e400}"), "$.n")
    assert.strictEqual(pathOf("{\"items\":[1,{},[0],{\"y\":[],\"x\":1e400}]}"), "$.items[3].x")
    assert.strictEqual(pathOf("{\"a b\":{\"\":[0,\"\\u0000\"]}}"), "$[\"a b\"][\"\"][1]")
    assert.strictEqual(pathOf("{\"a\":1,\"b\\u0000\":2}"), "$")
    assert.strictEqual(pathOf("{\"ok\":{\"b\\ud83d\":2}}"), "$.ok")
    assert.strictEqual(check("[1e400]", "payload")?.path, "payload[0]")
    assert.strictEqual(pathOf("[{\"caf\\u00e9\":1e400}]"), "$[0][\"café\"]")
    assert.isAtMost(pathOf(`${"{\"aaaaaaaa\":".repeat(200)}1e400${"}".repeat(200)}`)?.length ?? 0, 250)
    assert.isAtMost(pathOf(`{"${"k".repeat(100_000)}":1e400}`)?.length ?? 0, 250)
  })

  it("names that objects of JavaScript have, the empty one and duplicates pass", () => {
    for (const text of ["{\"__proto__\":{\"x\":1}}", "{\"\":1}", "{\"a\":1,\"a\":2}", "{\"constructor\":null}"]) {
      assert.isNull(check(text))
    }
  })

  it("malformed text says where", () => {
    for (
      const text of [
        "",
        " ",
        "{",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1,",
        "{,}",
        "{a:1}",
        "[1}",
        "{\"a\":1]",
        "]",
        "nul",
        "truee",
        "\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\n\"",
        "{\"a\":1}}",
        "[] []",
        "\ufeff1",
        "{1:2}"
      ]
    ) {
      assert.strictEqual(kindOf(text), "syntax", JSON.stringify(text))
    }
    assert.match(check("[1,x]")?.reason ?? "", /character 4/)
    assert.match(check("[1,")?.reason ?? "", /ends early/)
  })
})

describe("JsonText.canonical", () => {
  const canonicalOf = (text: string): string => canonical(JSON.parse(text))

  it.prop("is JSON for the same value", [Value], ([value]) => {
    const plain: unknown = JSON.parse(JSON.stringify(value))
    assert.deepStrictEqual(JSON.parse(canonical(plain)), plain)
    assert.strictEqual(canonical(JSON.parse(canonical(plain))), canonical(plain))
  })

  it("order of keys, layout, escapes and ways of writing numbers make no difference", () => {
    for (
      const [one, two] of [
        ["{\"a\":1,\"b\":[1,2]}", " { \"b\" : [ 1.0 , 2e0 ] , \"a\" : 10e-1 } "],
        ["\"\\u00e9\\/\"", "\"é/\""],
        ["{\"x\":{\"c\":1,\"b\":2}}", "{\"x\":{\"b\":2,\"c\":1}}"],
        ["{\"a\":1,\"a\":2}", "{\"a\":2}"],
        ["0", "-0"],
        ["{\"__proto__\":1,\"a\":2}", "{\"a\":2,\"__proto__\":1}"],
        ["{\"10\":1,\"9\":2}", "{\"9\":2,\"10\":1}"]
      ] as const
    ) {
      assert.strictEqual(canonicalOf(one), canonicalOf(two))
    }
    // By their code units, which are in the same order in every process, whatever its language.
    assert.strictEqual(canonicalOf("{\"b\":1,\"a\":2,\"ä\":3,\"B\":4}"), "{\"B\":4,\"a\":2,\"b\":1,\"ä\":3}")
  })

  it("what differs stays different", () => {
    const texts = [
      "1",
      "\"1\"",
      "true",
      "null",
      "[]",
      "{}",
      "[1]",
      "[1,2]",
      "[2,1]",
      "[[1],2]",
      "{\"a\":1}",
      "{\"a\":null}",
      "{\"b\":1}",
      "{\"__proto__\":1}",
      "{\"__proto__\":{\"a\":1}}",
      "\"\"",
      "{\"\":1}",
      "[\"a,b\"]",
      "[\"a\",\"b\"]",
      "0.1",
      "0.2"
    ]
    assert.strictEqual(new Set(texts.map(canonicalOf)).size, texts.length)
  })

  it("is safe at the greatest depth", () => {
    const text = `${"[".repeat(depthMax)}${"]".repeat(depthMax)}`
    assert.strictEqual(canonicalOf(text), text)
  })
})
