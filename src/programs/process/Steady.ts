/**
 * A background loop that outlives the failures of its rounds.
 *
 * A round that fails is logged when the trouble begins, every ten seconds while
 * it lasts, and once when it is over: an outage is a few lines, not a flood. The
 * loop beats after each round that went well, which is what readiness shows.
 */
import { Cause, Clock, Duration, Effect, Option, Random } from "effect"
import { Loops } from "./Loops.ts"
import * as Words from "./Words.ts"

const quietNanos = 10_000_000_000n

export interface SteadyOptions<A, E> {
  readonly name: string
  /** After this long without a good round the process is not ready. */
  readonly limit: Duration.Input
  /** What to wait for before the next round, given what the last one answered. */
  readonly pause: (answer: A) => Effect.Effect<void>
  /** The longest wait after a failed round; shorter at first, and jittered. */
  readonly retry: Duration.Input
  /** What is said while a round fails because somebody else is away, whom the process can do without: it is ready. */
  readonly degraded?: { readonly by: (error: E) => boolean; readonly reason: string }
}

/** Runs `round` for ever. Ends only by interruption. */
export const run = Effect.fnUntraced(function*<A, E, R>(
  options: SteadyOptions<A, E>,
  round: Effect.Effect<A, E, R>
): Effect.fn.Return<never, never, R | Loops> {
  const loops = yield* Loops
  const loop = yield* loops.register(options.name, Duration.toMillis(options.limit))
  const retryMs = Duration.toMillis(options.retry)
  let failures = 0
  let saidAt = 0n
  while (true) {
    const exit = yield* Effect.exit(round)
    if (exit._tag === "Success") {
      if (failures > 0) {
        yield* Effect.logInfo(`${options.name}: working again after ${Words.counted(failures, "failed round")}`)
        failures = 0
      }
      yield* loop.beat
      yield* loops.setDegraded(options.name, null)
      yield* options.pause(exit.value)
      continue
    }
    const error = Cause.findErrorOption(exit.cause)
    const away = Option.isSome(error) && options.degraded?.by(error.value) === true
    yield* loops.setDegraded(options.name, away ? options.degraded?.reason ?? null : null)
    if (away) {
      // It did what there was to do.
      yield* loop.beat
    }
    // Interrupted from outside this is the loop's end; interruption arrives at the next yield by itself.
    const now = yield* Clock.monotonicTimeNanos
    failures += 1
    if (failures === 1 || now - saidAt > quietNanos) {
      saidAt = now
      yield* Effect.logWarning(`${options.name}: round failed, trying again`, Cause.squash(exit.cause))
    }
    const draw = yield* Random.next
    yield* Effect.sleep(Duration.millis(Math.min(retryMs, 50 * 2 ** Math.min(failures, 10)) * (0.5 + draw / 2)))
  }
})
