/** Waits until what was loaded has ended, and says what stands in the way where it does not. */
import { Clock, Effect, Option } from "effect"
import type { Progress } from "./Progress.ts"

/** How many jobs are not at an end yet, by type. */
export type Left = Readonly<Record<string, number>>

export interface Waited {
  /** `null` if no look was answered. */
  readonly left: Left | null
  /** For how long none had ended when the waiting ended. */
  readonly quietMs: number
}

const lookEvery = "1 second"
const typesShown = 5
/** Handlers may take their time: less than this without an end says nothing. */
const quietSaidMs = 5_000

const sum = (left: Left): number => Object.values(left).reduce((all, n) => all + n, 0)

const now = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos / 1_000_000n))

/** Until nothing is left, or for so long. A look that fails is taken again: an outage is sat out. */
export const run = Effect.fnUntraced(function*<E, R>(options: {
  readonly total: number
  readonly seconds: number
  readonly left: Effect.Effect<Left, E, R>
  readonly show: Progress["show"]
}): Effect.fn.Return<Waited, never, R> {
  let left: Left | null = null
  let fewest = Number.POSITIVE_INFINITY
  let progressMs = yield* now
  yield* Effect.gen(function*() {
    while (fewest > 0) {
      const seen = yield* Effect.option(options.left)
      if (Option.isSome(seen)) {
        left = seen.value
        const n = sum(left)
        if (n < fewest) {
          fewest = n
          progressMs = yield* now
        }
        yield* options.show(Math.max(0, options.total - n))
      }
      yield* fewest > 0 ? Effect.sleep(lookEvery) : Effect.void
    }
  }).pipe(Effect.timeoutOption(`${options.seconds} seconds`))
  const waited: Waited = { left, quietMs: (yield* now) - progressMs }
  return waited
})

/** What is left, in one line; `null` if nothing is. */
export const complaint = ({ left, quietMs }: Waited, seconds: number): string | null => {
  if (left === null) {
    return `the database did not answer within ${seconds} s`
  }
  const types = Object.entries(left).filter(([, n]) => n > 0).sort(([, a], [, b]) => b - a)
  if (types.length === 0) {
    return null
  }
  const shown = types.slice(0, typesShown).map(([type, n]) => `${n} of type ${type}`)
  const more = types.length > typesShown ? [`${types.length - typesShown} more types`] : []
  const quiet = quietMs < quietSaidMs
    ? ""
    : `; none ended in the last ${Math.floor(quietMs / 1_000)} s: does a process with a handler run?`
  return `not every job ended within ${seconds} s: ${[...shown, ...more].join(", ")} left${quiet}`
}
