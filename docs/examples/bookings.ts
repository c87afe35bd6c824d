/** Handlers whose SQL happens exactly once, with `postgres`. `DATABASE_URL` names the Postgres that has the jobs. */
// #region guard
import { Deadman, Effects, Job } from "deadman"
import { Schema } from "effect"
import postgres from "postgres"

const book = Job.define({
  type: "seat.book",
  payload: Schema.Struct({ seat: Schema.String })
})

const sql = postgres(process.env["DATABASE_URL"] ?? "")

/** How `Effects` sends a statement within a transaction of this client. */
const on = (tx: postgres.TransactionSql): Effects.Query => (text, params) => tx.unsafe(text, params as Array<string>)

const booker = book.handle(async ({ seat }, context) => {
  const fired = await sql.begin(async (tx) => {
    if (!(await Effects.guard(context, "book", on(tx)))) return false // an earlier run of this job has done it
    await tx`INSERT INTO booking (seat) VALUES (${seat})`
    return true
  })
  if (context.job.attempt === 1) throw new Error("the printer of tickets is away")
  return fired
})
// #endregion

// #region completing
const confirm = Job.define({
  type: "seat.confirm",
  payload: Schema.Struct({ seat: Schema.String }),
  result: Schema.Struct({ confirmed: Schema.Boolean })
})

const confirmer = confirm.handle(({ seat }, context) =>
  sql.begin(async (tx) => {
    await tx`UPDATE booking SET confirmed = true WHERE seat = ${seat}`
    const result = { confirmed: true }
    await Effects.completing(context, result, on(tx)) // then the commit ends the job, with this as its result
    return result
  })
)
// #endregion

await sql`CREATE TABLE IF NOT EXISTS booking (seat text, confirmed boolean NOT NULL DEFAULT false)`
const deadman = await Deadman.start({ databaseUrl: process.env["DATABASE_URL"], handlers: [booker, confirmer] })

const booked = await deadman.wait(await deadman.submit(book, { seat: "12A" }))
const confirmed = await deadman.wait(await deadman.submit(confirm, { seat: "12A" }))
const [row] = await sql`SELECT count(*)::int AS bookings, bool_and(confirmed) AS confirmed FROM booking`
console.log(booked.state, booked.result, "after", booked.attempts, "failure,", row?.["bookings"], "booking")
console.log(confirmed.state, confirmed.result, row?.["confirmed"])
await deadman.stop()
await sql.end()
