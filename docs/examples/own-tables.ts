/** Tables of one's own beside the jobs, in the Postgres that Deadman brings along. `node own-tables.ts` */
// #region tables
import { Deadman, Effects, Job } from "deadman"
import { Schema } from "effect"
import pg from "pg"

const count = Job.define({ type: "visit.count", payload: Schema.Struct({ page: Schema.String }) })

const jobs = await Deadman.start() // starts that Postgres, or joins it: now it has an address
const pool = new pg.Pool({ connectionString: jobs.databaseUrl })
await pool.query("CREATE TABLE IF NOT EXISTS visit (page text)")

const counter = count.handle(async ({ page }, context) => {
  const client = await pool.connect()
  try {
    const query = (text: string, params: Array<unknown>) => client.query(text, params)
    await Effects.onceWith(context, "count", query, () => client.query("INSERT INTO visit VALUES ($1)", [page]))
  } finally {
    client.release()
  }
})

const worker = await Deadman.start({ handlers: [counter] })
// #endregion

const ended = await jobs.wait(await jobs.submit(count, { page: "/welcome" }))
const { rows } = await pool.query("SELECT count(*)::int AS visits FROM visit")
console.log(ended.state, rows[0].visits)
await worker.stop()
await pool.end()
await jobs.stop()
