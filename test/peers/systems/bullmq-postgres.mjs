/** BullMQ on its PostgreSQL backend. */
import { createPostgresBackend, Queue, runMigrations, Worker } from "bullmq"
import { Client } from "pg"
import { sql, url } from "../common.mjs"

const name = "bench"
const tuned = { worker: { concurrency: 32 }, job: { removeOnComplete: true }, max: 32 }
const modes = { default: { worker: {}, job: {}, max: 10 }, latency: tuned, tuned }
const to = (max) => ({ connection: { connectionString: url, max } })

export const reset = async () => {
  await sql("DROP SCHEMA IF EXISTS bullmq CASCADE")
  const client = new Client(url)
  await client.connect()
  await runMigrations(client)
  await client.end()
}

export const producer = async ({ mode, width }) => {
  const queue = new Queue(name, to(Math.min(width, 32)), createPostgresBackend)
  await queue.waitUntilReady()
  const opts = modes[mode].job
  return {
    add: (data) => queue.add("noop", data, opts),
    addBulk: (all) => queue.addBulk(all.map((data) => ({ name: "noop", data, opts }))),
    close: () => queue.close()
  }
}

export const worker = async (mode, onJob) => {
  const worker = new Worker(name, async (job) => onJob(job.data), {
    ...to(modes[mode].max),
    autorun: false,
    ...modes[mode].worker
  }, createPostgresBackend)
  worker.on("error", (error) => console.error(`bullmq on postgres: ${error.message}`))
  await worker.waitUntilReady()
  return {
    start: async () => {
      worker.run()
    },
    stop: () => worker.close(true)
  }
}

let asking
export const remaining = async () => {
  asking ??= new Queue(name, to(2), createPostgresBackend)
  const counts = await asking.getJobCounts("wait", "active", "prioritized")
  return Object.values(counts).reduce((sum, n) => sum + Number(n), 0)
}

export const done = async () => asking?.close()
