/**
 * How an outage is told: when it begins, every ten seconds while it lasts, and when it is over. And how long it is waited
 * before the next try: longer where the broker answers and refuses, since brokers count refused logins, and some lock
 * out who fails too often.
 */
import { Clock, Effect } from "effect"

const quietMs = 10_000
const pauseFirstMs = 100
const pauseMaxMs = 1_000
const refusedPauseMaxMs = 10_000

export interface Trouble {
  /** `refused`: no waiting cures it, but somebody may. */
  readonly failed: (reason: string, refused: boolean) => Effect.Effect<void>
  readonly over: Effect.Effect<void>
  /** Failures since it last went well. */
  readonly count: () => number
  /** Until the next try. */
  readonly pauseMs: () => number
}

export const make = (what: string, meanwhile: string): Trouble => {
  let count = 0
  let isRefused = false
  let sinceMs = 0
  let saidMs = Number.NEGATIVE_INFINITY
  const nowMs = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos / 1_000_000n))
  return {
    failed: (reason, refused) =>
      Effect.flatMap(nowMs, (now) => {
        count += 1
        isRefused = refused
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
    count: () => count,
    pauseMs: () => Math.min(isRefused ? refusedPauseMaxMs : pauseMaxMs, pauseFirstMs * 2 ** Math.min(count, 7))
  }
}
