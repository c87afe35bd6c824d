/** River, by the program of ../river, which run.mjs has built. */
import { execFileSync, spawn } from "node:child_process"
import { sql } from "../common.mjs"

const binary = process.env.PEERS_RIVER

export const reset = async () => {
  await sql("DROP SCHEMA IF EXISTS river CASCADE")
  await sql("CREATE SCHEMA river")
  execFileSync(binary, ["migrate"], { stdio: ["ignore", "ignore", "inherit"] })
}

export const program = (role, { mode, width = 0 }) =>
  spawn(binary, [role, mode === "notified" ? "latency" : mode, String(width)], { stdio: ["pipe", "pipe", "inherit"] })

const unfinished = "SELECT count(*) AS n FROM river.river_job WHERE state IN ('available', 'running', 'retryable')"
export const remaining = async () => Number((await sql(unfinished))[0].n)

export const done = async () => {}
