/**
 * Deadman's scale profile: what `deadman.mjs` does, with leases and delays in Redis and deliveries by Kafka.
 *
 * There is no relay: whoever submits publishes, once its flush is committed, so that the submitting process pays for
 * it. Redis and topics are emptied before each run, so that nothing of an earlier one is read.
 */
import { redisPort, sleep } from "../common.mjs"
import * as deadman from "./deadman.mjs"

const brokers = process.env.PEERS_KAFKA_BROKERS
const group = "deadman"
process.env.DEADMAN_REDIS_URL = `redis://127.0.0.1:${redisPort}`
process.env.DEADMAN_KAFKA_BROKERS = brokers

// Not in the process of a worker, which loads the worker program and nothing else of Deadman's.
const withTopics = async (use) => {
  const { Effect } = await import("effect")
  return Effect.runPromise(use(await import("../../../deploy/services/Topics.ts")))
}

const ask = (doing, use) => withTopics((topics) => topics.withAdmin(brokers, doing, use))

const until = async (what, seconds, ask) => {
  for (const end = Date.now() + seconds * 1_000; Date.now() < end; await sleep(20)) if (await ask()) return
  throw new Error(`${what}: not within ${seconds} s`)
}

const members = () =>
  ask("describe the group", async (admin) => (await admin.describeGroups([group])).groups[0].members.length)

export const reset = async () => {
  await deadman.reset()
  const { Redis } = await import("ioredis")
  const redis = new Redis(redisPort, "127.0.0.1")
  await redis.flushall()
  await redis.quit()
  await until("the workers of the last run leave their group", 15, async () => await members() === 0)
  await ask("delete topics", async (admin) => {
    const topics = (await admin.listTopics()).filter((topic) => topic.startsWith("jobs."))
    if (topics.length > 0) await admin.deleteTopics({ topics })
    await admin.deleteGroups([group]).catch(() => {})
  })
  await withTopics((topics) => topics.create(brokers))
}

export const { done, producer, remaining } = deadman

/** The worker program starts at `start`, so that it meets a topic that was filled before; it leaves its group at the end. */
export const worker = async (_mode, onJob) => ({
  start: () => deadman.run(onJob),
  stop: () => {
    process.kill(process.pid, "SIGTERM")
    return new Promise(() => {})
  }
})

/** Its worker is given deliveries. */
export const ready = () => until("the worker joins its group", 15, async () => await members() > 0)

/** Everything in the topic is committed as settled or dropped. */
export const acknowledged = () =>
  ask("compare offsets", async (admin) => {
    const sum = (offsets) => offsets.reduce((sum, { offset }) => sum + Math.max(0, Number(offset)), 0)
    const ends = sum(await admin.fetchTopicOffsets("jobs.ready"))
    for (let tries = 0; tries < 300; tries++) {
      const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: ["jobs.ready"] })
      if (sum(partitions) >= ends) return ends
      await sleep(50)
    }
    throw new Error("the group does not commit what it was given")
  })
