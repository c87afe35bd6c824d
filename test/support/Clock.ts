/** Ways to let time pass, one for each kind of clock an adapter may keep, and to see how much has. */
import { Clock, type Duration, Effect } from "effect"
import { TestClock } from "effect/testing"
import { live } from "./Eventually.ts"

export type Pass = (duration: Duration.Input) => Effect.Effect<void>

/** For adapters on the Effect clock: no time passes, the clock is moved. */
export const adjust: Pass = TestClock.adjust

/** For adapters whose server keeps its own time: wait for it. */
export const wait: Pass = (duration) => live(Effect.sleep(duration))

/** What it answers, and how many milliseconds that took. */
export const timed = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function*() {
    const from = yield* Clock.monotonicTimeNanos
    const value = yield* effect
    return [value, Number(((yield* Clock.monotonicTimeNanos) - from) / 1_000_000n)] as const
  })
