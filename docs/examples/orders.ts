/**
 * An order and its job, stored in one transaction: both are there, or neither.
 *
 * `DATABASE_URL` names the Postgres that has the orders; the jobs live beside them, in the schema `deadman`.
 */
// #region orders
import { Deadman, Job, Transaction } from "deadman"
import { Schema } from "effect"
import pg from "pg"

const ship = Job.define({ type: "order.ship", payload: Schema.Struct({ order: Schema.Int }) })

const pool = new pg.Pool({ connectionString: process.env["DATABASE_URL"] })

const place = async (item: string, paid: boolean): Promise<void> => {
  const client = await pool.connect()
  try {
    await client.query("BEGIN")
    const { rows: [order] } = await client.query("INSERT INTO orders (item) VALUES ($1) RETURNING id", [item])
    await client.query(Transaction.statement(ship, { order: order.id }))
    if (!paid) throw new Error("the card was refused")
    await client.query("COMMIT")
  } catch (error) {
    await client.query("ROLLBACK")
    throw error
  } finally {
    client.release()
  }
}
// #endregion

await pool.query("CREATE TABLE IF NOT EXISTS orders (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text)")
const shipped: Array<number> = []
const deadman = await Deadman.start({
  databaseUrl: process.env["DATABASE_URL"],
  handlers: [ship.handle(({ order }) => void shipped.push(order))]
})

await place("a lamp", true)
const refused = await place("a chair", false).catch((error: Error) => error.message)

const { jobs } = await deadman.list({ type: "order.ship" })
for (const job of jobs) await deadman.wait(job.id)
const { rows } = await pool.query("SELECT count(*)::int AS n FROM orders")
console.log(rows[0].n, "order,", jobs.length, "job,", shipped.length, "shipped;", refused)
await deadman.stop()
await pool.end()
