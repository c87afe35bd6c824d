/** What the measuring processes share: clocks that all processes of a machine agree on, CPU of servers, payloads. */
import { readdirSync, readFileSync } from "node:fs"
import { Client } from "pg"

export const url = process.env.PEERS_DATABASE_URL
export const redisPort = Number(process.env.PEERS_REDIS_PORT)

/** Milliseconds of CLOCK_MONOTONIC. */
export const now = () => Number(process.hrtime.bigint()) / 1e6
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

const nanosOf = (path) => {
  try {
    return Number(readFileSync(path, "utf8").split(" ")[0])
  } catch {
    // A thread that has just ended.
    return 0
  }
}

/** To the nanosecond, where `stat` counts in ticks of ten milliseconds: an idle server uses few of them in a minute. */
const ofThreads = (pid) =>
  readdirSync(`/proc/${pid}/task`).reduce(
    (sum, thread) => sum + nanosOf(`/proc/${pid}/task/${thread}/schedstat`) / 1e6,
    0
  )

const stat = (pid) => {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8")
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ").map(Number)
    return {
      parent: fields[1],
      title: readFileSync(`/proc/${pid}/cmdline`, "utf8"),
      // `stat` has what threads used that are gone.
      own: Math.max((fields[11] + fields[12]) * 10, ofThreads(pid)),
      children: (fields[13] + fields[14]) * 10
    }
  } catch {
    return null
  }
}

const servers = () =>
  (process.env.PEERS_SERVER_PIDS ?? "").split(" ").filter(Boolean).map(Number).flatMap((pid) =>
    readdirSync("/proc").filter((name) => /^\d+$/.test(name)).flatMap((entry) => {
      const found = stat(entry)
      const head = Number(entry) === pid
      return found !== null && (head || found.parent === pid) ? [{ ...found, pid: entry, head }] : []
    })
  )

/** CPU of the whole Postgres, of Redis and of Kafka so far, in ms: of those that were started. */
export const serverCpu = () =>
  servers().reduce((sum, { children, head, own }) => sum + (head ? own + children : own), 0)

/** A backend of Postgres is titled with its client: `postgres: deadman deadman 127.0.0.1(41078) idle`. */
const isBackend = ({ title }) => /^postgres: .* \S+\(\d+\) /.test(title)
const isOfPostgres = ({ title }) => /^postgres: |\/postgres\0/.test(title)

/** By process, of what those who are connected have done for them: a backend of Postgres, or all of another server. */
const connected = () =>
  new Map(servers().flatMap((server) => !isOfPostgres(server) || isBackend(server) ? [[server.pid, server.own]] : []))

/**
 * CPU of what those who are connected have done for them from here on, in ms, without what Postgres does with nobody
 * there, of which autovacuum alone is more than an idle worker and comes once a minute. A connection that ends is
 * counted to the last look, which is five seconds before that at most.
 */
export const connectedCpu = () => {
  const first = connected()
  const last = new Map()
  const look = () => connected().forEach((own, pid) => last.set(pid, own))
  const timer = setInterval(look, 5_000)
  return () => {
    clearInterval(timer)
    look()
    return Array.from(last).reduce((sum, [pid, own]) => sum + own - (first.get(pid) ?? 0), 0)
  }
}

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
