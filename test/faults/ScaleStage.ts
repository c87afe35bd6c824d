/** A stage for faults over all three: Postgres, and a Redis and a Kafka of its own to be frozen, killed and wiped. */
import { Context, Effect, Layer } from "effect"
import { readdirSync, readFileSync, readlinkSync } from "node:fs"
import * as Topics from "../../deploy/services/Topics.ts"
import * as KafkaServer from "../support/KafkaServer.ts"
import * as RedisServer from "../support/RedisServer.ts"
import * as Stage from "./Stage.ts"

export class Servers extends Context.Service<Servers, {
  readonly redis: RedisServer.RedisServer
  readonly kafka: KafkaServer.KafkaServer
}>()("deadman/test/faults/ScaleStage/Servers") {}

/** With topics made beforehand where they are named, else the programs make them. */
export const layer = (topics: ReadonlyArray<Topics.Topic> = [], env: Readonly<Record<string, string>> = {}) =>
  Layer.unwrap(Effect.gen(function*() {
    const [redis, kafka] = yield* Effect.all([RedisServer.start(), KafkaServer.start()], { concurrency: 2 })
    if (topics.length > 0) {
      yield* kafka.createTopics(topics)
    }
    return Layer.merge(
      Stage.layer({ DEADMAN_REDIS_URL: redis.url, DEADMAN_KAFKA_BROKERS: kafka.brokers, ...env }),
      Layer.succeed(Servers, { redis, kafka })
    )
  })).pipe(Layer.orDie)

/** Messages on `jobs.ready` that the workers have not committed, by partition. */
export const lag = Effect.flatMap(
  Servers,
  ({ kafka }) =>
    Topics.withAdmin(kafka.brokers, "read offsets", (admin) =>
      Promise.all([
        admin.fetchTopicOffsets("jobs.ready"),
        admin.fetchOffsets({ groupId: "deadman", topics: ["jobs.ready"] })
      ]))
).pipe(Effect.map(([ends, [group]]) => {
  const committed = new Map(group?.partitions.map(({ offset, partition }) => [partition, Number(offset)]))
  return ends.map(({ offset, partition }) => Number(offset) - Math.max(0, committed.get(partition) ?? 0))
}))

export const caughtUp = Effect.map(lag, (all) => all.every((behind) => behind === 0))

/** Open connections of a process to a port of this machine. Linux only. */
export const connections = (pid: number, port: number) =>
  Effect.sync(() => {
    const hex = port.toString(16).toUpperCase().padStart(4, "0")
    const sockets = new Set(
      [...readFileSync(`/proc/${pid}/net/tcp`, "utf8"), "\n", ...readFileSync(`/proc/${pid}/net/tcp6`, "utf8")].join("")
        .split("\n").map((line) => line.trim().split(/\s+/))
        .filter((fields) => fields[2]?.endsWith(`:${hex}`) === true && fields[3] === "01")
        .map((fields) => `socket:[${fields[9]}]`)
    )
    return readdirSync(`/proc/${pid}/fd`).filter((fd) => {
      try {
        return sockets.has(readlinkSync(`/proc/${pid}/fd/${fd}`))
      } catch {
        // Closed since the folder was read.
        return false
      }
    }).length
  })

/** Bytes that a process holds in memory. Linux only. */
export const residentBytes = (pid: number) =>
  Effect.sync(() => Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0) * 1_024)

/** How many of these runs were under way at once, at most. */
export const overlap = (runs: ReadonlyArray<{ readonly started: number; readonly finished: number }>): number => {
  const steps = runs.flatMap(({ finished, started }) => [[started, 1], [finished, -1]] as const)
    // One that ends as another begins makes room for it.
    .toSorted(([a, up], [b, down]) => a - b || up - down)
  let open = 0
  let most = 0
  for (const [, step] of steps) {
    open += step
    most = Math.max(most, open)
  }
  return most
}
