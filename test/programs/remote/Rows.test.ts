/** Those who wait for work, in rows: who is looked for, how soon, and how often. */
import { assert, it } from "@effect/vitest"
import { Clock, Deferred, Effect } from "effect"
import { TestClock } from "effect/testing"
import * as Rows from "../../../src/programs/remote/Rows.ts"

/** Rows whose looks become what `became` says, with whom they were for. */
const stage = Effect.gen(function*() {
  const clock = yield* Clock.Clock
  const looked: Array<string> = []
  const said: Array<string> = []
  const state: { became: Rows.Became; look: Effect.Effect<void> } = {
    became: "nothing",
    look: Effect.void
  }
  const rows: Rows.Rows<string> = yield* Rows.make<string>({
    look: (waiter) =>
      Effect.gen(function*() {
        rows.leave(waiter)
        looked.push(waiter)
        yield* state.look
        const { became } = state
        if (became === "nothing") {
          rows.join(waiter, waiter, false)
        }
        return became
      }),
    waits: (waiter) => said.push(waiter),
    pauseMs: Effect.succeed(300),
    beside: Effect.void,
    now: () => Number(clock.monotonicTimeNanosUnsafe() / 1_000_000n)
  })
  yield* Effect.forkScoped(rows.run)
  return { looked, rows, said, state }
})

const names = (from: number, count: number) => Array.from({ length: count }, (_, n) => `w-${from + n}`)

it.effect("without a wake each row has its turn, of many some in each round, and one of each is said to wait on", () =>
  Effect.gen(function*() {
    const { looked, rows, said } = yield* stage
    const all = names(0, 150)
    all.forEach((name) => rows.join(name, name, false))
    yield* TestClock.adjust("1 second")
    assert.lengthOf(looked, 100)
    yield* TestClock.adjust("1300 millis")
    assert.sameMembers(looked.slice(0, 150), all)
    assert.sameMembers(said.slice(0, 150), all)
  }).pipe(Effect.scoped))

it.effect("rows that all have left are no more", () =>
  Effect.gen(function*() {
    const { looked, rows } = yield* stage
    for (const name of names(0, 100)) {
      rows.join(name, name, false)
      rows.leave(name)
    }
    rows.join("stays", "stays", false)
    yield* TestClock.adjust("1 second")
    assert.deepStrictEqual(looked, ["stays"])
  }).pipe(Effect.scoped))

it.effect("a look that failed is not repeated at once, however often the row is woken, and then it is", () =>
  Effect.gen(function*() {
    const { looked, rows, state } = yield* stage
    state.became = "failed"
    rows.join("row", "first", true)
    rows.join("row", "second", false)
    yield* TestClock.adjust("10 millis")
    state.became = "took"
    for (let n = 0; n < 28; n++) {
      rows.wake()
      yield* TestClock.adjust("10 millis")
    }
    assert.deepStrictEqual(looked, ["first"])
    yield* TestClock.adjust("40 millis")
    assert.deepStrictEqual(looked, ["first", "second"])
  }).pipe(Effect.scoped))

it.effect("what becomes ready while a row is looked for is looked for behind that", () =>
  Effect.gen(function*() {
    const { looked, rows, state } = yield* stage
    const gate = Deferred.makeUnsafe<void>()
    state.look = Deferred.await(gate)
    rows.join("row", "row", true)
    yield* TestClock.adjust("10 millis")
    rows.wake()
    yield* TestClock.adjust("10 millis")
    yield* Deferred.succeed(gate, undefined)
    yield* TestClock.adjust("20 millis")
    assert.deepStrictEqual(looked, ["row", "row"])
    yield* TestClock.adjust("200 millis")
    assert.lengthOf(looked, 2)
  }).pipe(Effect.scoped))
