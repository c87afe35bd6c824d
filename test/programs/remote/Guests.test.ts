import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { TestClock } from "effect/testing"
import { JobType } from "../../../src/domain/Job.ts"
import { Sessions } from "../../../src/ports/Sessions.ts"
import type { Grants } from "../../../src/programs/remote/Grants.ts"
import * as Guests from "../../../src/programs/remote/Guests.ts"

const none: Pick<Grants, "all"> = { all: () => [] }

/** Guests whose reports are kept: when, and of whom. */
const make = Effect.gen(function*() {
  const clock = yield* Clock.Clock
  const now = () => clock.currentTimeMillisUnsafe()
  const said: Array<number> = []
  const sessions = Sessions.of({
    report: () => Effect.sync(() => void said.push(now())),
    leave: () => Effect.void,
    list: () => Effect.succeed([]),
    totals: Effect.succeed({})
  })
  const guests = Guests.make({ sessions, grants: none as Grants, now })
  yield* Effect.forkScoped(guests.run)
  return { guests, said }
})

const asked = { types: [JobType.make("t")], limit: 1 }

describe("Guests", () => {
  it.effect("a worker that is not heard of any more is not said to be there", () =>
    Effect.gen(function*() {
      const { guests, said } = yield* make
      guests.seen("w", asked)
      yield* TestClock.adjust("60 seconds")
      assert.strictEqual(said.length, 1)
      guests.seen("w", asked)
      yield* TestClock.adjust("60 seconds")
      assert.strictEqual(said.length, 2)
    }).pipe(Effect.scoped))

  it.effect("one that waits for jobs, or asks for some now and then, is said to be there for as long", () =>
    Effect.gen(function*() {
      const { guests, said } = yield* make
      guests.waits("w", 1)
      yield* TestClock.adjust("60 seconds")
      assert.isAtLeast(said.length, 6)
      guests.waits("w", -1)
      for (let asks = 0; asks < 20; asks++) {
        guests.seen("w", asked)
        yield* TestClock.adjust("6 seconds")
      }
      const gaps = said.slice(1).map((at, n) => at - said[n]!)
      assert.isBelow(Math.max(...gaps), 15_000)
    }).pipe(Effect.scoped))
})
