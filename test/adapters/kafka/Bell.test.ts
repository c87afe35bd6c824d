import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import * as Bell from "../../../src/adapters/kafka/Bell.ts"

const waiting = (bell: Bell.Bell) => Effect.forkChild(bell.wait(1_000), { startImmediately: true })

/** Without the time going on. */
const woken = (fiber: Fiber.Fiber<void>) =>
  Effect.map(Effect.repeat(Effect.yieldNow, { times: 10 }), () => fiber.pollUnsafe() !== undefined)

it.effect("wakes all who wait, and who comes afterwards waits for the next time", () =>
  Effect.gen(function*() {
    const bell = Bell.make()
    const fibers = [yield* waiting(bell), yield* waiting(bell)]
    bell.ring()
    assert.deepStrictEqual(yield* Effect.forEach(fibers, woken), [true, true])
    const later = yield* waiting(bell)
    assert.isFalse(yield* woken(later))
    bell.ring()
    yield* Fiber.join(later)
    bell.ring()
    assert.isTrue(yield* woken(yield* waiting(bell)), "who was woken waits no more")
  }))

it.effect("rung while nobody waits it wakes the next one at once, and no more than that one", () =>
  Effect.gen(function*() {
    const bell = Bell.make()
    bell.ring()
    bell.ring()
    assert.isTrue(yield* woken(yield* waiting(bell)))
    assert.isFalse(yield* woken(yield* waiting(bell)))
  }))

it.effect("a wait ends in time, and who has gone is nobody who waits", () =>
  Effect.gen(function*() {
    const bell = Bell.make()
    const gone = yield* waiting(bell)
    yield* TestClock.adjust("1 second")
    yield* Fiber.join(gone)
    bell.ring()
    assert.isTrue(yield* woken(yield* waiting(bell)))
  }))
