/** When a flush leaves: counted in turns of the event loop, which are what a lane goes by. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { JobType } from "../../../src/domain/Job.ts"
import * as Lane from "../../../src/programs/submit/Lane.ts"
import * as Ids from "../../support/Ids.ts"
import * as Jobs from "../../support/Jobs.ts"

const entry = (): Lane.Entry => ({
  job: { id: Ids.jobId(), ...Jobs.draft({ type: JobType.make("t") }) },
  bytes: 400,
  deadlineNanos: 0n,
  answer: () => {}
})

const turn = Effect.callback<void>((resume) => {
  setImmediate(() => resume(Effect.void))
})

const subject = () => {
  const flushes: Array<ReadonlyArray<Lane.Entry>> = []
  const lane = Lane.make((entries) => void flushes.push(entries))
  return {
    lane,
    flushes,
    sizes: () => flushes.map((entries) => entries.length),
    offer: (count: number) => {
      for (let n = 0; n < count; n++) {
        assert.isTrue(lane.offer(entry()))
      }
    }
  }
}

it.effect("what one turn brings leaves together, two turns later", () =>
  Effect.gen(function*() {
    const { offer, sizes } = subject()
    offer(3)
    yield* turn
    assert.deepStrictEqual(sizes(), [], "the next turn may bring more")
    yield* turn
    assert.deepStrictEqual(sizes(), [3])
  }))

it.effect("while each turn brings more, the flush grows", () =>
  Effect.gen(function*() {
    const { offer, sizes } = subject()
    for (let n = 0; n < 5; n++) {
      offer(2)
      yield* turn
    }
    assert.deepStrictEqual(sizes(), [])
    yield* turn
    assert.deepStrictEqual(sizes(), [10])
  }))

it.effect("enough to be worth a statement leaves with the next turn", () =>
  Effect.gen(function*() {
    const { offer, sizes } = subject()
    offer(Lane.flushRowsEnough - 1)
    yield* turn
    assert.deepStrictEqual(sizes(), [])
    offer(1)
    yield* turn
    assert.deepStrictEqual(sizes(), [Lane.flushRowsEnough])
  }))

it.effect("a trickle does not hold up what came first", () =>
  Effect.gen(function*() {
    const { flushes, offer } = subject()
    let turns = 0
    while (flushes.length === 0) {
      offer(1)
      yield* turn
      turns += 1
      assert.isAtMost(turns, Lane.turnsMax + 1)
    }
    assert.lengthOf(flushes[0]!, Lane.turnsMax + 1)
  }))

it.effect("two flushes are under way at most, and the next gathers until one of them has landed", () =>
  Effect.gen(function*() {
    const { flushes, lane, offer, sizes } = subject()
    for (let n = 0; n < 3; n++) {
      offer(Lane.flushRowsEnough)
      yield* turn
    }
    offer(5)
    yield* turn
    yield* turn
    assert.deepStrictEqual(sizes(), [32, 32])
    lane.landed(flushes[0]!)
    yield* turn
    assert.deepStrictEqual(sizes(), [32, 32, 37])
  }))
