import { assert, it } from "@effect/vitest"
import { Effect, Logger } from "effect"
import { TestClock } from "effect/testing"
import * as Trouble from "../../../src/adapters/kafka/Trouble.ts"

it.effect("who is refused tries again less and less often, who finds nobody soon, and both begin anew when it is over", () =>
  Effect.gen(function*() {
    const trouble = Trouble.make("asking", "others are asked")
    const after = Effect.fnUntraced(function*(failures: number, refused: boolean) {
      const pauses: Array<number> = []
      for (let n = 0; n < failures; n++) {
        yield* trouble.failed("because", refused)
        pauses.push(trouble.pauseMs())
      }
      yield* trouble.over
      return pauses
    })
    assert.deepStrictEqual(yield* after(6, false), [200, 400, 800, 1_000, 1_000, 1_000])
    assert.deepStrictEqual(yield* after(8, true), [200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000])
    yield* after(20, true)
    assert.strictEqual((yield* after(1, true))[0], 200)
  }))

it.effect("it is told when it begins, every ten seconds, and how long it was when it is over", () => {
  const said: Array<string> = []
  const logger = Logger.make(({ message }) => {
    said.push(String(message))
  })
  return Effect.gen(function*() {
    const trouble = Trouble.make("asking", "others are asked")
    yield* trouble.over
    const told = "asking failed and is tried again; others are asked (because)"
    for (
      const expected of [[told, told, "asking works again after 15.0 s"], [told, "asking works again after 1.0 s"]]
    ) {
      for (let second = 0; second < (expected.length === 3 ? 15 : 1); second++) {
        yield* trouble.failed("because", false)
        yield* TestClock.adjust("1 second")
      }
      yield* trouble.over
      yield* trouble.over
      assert.deepStrictEqual(said.splice(0), expected)
    }
  }).pipe(Effect.provide(Logger.layer([logger])))
})
