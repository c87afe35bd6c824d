/** Says that something fails: when it begins, every ten seconds while it lasts, and once when it is over. */
import { Effect, Random } from "effect"
import * as Words from "../process/Words.ts"

export interface Outage {
  readonly failed: (nowMs: number, error: unknown) => Effect.Effect<void>
  readonly worked: Effect.Effect<void>
  /** Failures in a row. */
  readonly count: () => number
}

const quietMs = 10_000

export const make = (what: string): Outage => {
  let count = 0
  let saidMs = 0
  return {
    failed: (nowMs, error) =>
      Effect.suspend(() => {
        count += 1
        if (count > 1 && nowMs - saidMs < quietMs) {
          return Effect.void
        }
        saidMs = nowMs
        return Effect.logWarning(
          `${what} failed ${count === 1 ? "" : `${count} times in a row `}and is tried again`,
          error
        )
      }),
    worked: Effect.suspend(() => {
      const before = count
      count = 0
      return before === 0
        ? Effect.void
        : Effect.logInfo(`${what} works again after ${Words.counted(before, "failure")}`)
    }),
    count: () => count
  }
}

/** Does it again whenever it ends, after a pause that grows while it fails. */
export const keep = <E, R>(outage: Outage, now: () => number, effect: Effect.Effect<unknown, E, R>) =>
  Effect.forever(Effect.gen(function*() {
    yield* Effect.catchCause(effect, (cause) => outage.failed(now(), cause))
    yield* Effect.sleep(pauseMs(outage.count(), yield* Random.next))
  }))

/** How long to wait after `count` failures in a row, for a `draw` in `[0, 1)`. */
export const pauseMs = (count: number, draw: number): number =>
  Math.ceil(Math.min(2_000, 50 * 2 ** Math.min(count, 6)) * (0.5 + draw / 2))
