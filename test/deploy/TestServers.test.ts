/** The servers that the run shares are there for the suites that ask for them. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { Redis } from "ioredis"
import { Kafka, logLevel } from "kafkajs"
import * as TestServers from "../support/TestServers.ts"

TestServers.describeWithRedis("the run's Redis", () => {
  it.live("takes commands", () =>
    Effect.gen(function*() {
      const url = yield* TestServers.redisUrl
      const answer = yield* Effect.acquireUseRelease(
        Effect.sync(() => new Redis(url)),
        (redis) => Effect.promise(() => redis.ping()),
        (redis) => Effect.sync(() => redis.disconnect())
      )
      assert.strictEqual(answer, "PONG")
    }))
})

TestServers.describeWithKafka("the run's Kafka", () => {
  it.live("has one broker, which is its controller", () =>
    Effect.gen(function*() {
      const brokers = yield* TestServers.kafkaBrokers
      const cluster = yield* Effect.acquireUseRelease(
        Effect.sync(() => new Kafka({ brokers: brokers.split(","), logLevel: logLevel.NOTHING }).admin()),
        (admin) => Effect.promise(() => admin.connect().then(() => admin.describeCluster())),
        (admin) => Effect.promise(() => admin.disconnect())
      )
      assert.lengthOf(cluster.brokers, 1)
    }), 180_000)
})
