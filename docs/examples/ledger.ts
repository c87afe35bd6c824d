/**
 * Handlers whose SQL happens exactly once, with Effect SQL: a module for the shipped worker.
 *
 * `DEADMAN_HANDLERS=./ledger.ts npx deadman worker`, and then `node ledger-submit.ts`.
 */
// #region once
import { CurrentJob, Effects, Job } from "deadman"
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"

export const charge = Job.define({
  type: "order.charge",
  payload: Schema.Struct({ order: Schema.Int, cents: Schema.Int })
})

const charger = charge.handle(({ cents, order }) =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    // The SQL and its guard commit together. The key is the job's own: a later run of this job gets `Already`.
    const charged = yield* Effects.once("charge", sql`INSERT INTO charge (buys, cents) VALUES (${order}, ${cents})`)
    // Whatever goes wrong from here on, the charge is not made again.
    const { job } = yield* CurrentJob
    if (job.attempt === 1) yield* Effect.die(new Error("the printer of receipts is away"))
    return charged._tag
  })
)
// #endregion

// #region complete
export const deliver = Job.define({
  type: "order.deliver",
  payload: Schema.Struct({ order: Schema.Int }),
  result: Schema.Struct({ delivered: Schema.Boolean })
})

const deliverer = deliver.handle(({ order }) =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    // The SQL and the end of the job commit together, with the value as the job's result.
    return yield* Effects.complete(
      Effect.as(sql`UPDATE charge SET delivered = true WHERE buys = ${order}`, { delivered: true })
    )
  })
)
// #endregion

// #region load
import { PgClient } from "@effect/sql-pg"
import { Config } from "effect"

export const layer = PgClient.layerConfig({ url: Config.Redacted("DEADMAN_DATABASE_URL") })
export const handlers = [charger, deliverer]
// #endregion
