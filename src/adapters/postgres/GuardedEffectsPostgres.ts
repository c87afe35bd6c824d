/**
 * `GuardedEffects` in one statement: the guard's row, the fence, and the commit.
 *
 * `deadman.once` raises where the claim is not current, so nothing of it stays.
 * Since it is one round trip, there is no moment at which a worker that freezes
 * has a job locked.
 */
import { Effect, Layer } from "effect"
import { ClaimNotCurrent, GuardedEffects, GuardedEffectsUnavailable } from "../../ports/GuardedEffects.ts"
import { Database } from "./Database.ts"

/** What `deadman.fence` raises. */
const notCurrent = "DM001"

const deadlineMs = 2_000

const onceSql = `SELECT deadman.once($1::text, $2::uuid, $3::int, $4::uuid, $5::text) AS fired`

const make = Effect.gen(function*() {
  const database = yield* Database

  const once: GuardedEffects["Service"]["once"] = Effect.fn("GuardedEffectsPostgres.once")(
    function*(claim, key, worker) {
      const [row] = yield* database.query<{ fired: boolean }>(
        "handler",
        onceSql,
        [key, claim.id, claim.epoch, claim.lease, worker],
        { deadlineMs }
      ).pipe(
        Effect.mapError((cause) =>
          cause.code === notCurrent ? new ClaimNotCurrent({ claim }) : new GuardedEffectsUnavailable({ cause })
        )
      )
      return row?.fired === true ? "fired" as const : "already" as const
    }
  )

  return GuardedEffects.of({ once })
})

export const layer: Layer.Layer<GuardedEffects, never, Database> = Layer.effect(GuardedEffects, make)
