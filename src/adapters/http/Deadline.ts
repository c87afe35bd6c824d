/** Waits for an answer no longer than a caller should. */
import { Effect, Fiber, Option } from "effect"
import * as ApiError from "./ApiError.ts"

const deadline = "4 seconds"

/**
 * The answer of a port, or 503.
 *
 * In a fiber of its own that is not waited for: a driver that is stuck cannot be interrupted at once, and the caller
 * must not hang with it.
 */
export const answered = <A, E, R>(ask: Effect.Effect<A, E, R>): Effect.Effect<A, ApiError.ApiError, R> =>
  Effect.forkDetach(ask).pipe(
    Effect.flatMap((fiber) => Effect.timeoutOption(Fiber.join(fiber), deadline)),
    Effect.mapError(() => ApiError.storeAway),
    Effect.flatMap(Option.match({
      onNone: () => Effect.fail(ApiError.storeAway),
      onSome: Effect.succeed
    }))
  )
