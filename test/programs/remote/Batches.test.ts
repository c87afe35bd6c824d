/** Many callers, one call: what one call takes, and what there may be of all callers. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import * as Batches from "../../../src/programs/remote/Batches.ts"

/** Items are their own weight and name. The first call is under way until `open`. */
const stage = Effect.gen(function*() {
  const gate = Deferred.makeUnsafe<void>()
  const calls: Array<ReadonlyArray<number>> = []
  const shared = yield* Batches.make({
    call: (items: ReadonlyArray<number>) => {
      calls.push(items)
      return Effect.as(Deferred.await(gate), items.map((item) => -item))
    },
    itemsMax: 4,
    weightMax: 100,
    weigh: (item) => item,
    nameOf: String,
    waitingMax: 6,
    heldMax: 300,
    full: () => "full"
  })
  const ask = (...items: ReadonlyArray<number>) =>
    Effect.tap(
      Effect.forkChild(shared(items), { startImmediately: true }),
      // What can begin has begun.
      () => Effect.repeat(Effect.yieldNow, { times: 3 })
    )
  /** The answer of one that is not let in: at once, and not when the call that is under way has ended. */
  const refused = (...items: ReadonlyArray<number>) =>
    Effect.flatMap(ask(...items), (fiber) => {
      assert.isDefined(fiber.pollUnsafe(), "it is told at once")
      return Effect.flip(Fiber.join(fiber))
    })
  return { ask, refused, calls, open: Deferred.succeed(gate, undefined) }
})

const asked: ReadonlyArray<
  readonly [string, ReadonlyArray<ReadonlyArray<number>>, ReadonlyArray<ReadonlyArray<number>>]
> = [
  ["gather while one is under way", [[1], [2], [3, 4]], [[1], [2, 3, 4]]],
  ["are no more items than a call takes", [[1], [2, 3, 4], [5, 6], [7]], [[1], [2, 3, 4, 7], [5, 6]]],
  ["weigh no more than a call takes", [[1], [60], [41], [40]], [[1], [60, 40], [41]]],
  ["share no name within a call", [[1], [2, 3], [3, 4], [5]], [[1], [2, 3, 5], [3, 4]]],
  ["make a call alone where one brings more than that", [[1], [2, 3, 4, 5, 6], [7]], [[1], [2, 3, 4, 5, 6], [7]]]
]

for (const [what, callers, calls] of asked) {
  it.effect(`those that ask ${what}, and each gets its own answers`, () =>
    Effect.gen(function*() {
      const { ask, calls: made, open } = yield* stage
      const fibers = yield* Effect.forEach(callers, (items) => ask(...items))
      yield* open
      const answers = yield* Effect.forEach(fibers, Fiber.join)
      assert.deepStrictEqual(answers, callers.map((items) => items.map((item) => -item)))
      assert.deepStrictEqual(made, calls)
    }).pipe(Effect.scoped))
}

it.effect("of those that wait there are so many, and who has gone makes room", () =>
  Effect.gen(function*() {
    const { ask, calls, open, refused } = yield* stage
    yield* ask(1)
    const waiting = yield* Effect.forEach([2, 3, 4, 5, 6, 7], (item) => ask(item))
    assert.strictEqual(yield* refused(8), "full")
    yield* Fiber.interrupt(waiting[0]!)
    const late = yield* ask(9)
    yield* open
    assert.deepStrictEqual(yield* Fiber.join(late), [-9])
    assert.notInclude(calls.flat(), 2)
  }).pipe(Effect.scoped))

it.effect("what is held for all of them is bounded, and who brings more than that is served where there is no other", () =>
  Effect.gen(function*() {
    const { ask, open, refused } = yield* stage
    const large = yield* ask(301)
    assert.strictEqual(yield* refused(1), "full")
    yield* open
    assert.deepStrictEqual(yield* Fiber.join(large), [-301])
    assert.deepStrictEqual(yield* Fiber.join(yield* ask(1)), [-1])
  }).pipe(Effect.scoped))

it.effect("who has gone weighs nothing", () =>
  Effect.gen(function*() {
    const { ask, open } = yield* stage
    yield* ask(1)
    yield* Fiber.interrupt(yield* ask(299))
    const next = yield* ask(298)
    yield* open
    assert.deepStrictEqual(yield* Fiber.join(next), [-298])
  }).pipe(Effect.scoped))
