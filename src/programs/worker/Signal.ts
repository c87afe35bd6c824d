/**
 * Something may have changed: look again.
 *
 * Saying it twice before anybody looked is saying it once, and it never runs
 * the one who waits on the spot: it is safe in the middle of anything, and what
 * happens in one turn of the event loop is looked at once, together.
 */
import { Effect, Latch, type Scheduler } from "effect"

export interface Signal {
  readonly notify: () => void
  /** Until it was said since the last wait ended, or for `ms` at most. One waiter at a time. */
  readonly wait: (ms: number) => Effect.Effect<void>
}

export const make = (): Signal => {
  const latch = Latch.makeUnsafe(false)
  // `openUnsafe` resumes who waits at once, so it is called in a turn of its own.
  const open = () => {
    latch.openUnsafe()
  }
  let turns: Scheduler.SchedulerDispatcher | null = null
  let said = false
  const taken = Effect.sync(() => {
    turns = null
    said = false
    latch.closeUnsafe()
  })
  return {
    notify: () => {
      if (said) {
        return
      }
      said = true
      if (turns === null) {
        open()
      } else {
        turns.scheduleTask(open, 0)
      }
    },
    wait: (ms) =>
      Effect.withFiber((fiber) => {
        turns = fiber.currentDispatcher
        // Whole milliseconds, upwards: a timer that fires early would find nothing to do and wait again, at once.
        const opened = ms === Number.POSITIVE_INFINITY
          ? latch.await
          : Effect.asVoid(Effect.timeoutOption(latch.await, Math.max(0, Math.ceil(ms))))
        return Effect.ensuring(opened, taken)
      })
  }
}
