/** The Kafka of the tests carries messages, and loses or keeps them as a real one does when killed or wiped. */
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer, Option } from "effect"
import { Kafka, logLevel } from "kafkajs"
import { eventually } from "../support/Eventually.ts"
import * as KafkaServer from "../support/KafkaServer.ts"

class Broker extends Context.Service<Broker, KafkaServer.KafkaServer>()("deadman/test/deploy/KafkaServer.test/Broker") {
  static readonly layer = Layer.effect(Broker, KafkaServer.start())
}

const clientOf = (brokers: string) =>
  new Kafka({ clientId: "test", brokers: [brokers], logLevel: logLevel.NOTHING, retry: { retries: 20 } })

const send = (brokers: string, ...values: ReadonlyArray<string>) =>
  Effect.acquireUseRelease(
    Effect.promise(() => {
      const producer = clientOf(brokers).producer()
      return producer.connect().then(() => producer)
    }),
    (producer) =>
      Effect.promise(() => producer.send({ topic: "jobs.ready", messages: values.map((value) => ({ value })) })),
    (producer) => Effect.promise(() => producer.disconnect())
  )

/** What a new group receives from the beginning. */
const received = (brokers: string, groupId: string, count: number) =>
  Effect.gen(function*() {
    const values: Array<string> = []
    yield* Effect.acquireRelease(
      Effect.promise(() => {
        const consumer = clientOf(brokers).consumer({ groupId })
        return consumer.connect()
          .then(() => consumer.subscribe({ topic: "jobs.ready", fromBeginning: true }))
          .then(() =>
            consumer.run({ eachMessage: ({ message }) => Promise.resolve(void values.push(`${message.value}`)) })
          )
          .then(() => consumer)
      }),
      (consumer) => Effect.promise(() => consumer.disconnect())
    )
    yield* eventually(`${count} messages for ${groupId}`, Effect.sync(() => values.length >= count), "60 seconds")
    return values.sort()
  }).pipe(Effect.scoped)

/** How many the topic has: none where there is no such topic. */
const partitions = (brokers: string, topic: string) =>
  Effect.acquireUseRelease(
    Effect.promise(() => {
      const admin = clientOf(brokers).admin()
      return admin.connect().then(() => admin)
    }),
    (admin) =>
      Effect.promise(() =>
        admin.listTopics().then((topics) =>
          topics.includes(topic)
            ? admin.fetchTopicMetadata({ topics: [topic] }).then(({ topics: [found] }) => found?.partitions.length ?? 0)
            : 0
        )
      ),
    (admin) => Effect.promise(() => admin.disconnect())
  )

describe("KafkaServer", () => {
  layer(Broker.layer, { timeout: 150_000 })((it) => {
    it.effect("carries messages through the topics of Deadman", () =>
      Effect.gen(function*() {
        const { brokers, createTopics } = yield* Broker
        yield* createTopics()
        yield* createTopics()
        assert.strictEqual(yield* partitions(brokers, "jobs.ready"), 6)
        assert.strictEqual(yield* partitions(brokers, "jobs.dead"), 1)
        yield* send(brokers, "a", "b", "c")
        assert.deepStrictEqual(yield* received(brokers, "first", 3), ["a", "b", "c"])
      }), 180_000)

    it.effect("keeps messages and offsets over kill -9", () =>
      Effect.gen(function*() {
        const server = yield* Broker
        yield* server.kill
        assert.deepStrictEqual(yield* server.pid, Option.none())
        yield* server.start
        yield* send(server.brokers, "d")
        assert.deepStrictEqual(yield* received(server.brokers, "first", 1), ["d"])
        yield* server.setOffsets("first", "jobs.ready", "0")
        assert.deepStrictEqual(yield* received(server.brokers, "first", 4), ["a", "b", "c", "d"])
      }), 180_000)

    it.effect("knows no topic after its data was wiped, nor one that was deleted", () =>
      Effect.gen(function*() {
        const server = yield* Broker
        yield* server.wipe
        assert.strictEqual(yield* partitions(server.brokers, "jobs.ready"), 0)
        yield* server.createTopics([{ topic: "other", numPartitions: 2 }])
        assert.strictEqual(yield* partitions(server.brokers, "other"), 2)
        yield* server.deleteTopics("other")
        yield* eventually("other is gone", Effect.map(partitions(server.brokers, "other"), (count) => count === 0))
      }), 180_000)
  })
})
