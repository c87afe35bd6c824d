/**
 * How long a failed job waits, with full jitter.
 *
 * Full jitter draws uniformly from `[0, ceiling]`, so jobs that failed together
 * do not come back together. The draw is a parameter: whoever calls brings it.
 * All values are whole milliseconds, as they stand in the API and in the table.
 */
import { Schema } from "effect"

/** A day: no single wait for a retry is longer. */
export const delayMaxMs = 86_400_000

const DelayMs = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: delayMaxMs }))

export const Fixed = Schema.Struct({ kind: Schema.Literal("fixed"), delay_ms: DelayMs })
export const Exponential = Schema.Struct({ kind: Schema.Literal("exponential"), base_ms: DelayMs, cap_ms: DelayMs })

/** `fixed` waits up to the same time after each failure, `exponential` up to `base_ms × 2^(attempt - 1)`, capped. */
export const Backoff = Schema.Union([Fixed, Exponential])
export type Backoff = typeof Backoff.Type

export const defaults: Backoff = { kind: "exponential", base_ms: 1_000, cap_ms: 900_000 }

/** The longest delay after `attempt` failures (1-based): finite and never negative, for any attempt. */
export const ceilingMs = (backoff: Backoff, attempt: number): number => {
  if (backoff.kind === "fixed") {
    return backoff.delay_ms
  }
  // 2 ** 1024 is Infinity and 0 * Infinity is NaN; both must give the cap or 0.
  const doublings = Math.min(Math.max(attempt, 1) - 1, 64)
  return Math.min(backoff.cap_ms, backoff.base_ms * 2 ** doublings)
}

/** The delay itself, for a `draw` in `[0, 1)`. */
export const delayMs = (backoff: Backoff, attempt: number, draw: number): number =>
  Math.floor(ceilingMs(backoff, attempt) * draw)

/** After a lost lease: at most this, so that a killer does not meet the same neighbours. */
export const lossBaseMs = 250
export const lossCapMs = 900_000

/** The longest delay after `losses` lost leases (1-based): doubles with each. */
export const lossCeilingMs = (losses: number): number =>
  Math.min(lossCapMs, lossBaseMs * 2 ** Math.min(Math.max(losses, 1) - 1, 32))
