/** How an outage is told: when it begins, every ten seconds while it lasts, and when it is over. */
import { Clock, Effect } from "effect"

const quietMs = 10_000

export interface Trouble {
  readonly failed: (reason: string) => Effect.Effect<void>
  readonly over: Effect.Effect<void>
  /** Failures since it last went well. */
  readonly count: () => number
}

export const make = (what: string, meanwhile: string): Trouble => {
  let count = 0
  let sinceMs = 0
  let saidMs = Number.NEGATIVE_INFINITY
  const nowMs = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos / 1_000_000n))
  return {
    failed: (reason) =>
      Effect.flatMap(nowMs, (now) => {
        count += 1
        if (count === 1) {
          sinceMs = now
        }
        if (now - saidMs < quietMs) {
          return Effect.void
        }
        saidMs = now
        return Effect.logWarning(`${what} failed and is tried again; ${meanwhile} (${reason})`)
      }),
    over: Effect.flatMap(nowMs, (now) => {
      if (count === 0) {
        return Effect.void
      }
      count = 0
      saidMs = Number.NEGATIVE_INFINITY
      return Effect.logInfo(`${what} works again after ${((now - sinceMs) / 1_000).toFixed(1)} s`)
    }),
    count: () => count
  }
}
