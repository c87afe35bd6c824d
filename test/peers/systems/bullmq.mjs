import { Queue, Worker } from "bullmq"
import { Redis } from "ioredis"
import { redisPort } from "../common.mjs"

const name = "bench"
const connection = { host: "127.0.0.1", port: redisPort, maxRetriesPerRequest: null }
const tuned = { worker: { concurrency: 100 }, job: { removeOnComplete: true } }
const byDefault = { worker: {}, job: {} }
const modes = { default: byDefault, notified: byDefault, latency: tuned, tuned }

export const reset = async () => {
  const redis = new Redis(redisPort, "127.0.0.1")
  await redis.flushall()
  await redis.quit()
}

export const producer = async ({ mode }) => {
  const queue = new Queue(name, { connection })
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
    connection,
    autorun: false,
    ...modes[mode].worker
  })
  worker.on("error", (error) => console.error(`bullmq: ${error.message}`))
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
  asking ??= new Queue(name, { connection })
  const counts = await asking.getJobCounts("wait", "active", "paused", "prioritized")
  return Object.values(counts).reduce((sum, n) => sum + n, 0)
}

export const done = async () => asking?.close()
