/**
 * Typed handlers with a layer for what they need: entries of a ledger, in the handler's own transaction.
 *
 * The table is the test's: `public.ledger (account text, amount int)`.
 */
import { PgClient } from "@effect/sql-pg"
import { Config, Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { complete, once } from "../../../src/adapters/postgres/OwnTransaction.ts"
import { CurrentJob } from "../../../src/ports/CurrentJob.ts"
import * as Job from "../../../src/programs/Job.ts"

const Entry = Schema.Struct({
  account: Schema.String,
  amount: Schema.Int,
  /** How long the transaction of the first delivery stays open. */
  holds_ms: Schema.optionalKey(Schema.Int)
})

const deposit = Job.define({ type: "deposit", payload: Entry, result: Schema.Struct({ balance: Schema.Int }) })
const charge = Job.define({ type: "charge", payload: Entry })
const pay = Job.define({ type: "pay", payload: Entry })

const enter = Effect.fnUntraced(function*({ account, amount, holds_ms = 0 }: typeof Entry.Type) {
  const sql = yield* SqlClient.SqlClient
  const { job, log } = yield* CurrentJob
  yield* sql`INSERT INTO public.ledger (account, amount) VALUES (${account}, ${amount})`
  yield* log("entered")
  yield* Effect.sleep(job.delivery > 1 ? 0 : holds_ms)
  const [row] = yield* sql<
    { balance: number }
  >`SELECT sum(amount)::int AS balance FROM public.ledger WHERE account = ${account}`
  return { balance: row?.balance ?? 0 }
})

export const layer = PgClient.layerConfig({ url: Config.Redacted("DEADMAN_DATABASE_URL") })

export const handlers = {
  deposit: deposit.handle((entry) => complete(enter(entry))),
  // Goes on after its effect for so long.
  pay: pay.handle(({ holds_ms = 0, ...entry }) =>
    Effect.gen(function*() {
      const { job } = yield* CurrentJob
      const { _tag } = yield* once("pay", enter(entry))
      yield* Effect.sleep(job.delivery > 1 ? 0 : holds_ms)
      return _tag
    })
  ),
  // Fails after its effect: the next attempt must not do it again.
  charge: charge.handle((entry) =>
    Effect.gen(function*() {
      const { job } = yield* CurrentJob
      const { _tag } = yield* once("charge", enter(entry))
      return job.attempt < 3 ? yield* Effect.die(new Error(`attempt ${job.attempt}`)) : _tag
    })
  )
}
