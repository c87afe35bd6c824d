/**
 * Something may have changed: look again.
 *
 * Saying it twice before anybody looked is saying it once. `notify` never runs
 * the one who waits on the spot: it is safe in the middle of anything, and what
 * happens in one turn of the event loop is looked at once, together.
 */
import { Effect, type Fiber, type Scheduler } from "effect"

export interface Signal {
  readonly notify: () => void
  /** The same, but who waits goes on at once: for a caller that is in the middle of nothing. */
  readonly notifyNow: () => void
  /** Until it was said since the last wait ended, or for `ms` at most. One waiter at a time. */
  readonly wait: (ms: number) => Effect.Effect<void>
}

export const make = (): Signal => {
  let turns: Scheduler.SchedulerDispatcher | null = null
  let said = false
  /** Resumes who waits. */
  let waiter: (() => void) | null = null
  let timer: Fiber.Fiber<void> | null = null
  // It resumes who waits at once, so it is called in a turn of its own.
  const open = () => {
    waiter?.()
  }
  const taken = Effect.sync(() => {
    turns = null
    said = false
    waiter = null
    timer?.interruptUnsafe()
    timer = null
  })
  return {
    notify: () => {
      if (said) {
        return
      }
      said = true
      turns?.scheduleTask(open, 0)
    },
    notifyNow: () => {
      said = true
      open()
    },
    wait: (ms) =>
      Effect.withFiber((fiber) => {
        turns = fiber.currentDispatcher
        const runFork = Effect.runForkWith(fiber.context)
        // By hand and not as a race, which is two more fibers: this is waited for several times a job where jobs come
        // one by one.
        const opened = Effect.callback<void>((resume) => {
          const done = () => resume(Effect.void)
          if (said) {
            return done()
          }
          waiter = done
          if (ms === Number.POSITIVE_INFINITY) {
            return
          }
          // Whole milliseconds, upwards: a timer that fires early would find nothing to do and wait again, at once.
          timer = runFork(Effect.sleep(Math.max(0, Math.ceil(ms))))
          timer.addObserver(done)
        })
        return Effect.ensuring(opened, taken)
      })
  }
}
