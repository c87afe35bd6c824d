/** Wakes all who wait for it. Rung while nobody waits, it wakes the next one at once. */
import { Effect } from "effect"

export interface Bell {
  readonly ring: () => void
  /** Until it rings, at most so long. */
  readonly wait: (ms: number) => Effect.Effect<void>
}

export const make = (): Bell => {
  let waiters = new Set<() => void>()
  let rung = false
  const rings = Effect.callback<void>((resume) => {
    if (rung) {
      rung = false
      return resume(Effect.void)
    }
    const waiter = () => resume(Effect.void)
    waiters.add(waiter)
    return Effect.sync(() => {
      waiters.delete(waiter)
    })
  })
  return {
    ring: () => {
      if (waiters.size === 0) {
        rung = true
        return
      }
      const all = waiters
      waiters = new Set()
      all.forEach((waiter) => waiter())
    },
    wait: (ms) => Effect.raceFirst(rings, Effect.sleep(ms))
  }
}
