/** Handlers whose SQL happens exactly once, with `pg`. `DATABASE_URL` names the Postgres that has the jobs. */
// #region once
import { Deadman, Effects, Job } from "deadman"
import { Schema } from "effect"
import pg from "pg"

const pay = Job.define({
  type: "invoice.pay",
  payload: Schema.Struct({ invoice: Schema.Int })
})

const pool = new pg.Pool({ connectionString: process.env["DATABASE_URL"] })

const payer = pay.handle(async ({ invoice }, context) => {
  const client = await pool.connect()
  try {
    // BEGIN, the guard, the work and COMMIT, all on this connection. A later run of this job gets `Already`.
    const query = (text: string, params: Array<unknown>) => client.query(text, params)
    const paid = await Effects.onceWith(
      context,
      "pay",
      query,
      () => client.query("INSERT INTO payment (invoice) VALUES ($1)", [invoice])
    )
    if (context.job.attempt === 1) throw new Error("the printer of receipts is away")
    return paid._tag
  } finally {
    client.release()
  }
})
// #endregion

// #region complete
const close = Job.define({
  type: "invoice.close",
  payload: Schema.Struct({ invoice: Schema.Int }),
  result: Schema.Struct({ closed: Schema.Boolean })
})

const closer = close.handle(async ({ invoice }, context) => {
  const client = await pool.connect()
  try {
    const query = (text: string, params: Array<unknown>) => client.query(text, params)
    return await Effects.completeWith(context, query, async () => {
      await client.query("UPDATE payment SET closed = true WHERE invoice = $1", [invoice])
      return { closed: true } // the job's result
    })
  } finally {
    client.release()
  }
})
// #endregion

await pool.query("CREATE TABLE IF NOT EXISTS payment (invoice int, closed boolean NOT NULL DEFAULT false)")
const deadman = await Deadman.start({ databaseUrl: process.env["DATABASE_URL"], handlers: [payer, closer] })

const paid = await deadman.wait(await deadman.submit(pay, { invoice: 7 }))
const closed = await deadman.wait(await deadman.submit(close, { invoice: 7 }))
const { rows } = await pool.query("SELECT count(*)::int AS payments, bool_and(closed) AS closed FROM payment")
console.log(paid.state, paid.result, "after", paid.attempts, "failure,", rows[0].payments, "payment")
console.log(closed.state, closed.result, rows[0].closed)
await deadman.stop()
await pool.end()
