/**
 * Deadman as it is: its submitter in process, its built worker program, and its default settings in every mode.
 *
 * A worker's process loads the worker program and nothing of the submitter's.
 */
import { fileURLToPath } from "node:url"
import { sleep, sql, url } from "../common.mjs"

process.env.DEADMAN_DATABASE_URL = url
process.env.DEADMAN_LOG_LEVEL ??= "error"
// `deadman-scale.mjs` sets its own.
delete process.env.DEADMAN_REDIS_URL
delete process.env.DEADMAN_KAFKA_BROKERS
const submitting = () => import("./deadman-submitter.mjs")

export const reset = async () => {
  await sql("DROP SCHEMA IF EXISTS deadman CASCADE")
  await (await submitting()).migrate(url)
}

export const producer = async () => (await submitting()).producer()

/** Starts the worker program in this process. */
export const run = (onJob) => {
  process.env.DEADMAN_HANDLERS = fileURLToPath(new URL("./deadman-handlers.mjs", import.meta.url))
  globalThis.deadmanOnJob = onJob
  process.stdout.write = () => true
  return import("../../../dist/worker.js")
}

/** The worker program, connected and told to wait until `start`. */
export const worker = async (_mode, onJob) => {
  await sql(
    `INSERT INTO deadman.route (type, queue, paused) VALUES ('bench', 'default', true)
     ON CONFLICT (type, queue) DO UPDATE SET paused = true`
  )
  await run(onJob)
  for (let tries = 0; tries < 200; tries++) {
    const [{ n }] = await sql(
      `SELECT count(*)::int AS n FROM pg_stat_activity
       WHERE datname = current_database() AND application_name = 'deadman-worker'`
    )
    if (n >= 3) break
    await sleep(50)
  }
  await sleep(300)
  return {
    start: () =>
      sql(
        `WITH r AS (UPDATE deadman.route SET paused = false WHERE type = 'bench' RETURNING id)
         SELECT pg_notify('deadman_wake', 'r') FROM r`
      ),
    stop: async () => {}
  }
}

export const remaining = async () =>
  Number(
    (await sql(
      `SELECT coalesce(sum(n), 0) - (SELECT count(*) FROM deadman.job WHERE wait_ms > deadman.now_ms() + 86400000) AS n
       FROM deadman.tally WHERE state IN (0, 1, 2)`
    ))[0].n
  )

export const seedFuture = async (count) => {
  await sql(`INSERT INTO deadman.route (type, queue) VALUES ('bench', 'default') ON CONFLICT DO NOTHING`)
  await sql(
    `WITH x AS MATERIALIZED (
       SELECT gen_random_uuid() AS id, deadman.statement_ms() + 31536000000 + n * 1000 AS at_ms
       FROM generate_series(1, $1::int) n
     ), b AS (
       INSERT INTO deadman.body (id, payload, created_at_ms, max_attempts) SELECT id, '{"id":1}', at_ms, 10 FROM x
     ), t AS (
       INSERT INTO deadman.tally (route, state, n) SELECT id, 0, $1::int FROM deadman.route
     )
     INSERT INTO deadman.job (id, run_at_ms, wait_ms, route, bytes)
     SELECT x.id, x.at_ms, x.at_ms, r.id, 8 FROM x CROSS JOIN deadman.route r`,
    [count]
  )
  await sql("VACUUM ANALYZE deadman.job")
}

export const done = async () => {}
