/**
 * What a job costs Kafka at load, in requests of all kinds, and what messages about jobs that are over cost Postgres. A
 * request, or a claim, per message turns these red.
 */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { Kafka, logLevel } from "kafkajs"
import { createRequire } from "node:module"
import * as Message from "../../src/adapters/kafka/Message.ts"
import * as TransportKafka from "../../src/adapters/kafka/TransportKafka.ts"
import * as DelayedJobsPostgres from "../../src/adapters/postgres/DelayedJobsPostgres.ts"
import * as LeaseRegisterPostgres from "../../src/adapters/postgres/LeaseRegisterPostgres.ts"
import * as TransportPostgres from "../../src/adapters/postgres/TransportPostgres.ts"
import { JobType, queueDefault } from "../../src/domain/Job.ts"
import type { JobId } from "../../src/domain/JobId.ts"
import { JobStore } from "../../src/ports/JobStore.ts"
import { Transport } from "../../src/ports/Transport.ts"
import { eventually } from "../support/Eventually.ts"
import * as Ids from "../support/Ids.ts"
import * as TestServers from "../support/TestServers.ts"
import * as Counting from "./Counting.ts"

const perJobMax = 0.02
const prefix = `gate${process.pid}.`

type Send = (
  this: { readonly clientId: string },
  options: { readonly request: { readonly apiName: string } }
) => unknown

/** Every request that the adapter sends from here on, by its name. */
const requests = (): Map<string, number> => {
  const { prototype } = createRequire(import.meta.url)("kafkajs/src/network/connection.js") as {
    readonly prototype: { send: Send }
  }
  const counts = new Map<string, number>()
  const send = prototype.send
  prototype.send = function(options) {
    if (this.clientId === "deadman") {
      counts.set(options.request.apiName, (counts.get(options.request.apiName) ?? 0) + 1)
    }
    return send.call(this, options)
  }
  return counts
}

const onKafka = Layer.unwrap(Effect.map(
  TestServers.kafkaBrokers,
  (brokers) => TransportKafka.layer({ brokers: brokers.split(","), prefix })
)).pipe(Layer.provide(TransportPostgres.layer))

const layer = Layer.provideMerge(
  Layer.mergeAll(Counting.ports({ queued: true }), LeaseRegisterPostgres.layer, DelayedJobsPostgres.layer, onKafka),
  Counting.layer
)

/** Messages in the topic that the group has not committed. */
const lag = Effect.gen(function*() {
  const brokers = yield* TestServers.kafkaBrokers
  const admin = new Kafka({ brokers: brokers.split(","), logLevel: logLevel.NOTHING }).admin()
  const name = `${prefix}jobs.ready`
  return yield* Effect.acquireUseRelease(
    Effect.promise(() => admin.connect()),
    () =>
      Effect.gen(function*() {
        const ends = yield* Effect.promise(() => admin.fetchTopicOffsets(name))
        const [group] = yield* Effect.promise(() => admin.fetchOffsets({ groupId: `${prefix}deadman`, topics: [name] }))
        const committed = (group?.partitions ?? []).reduce((sum, { offset }) => sum + Math.max(0, Number(offset)), 0)
        return ends.reduce((sum, { offset }) => sum + Number(offset), 0) - committed
      }),
    () => Effect.promise(() => admin.disconnect())
  )
})

/** Reads along, in a group of its own: how many of these ids are in the topic. */
const reader = Effect.fnUntraced(function*(counts: (id: JobId) => boolean) {
  const brokers = yield* TestServers.kafkaBrokers
  const consumer = yield* Effect.acquireRelease(
    Effect.sync(() =>
      new Kafka({ brokers: brokers.split(","), logLevel: logLevel.NOTHING }).consumer({
        groupId: `${prefix}reader-${crypto.randomUUID()}`
      })
    ),
    (consumer) => Effect.promise(() => consumer.disconnect())
  )
  let read = 0
  yield* Effect.promise(() => consumer.connect())
  yield* Effect.promise(() => consumer.subscribe({ topic: `${prefix}jobs.ready`, fromBeginning: true }))
  yield* Effect.promise(() =>
    consumer.run({
      eachMessage: ({ message }) => {
        read += Message.decode(message.value)?.filter(counts).length ?? 0
        return Promise.resolve()
      }
    })
  )
  return () => read
})

TestServers.describeWithKafka("deliveries by Kafka", () => {
  it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })("at load", (it) => {
    it.effect("cost few requests for hundreds of jobs", () =>
      Effect.gen(function*() {
        const counts = requests()
        const asked = (name: string) => counts.get(name) ?? 0
        // More come while those before run, so that they are fetched, and not only claimed in order.
        const first = yield* Counting.submit(256, 8)
        const [more] = yield* Effect.all([Counting.submit(256, 40), Counting.work()], { concurrency: 2 })
        yield* Counting.work()
        const jobs = first + more
        const sent = yield* reader(() => true)
        yield* eventually("all are in the topic", Effect.sync(() => sent() >= jobs), "60 seconds")
        const sum = [...counts.values()].reduce((a, b) => a + b, 0)
        const detail = JSON.stringify(Object.fromEntries(counts))
        assert.isAtMost(
          sum / jobs,
          perJobMax,
          `${sum} requests for ${jobs} jobs, ${detail}. What is sent once per job?`
        )
        // Else it was not asked at all.
        assert.isAbove(asked("Produce"), 0, detail)
        assert.isAbove(asked("Fetch"), 0, detail)
      }).pipe(Effect.scoped), 180_000)

    it.effect("of jobs that are over cost a worker with few slots few claims", () =>
      Effect.gen(function*() {
        const counter = yield* Counting.Counter
        const store = yield* JobStore
        const transport = yield* Transport
        const messages = 10_000
        const ids = Array.from({ length: messages }, Ids.jobId)
        const sentNow = new Set(ids)
        const sent = yield* reader((id) => sentNow.has(id))
        yield* transport.publish(ids.map((id) => ({ id, type: JobType.make("gate"), queue: queueDefault })))
        yield* eventually("they are in the topic", Effect.sync(() => sent() >= messages), "60 seconds")
        const before = { ...counter }
        // Nobody published this one. It ends when they are over.
        yield* store.submit([{ ...Counting.draft(0), id: Ids.jobId() }], { atomic: false })
        const dropped = eventually("all are dropped", Effect.map(lag, (lag) => lag === 0), "60 seconds")
        yield* Counting.work(() => dropped, { slots: 4 })
        const claims = counter.claim - before.claim
        assert.isAtMost(claims / messages, perJobMax, `${claims} claims for ${messages} messages`)
      }).pipe(Effect.scoped), 180_000)
  })
})
