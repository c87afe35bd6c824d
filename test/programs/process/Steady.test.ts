/** The fault catalogue, 86: a loop that is alive and makes no progress says so, and neither floods nor gives up. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Logger, Random } from "effect"
import { TestClock } from "effect/testing"
import * as Loops from "../../../src/programs/process/Loops.ts"
import * as Steady from "../../../src/programs/process/Steady.ts"

/** A loop whose rounds do what `now` says, with how often they ran and what was logged. */
const stage = Effect.gen(function*() {
  const said: Array<string> = []
  const state = { now: Effect.void as Effect.Effect<void, string>, rounds: 0 }
  const round = Effect.suspend(() => {
    state.rounds += 1
    return state.now
  })
  const running = yield* Effect.forkChild(
    Steady.run({
      name: "chore",
      limit: "10 seconds",
      retry: "2 seconds",
      pause: () => Effect.sleep("1 second"),
      degraded: { by: (error) => error === "kafka", reason: "slower" }
    }, round).pipe(
      Effect.provide(Logger.layer([Logger.make(({ message }) => {
        said.push(String(Array.isArray(message) ? message[0] : message))
      })])),
      Random.withSeed("steady")
    )
  )
  const pass = Effect.fnUntraced(function*(seconds: number) {
    for (let n = 0; n < seconds * 10; n++) {
      yield* TestClock.adjust("100 millis")
    }
  })
  const loops = yield* Loops.Loops
  const ok = Effect.map(loops.status, ([loop]) => loop?.ok)
  yield* pass(3)
  return { said, state, pass, ok, degraded: loops.degraded, stop: Fiber.interrupt(running) }
})

const tested = <A, E>(effect: Effect.Effect<A, E, Loops.Loops>) => Effect.provide(effect, Layer.fresh(Loops.layer))

for (const [how, failing] of [["fail", Effect.fail("postgres")], ["die", Effect.die(new Error("a defect"))]] as const) {
  it.effect(`a loop whose rounds ${how} is not ready after its limit, and is well again by itself`, () =>
    tested(Effect.gen(function*() {
      const { ok, pass, said, state, stop } = yield* stage
      assert.isTrue(yield* ok)
      assert.deepStrictEqual(said, [])
      state.now = failing
      yield* pass(5)
      assert.isTrue(yield* ok, "within its limit")
      yield* pass(6)
      assert.isFalse(yield* ok)
      const rounds = state.rounds
      yield* pass(60)
      assert.isFalse(yield* ok, "however often it tries")
      // Every one to two seconds, and a line every ten.
      assert.isAtLeast(state.rounds - rounds, 30)
      assert.isAtMost(state.rounds - rounds, 61)
      const lines = said.length
      assert.isAtLeast(lines, 6)
      assert.isAtMost(lines, 8)
      assert.match(said[0]!, /^chore: round failed/)
      state.now = Effect.void
      yield* pass(3)
      assert.isTrue(yield* ok)
      assert.match(said.at(-1)!, /^chore: working again after \d\d failed rounds$/)
      yield* pass(20)
      assert.lengthOf(said, lines + 1)
      yield* stop
    })))
}

it.effect("one that fails for the want of what the process can do without is ready, and says what is slower", () =>
  tested(Effect.gen(function*() {
    const { degraded, ok, pass, state, stop } = yield* stage
    state.now = Effect.fail("kafka")
    yield* pass(30)
    assert.isTrue(yield* ok)
    assert.deepStrictEqual(yield* degraded, ["slower"])
    state.now = Effect.fail("postgres")
    yield* pass(13)
    assert.isFalse(yield* ok)
    assert.deepStrictEqual(yield* degraded, [])
    state.now = Effect.void
    yield* pass(3)
    assert.isTrue(yield* ok)
    yield* stop
  })))
