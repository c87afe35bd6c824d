import { Logger, makeWorkerUtils, run, runMigrations } from "graphile-worker"
import { sql, url } from "../common.mjs"

const logger = new Logger(() => () => {})
const batching = { completeJobBatchDelay: 0, failJobBatchDelay: 0 }
const modes = {
  default: {},
  notified: {},
  // The settings of its own performance test, which serve latency best, and the best found for a drain.
  latency: { concurrentJobs: 24, maxPoolSize: 25, localQueue: { size: 500 }, ...batching },
  tuned: { concurrentJobs: 200, maxPoolSize: 25, localQueue: { size: 2000 }, ...batching }
}

export const reset = async () => {
  await sql("DROP SCHEMA IF EXISTS graphile_worker CASCADE")
  await runMigrations({ connectionString: url, logger })
}

export const producer = async ({ width }) => {
  const utils = await makeWorkerUtils({ connectionString: url, maxPoolSize: Math.min(width, 32), logger })
  return {
    add: (data) => utils.addJob("noop", data),
    addBulk: (all) => utils.addJobs(all.map((payload) => ({ identifier: "noop", payload }))),
    close: () => utils.release()
  }
}

export const worker = async (mode, onJob) => {
  let runner
  return {
    start: async () => {
      runner = await run({
        preset: { worker: { connectionString: url, logger, ...modes[mode] } },
        taskList: { noop: async (data) => onJob(data) },
        noHandleSignals: true,
        crontab: ""
      })
    },
    stop: () => runner.stop()
  }
}

export const remaining = async () =>
  Number((await sql("SELECT count(*) AS n FROM graphile_worker._private_jobs WHERE run_at <= now()"))[0].n)

export const seedFuture = async (count) => {
  await sql("SELECT graphile_worker.add_job('noop')")
  await sql("DELETE FROM graphile_worker._private_jobs")
  await sql(
    `INSERT INTO graphile_worker._private_jobs (task_id, payload, run_at)
     SELECT (SELECT id FROM graphile_worker._private_tasks WHERE identifier = 'noop'), '{"id":1}'::json,
            now() + interval '1 year' + n * interval '1 second' FROM generate_series(1, $1::int) n`,
    [count]
  )
  await sql("VACUUM ANALYZE graphile_worker._private_jobs")
}

export const done = async () => {}
