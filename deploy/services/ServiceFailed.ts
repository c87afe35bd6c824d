/** The one error of this folder: a server cannot be had, in words that say what to do next. */
import { Effect, Schema } from "effect"

export class ServiceFailed extends Schema.TaggedError<ServiceFailed>()("ServiceFailed", {
  message: Schema.String
}) {}

/** Runs file system code; `doing` completes the sentence "cannot …". */
export const attempt = <A>(doing: string, run: () => A): Effect.Effect<A, ServiceFailed> =>
  Effect.try({
    try: run,
    catch: (cause) =>
      cause instanceof ServiceFailed
        ? cause
        : new ServiceFailed({ message: `cannot ${doing}: ${cause instanceof Error ? cause.message : String(cause)}` })
  })
