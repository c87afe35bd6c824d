import { assert, describe, it } from "@effect/vitest"
import { because } from "../../src/domain/Because.ts"

describe("because", () => {
  it.each([
    [new Error("no\n answer"), "no answer"],
    [new TypeError(""), "TypeError"],
    [{ message: "a plain object" }, "a plain object"],
    [{ name: "AbortError", message: "" }, "AbortError"],
    ["text", "text"],
    [undefined, "undefined"],
    [Object.create(null), "something that cannot be shown"],
    [
      {
        get message(): string {
          throw new Error("hostile")
        }
      },
      "something that cannot be shown"
    ]
  ])("%# says what there is to say", (cause, text) => {
    assert.strictEqual(because(cause), text)
  })

  it("is bounded", () => {
    assert.isAtMost(because("x".repeat(10_000)).length, 300)
  })
})
