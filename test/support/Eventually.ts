/** Waiting for a condition: polled on the real clock, and never without a bound. */
import { Clock, Duration, Effect } from "effect"
import { TestClock } from "effect/testing"

/** The real clock, whatever clock the test runs on. */
export const live = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.flatMap(Clock.Clock, (clock) => "withLive" in clock ? TestClock.withLive(effect) : effect)

/** Asked so often at least: a bound that ends while this very process stands still says nothing of what it waits for. */
const asksMin = 20

/** Asks until `check` answers true, and fails the test with `what` if it does not within the bound. */
export const eventually = <E, R>(
  what: string,
  check: Effect.Effect<boolean, E, R>,
  within: Duration.Input = "60 seconds"
): Effect.Effect<void, E, R> =>
  Effect.gen(function*() {
    const until = (yield* live(Clock.currentTimeMillis)) + Duration.toMillis(within)
    for (let asks = 1; !(yield* check); asks++) {
      if (asks >= asksMin && (yield* live(Clock.currentTimeMillis)) > until) {
        return yield* Effect.die(new Error(`Did not come true in time: ${what}`))
      }
      yield* live(Effect.sleep("10 millis"))
    }
  })
