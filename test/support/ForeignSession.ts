/** A session of somebody else's, in the middle of a transaction. */
import { Deferred, Effect, Fiber } from "effect"
import { Database } from "../../src/adapters/postgres/Database.ts"

/** One that has done `statement`, and neither commits nor goes away until `use` is over. */
export const during = <A, E, R>(
  statement: string,
  params: ReadonlyArray<unknown>,
  use: Effect.Effect<A, E, R>
) =>
  Effect.gen(function*() {
    const database = yield* Database
    const done = yield* Deferred.make<void>()
    const begun = yield* Deferred.make<void>()
    const foreign = yield* Effect.forkChild(database.transaction(
      "handler",
      (session) =>
        session.query(statement, params).pipe(
          Effect.andThen(Deferred.succeed(begun, undefined)),
          Effect.andThen(Deferred.await(done))
        ),
      { deadlineMs: 20_000 }
    ))
    yield* Deferred.await(begun)
    const value = yield* use
    yield* Deferred.succeed(done, undefined)
    yield* Fiber.join(foreign)
    return value
  })
