/**
 * Something may have changed: look again.
 *
 * Saying it twice before anybody looked is saying it once. Saying it never
 * runs the one who waits on the spot, so it is safe in the middle of anything.
 */
import { Effect, Latch } from "effect"

export interface Signal {
  readonly notify: () => void
  /** Until it was said since the last wait ended, or for `ms` at most. One waiter at a time. */
  readonly wait: (ms: number) => Effect.Effect<void>
}

export const make = (): Signal => {
  const latch = Latch.makeUnsafe(false)
  return {
    notify: () => {
      latch.openUnsafe()
    },
    wait: (ms) =>
      Effect.suspend(() =>
        latch.await.pipe(
          // Whole milliseconds, upwards: a timer that fires early would find nothing to do and wait again, at once.
          Effect.timeoutOption(Math.max(0, Math.ceil(ms))),
          Effect.map(() => {
            latch.closeUnsafe()
          })
        )
      )
  }
}
