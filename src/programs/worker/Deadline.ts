/**
 * A deadline that holds even if what it cuts off cannot be interrupted.
 *
 * `Effect.timeout` waits until the interrupted effect has ended. A driver that
 * is stuck in a read may take seconds for that, and a heartbeat that waits with
 * it misses its own deadline. Here the effect runs in a fiber of its own, which
 * is left behind.
 */
import { Effect, Fiber } from "effect"

/** Why an answer is given up, in words. */
export const noAnswer = (ms: number): Error => new Error(`no answer within ${ms} ms`)

export const within = <A, E, R, E2>(
  effect: Effect.Effect<A, E, R>,
  ms: number,
  late: () => E2
): Effect.Effect<A, E | E2, R> =>
  Effect.flatMap(Effect.forkDetach(effect, { startImmediately: true }), (fiber) => {
    const leave = Effect.sync(() => fiber.interruptUnsafe())
    return Fiber.join(fiber).pipe(
      Effect.timeoutOrElse({
        duration: Math.max(0, ms),
        orElse: () => Effect.andThen(leave, Effect.suspend(() => Effect.fail(late())))
      }),
      Effect.onInterrupt(() => leave)
    )
  })
