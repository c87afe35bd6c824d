/** Submits to a worker that has loaded ledger.ts, and looks at what its handlers wrote. */
import { Deadman } from "deadman"
import pg from "pg"
import { charge, deliver } from "./ledger.ts"

const pool = new pg.Pool({ connectionString: process.env["DEADMAN_DATABASE_URL"] })
await pool.query("CREATE TABLE IF NOT EXISTS charge (buys int, cents int, delivered boolean NOT NULL DEFAULT false)")
const deadman = await Deadman.start()

const charged = await deadman.wait(await deadman.submit(charge, { order: 1, cents: 1_900 }))
const delivered = await deadman.wait(await deadman.submit(deliver, { order: 1 }))
const { rows } = await pool.query("SELECT count(*)::int AS charges, bool_and(delivered) AS delivered FROM charge")
console.log(charged.state, charged.result, "after", charged.attempts, "failure,", rows[0].charges, "charge")
console.log(delivered.state, delivered.result, rows[0].delivered)
await deadman.stop()
await pool.end()
