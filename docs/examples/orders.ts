/** An order and its job, stored in one transaction: both are there, or neither. */
// #region orders
import { Deadman, Job, Transaction } from "deadman"
import { Schema } from "effect"
import pg from "pg"

const ship = Job.define({ type: "order.ship", payload: Schema.Struct({ order: Schema.Int }) })

const shipped: Array<number> = []
const deadman = await Deadman.start({
  handlers: [ship.handle(({ order }) => {
    shipped.push(order)
  })]
})

// The orders are in the Postgres of the jobs, which are beside them in its schema `deadman`.
const pool = new pg.Pool({ connectionString: deadman.databaseUrl })
await pool.query("CREATE TABLE IF NOT EXISTS orders (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text)")

const place = async (item: string, paid: boolean): Promise<string> => {
  const client = await pool.connect()
  try {
    await client.query("BEGIN")
    const { rows: [order] } = await client.query("INSERT INTO orders (item) VALUES ($1) RETURNING id", [item])
    const { rows: [job] } = await client.query(Transaction.statement(ship, { order: order.id }))
    if (!paid) throw new Error("the card was refused")
    await client.query("COMMIT")
    return job.id
  } catch (error) {
    await client.query("ROLLBACK")
    throw error
  } finally {
    client.release()
  }
}
// #endregion

// #region run
await deadman.wait(await place("a lamp", true))
const refused = await place("a chair", false).catch((error: Error) => error.message)

const { rows: [orders] } = await pool.query("SELECT count(*)::int AS n FROM orders")
const { jobs } = await deadman.list({ type: "order.ship" })
console.log(orders.n, "order,", jobs.length, "job,", shipped.length, "shipped;", refused)
await pool.end()
await deadman.stop()
// #endregion
