import { PgBoss } from "pg-boss"
import { sql, url } from "../common.mjs"

const queue = "bench"
const modes = {
  default: { boss: {}, queue: {}, work: {} },
  latency: {
    boss: { max: 10, useListenNotify: true },
    queue: { notify: true },
    work: { batchSize: 500, localConcurrency: 4, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 }
  },
  tuned: {
    boss: { max: 10 },
    queue: {},
    work: { batchSize: 2000, localConcurrency: 2, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 }
  }
}

const settingsOf = (mode) => modes[mode === "notified" ? "latency" : mode]

const make = (options = {}) => {
  const boss = new PgBoss({ connectionString: url, ...options })
  boss.on("error", (error) => console.error(`pg-boss: ${error.message}`))
  return boss
}

export const reset = async (mode) => {
  await sql("DROP SCHEMA IF EXISTS pgboss CASCADE")
  const boss = make()
  await boss.start()
  await boss.createQueue(queue, settingsOf(mode).queue)
  await boss.stop({ graceful: false, wait: true })
}

export const producer = async ({ width }) => {
  const boss = make({ max: Math.min(width, 32), supervise: false, schedule: false })
  await boss.start()
  return {
    add: (data) => boss.send(queue, data),
    addBulk: (all) => boss.insert(queue, all.map((data) => ({ data }))),
    close: () => boss.stop({ graceful: false, wait: true })
  }
}

export const worker = async (mode, onJob) => {
  const boss = make(settingsOf(mode).boss)
  await boss.start()
  return {
    start: () =>
      boss.work(queue, settingsOf(mode).work, async (jobs) => {
        for (const job of jobs) onJob(job.data)
      }),
    stop: () => boss.stop({ graceful: false, wait: true })
  }
}

export const remaining = async () =>
  Number(
    (await sql(
      `SELECT count(*) AS n FROM pgboss.job
       WHERE name = $1 AND state IN ('created', 'retry', 'active') AND start_after <= now()`,
      [queue]
    ))[0].n
  )

export const seedFuture = async (count) => {
  const [{ table }] = await sql(`SELECT table_name AS table FROM pgboss.queue WHERE name = $1`, [queue])
  await sql(
    `INSERT INTO pgboss.${table} (name, data, state, start_after, keep_until, retry_limit, policy)
     SELECT $1, '{"id":1}'::jsonb, 'created'::pgboss.job_state, now() + interval '1 year' + n * interval '1 second',
            now() + interval '2 year', 2, 'standard' FROM generate_series(1, $2::int) n`,
    [queue, count]
  )
  await sql(`VACUUM ANALYZE pgboss.${table}`)
}

export const done = async () => {}
