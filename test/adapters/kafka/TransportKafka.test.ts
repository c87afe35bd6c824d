import { assert, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Queue, Scope } from "effect"
import { Kafka, logLevel } from "kafkajs"
import { layer } from "../../../src/adapters/kafka/TransportKafka.ts"
import * as TransportPostgres from "../../../src/adapters/postgres/TransportPostgres.ts"
import { JobType, queueDefault } from "../../../src/domain/Job.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import { Transport } from "../../../src/ports/Transport.ts"
import * as TransportContract from "../../contracts/TransportContract.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Ids from "../../support/Ids.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"
import * as TestServers from "../../support/TestServers.ts"

const prefix = `c${process.pid}.`

const transport = Layer.unwrap(Effect.map(
  TestServers.kafkaBrokers,
  (brokers) => layer({ brokers: brokers.split(","), prefix })
)).pipe(Layer.provide(TransportPostgres.layer), Layer.provideMerge(Postgres.layer))

/** What nobody of ours has sent. */
const garbage = Effect.gen(function*() {
  const brokers = yield* TestServers.kafkaBrokers
  const producer = new Kafka({ brokers: brokers.split(","), logLevel: logLevel.NOTHING }).producer()
  yield* Effect.promise(() => producer.connect())
  yield* Effect.promise(() =>
    producer.send({
      topic: `${prefix}jobs.ready`,
      messages: [null, "", "zzz", "9:0".padEnd(38, "0"), Buffer.alloc(38), Buffer.alloc(900_000, 1)].map((value) => ({
        value
      }))
    })
  )
  yield* Effect.promise(() => producer.disconnect())
})

TestServers.describeWithKafka("TransportKafka", () => {
  TransportContract.suite("kafka", transport, {
    deliveries: true,
    // A member that is starved joins its group late, and once more after that; a job that waits for it is no law of this.
    within: "90 seconds",
    disconnect: Rows.query(
      // After a while the last that a listening connection was asked is whether it is alive.
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE datname = current_database() AND (query ILIKE 'LISTEN%' OR query = 'SELECT 1')`
    ),
    garbage
  })

  it.layer(transport, { excludeTestServices: true, timeout: "2 minutes" })("TransportKafka", (it) => {
    it.effect(
      "one process is told of what another publishes, from when it says that it waits for such",
      () =>
        Effect.gen(function*() {
          const brokers = yield* TestServers.kafkaBrokers
          // Of processes of their own, over the same database.
          const another = Effect.map(
            Layer.build(Layer.fresh(
              layer({ brokers: brokers.split(","), prefix }).pipe(Layer.provide(Layer.fresh(TransportPostgres.layer)))
            )),
            (built) => Context.get(built, Transport)
          )
          const [server, publisher] = [yield* another, yield* another]
          const published = { id: Ids.jobId(), type: JobType.make(Ids.jobId()), queue: queueDefault }
          const { wakes } = yield* server.subscribe({ worker: false })
          // From its first publish on it listens.
          yield* publisher.publish([{ ...published, type: JobType.make("other") }])
          let told = 0
          yield* Effect.forkScoped(Effect.forever(Effect.map(Queue.take(wakes), ({ _tag }) => {
            told += _tag === "Published" ? 1 : 0
          })))
          yield* publisher.publish([published])
          yield* eventually(
            "it is told",
            Effect.gen(function*() {
              assert.isTrue(told === 0 || told === 1)
              yield* server.awaits([published.type])
              yield* Effect.sleep("50 millis")
              yield* publisher.publish([published])
              yield* Effect.sleep("50 millis")
              return told > 0
            }),
            "60 seconds"
          )
        }).pipe(Effect.scoped),
      180_000
    )

    it.effect(
      "what was acknowledged behind a message in work is not committed before it",
      () =>
        Effect.gen(function*() {
          const transport = yield* Transport
          const receive = Effect.fnUntraced(function*(acknowledge: (id: JobId) => boolean) {
            const { deliveries } = yield* transport.subscribe({ worker: true })
            const ids: Array<JobId> = []
            yield* Effect.forkScoped(Effect.forever(Effect.gen(function*() {
              const delivery = yield* Queue.take(deliveries)
              ids.push(...delivery.ids)
              yield* delivery.acknowledge(delivery.ids.filter(acknowledge))
            })))
            return ids
          })
          const jobs = Array.from({ length: 60 }, () => ({
            id: Ids.jobId(),
            type: JobType.make("noop"),
            queue: queueDefault
          }))
          const slow = new Set(jobs.slice(0, 6).map(({ id }) => id))
          const scope = yield* Scope.make()
          const first = yield* Scope.provide(receive((id) => !slow.has(id)), scope)
          yield* transport.publish(jobs)
          yield* eventually("all of them", Effect.sync(() => jobs.every(({ id }) => first.includes(id))), "60 seconds")
          yield* Scope.close(scope, Exit.void)
          const second = yield* receive(() => true)
          yield* eventually(
            "those in work",
            Effect.sync(() => [...slow].every((id) => second.includes(id))),
            "60 seconds"
          )
        }).pipe(Effect.scoped),
      180_000
    )
  })
})
