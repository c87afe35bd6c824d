/**
 * Asks again, a few times, where somebody else changed what was looked at before it was written.
 *
 * Nothing is locked between looking and writing, so that whoever freezes in between holds up nobody; the price is that
 * a statement may find everything moved on, and has to be tried anew.
 */
import { Effect } from "effect"
import { DatabaseFailed } from "./DatabaseFailed.ts"

const roundMax = 5

/** Until there is an answer other than `undefined`; `late` where there never is. */
export const untilAnswered = <A, E, R, E2>(
  round: Effect.Effect<A | undefined, E, R>,
  late: () => E2
): Effect.Effect<A, E | E2, R> =>
  Effect.gen(function*() {
    for (let n = 0; n < roundMax; n++) {
      const answer = yield* round
      if (answer !== undefined) {
        return answer
      }
    }
    return yield* Effect.fail(late())
  })

/** It kept changing: as good as a row that somebody else has locked. */
export const busy = (message: string) => new DatabaseFailed({ kind: "locked", code: null, constraint: null, message })
