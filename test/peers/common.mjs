/** What the measuring processes share: clocks that all processes of a machine agree on, CPU of servers, payloads. */
import { readdirSync, readFileSync } from "node:fs"
import { Client } from "pg"

export const url = process.env.PEERS_DATABASE_URL
export const redisPort = Number(process.env.PEERS_REDIS_PORT)

/** Milliseconds of CLOCK_MONOTONIC. */
export const now = () => Number(process.hrtime.bigint()) / 1e6
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

const stat = (pid) => {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8")
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ").map(Number)
    return { parent: fields[1], own: (fields[11] + fields[12]) * 10, children: (fields[13] + fields[14]) * 10 }
  } catch {
    return null
  }
}

const familyMs = (pid) => {
  let sum = 0
  for (const entry of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    const found = stat(entry)
    if (found === null) continue
    if (Number(entry) === pid) sum += found.own + found.children
    else if (found.parent === pid) sum += found.own
  }
  return sum
}

/** CPU of the whole Postgres, of Redis and of Kafka so far, in ms: of those that were started. */
export const serverCpu = () =>
  (process.env.PEERS_SERVER_PIDS ?? "").split(" ").filter(Boolean).reduce((sum, pid) => sum + familyMs(Number(pid)), 0)

export const selfCpu = () => {
  const { system, user } = process.cpuUsage()
  return (user + system) / 1_000
}

export const sql = async (text, values) => {
  const client = new Client(url)
  await client.connect()
  try {
    return (await client.query(text, values)).rows
  } finally {
    await client.end()
  }
}

export const walBytes = async () => Number((await sql(`SELECT (pg_current_wal_lsn() - '0/0')::text AS n`))[0].n)

/** Equal starts for each run. */
export const settle = async () => {
  await sql("CHECKPOINT")
  await sleep(300)
}

export const percentile = (values, percent) => {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(percent / 100 * sorted.length) - 1))]
}

/** `width` submitters share `total` calls. */
export const pool = async (width, total, call) => {
  let next = 0
  await Promise.all(Array.from({ length: width }, async () => {
    while (next < total) await call(next++)
  }))
}

/** About 110 bytes, the same for every system. */
export const payload = (id) => ({ id, to: `user${id}@example.com`, kind: "noop", note: "x".repeat(40) })
