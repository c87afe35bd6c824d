import { Effect, Layer } from "effect"
import { Kafka, logLevel } from "kafkajs"
import { layer } from "../../../src/adapters/kafka/TransportKafka.ts"
import * as TransportPostgres from "../../../src/adapters/postgres/TransportPostgres.ts"
import * as TransportContract from "../../contracts/TransportContract.ts"
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
    within: "25 seconds",
    disconnect: Rows.query(
      // After a while the last that a listening connection was asked is whether it is alive.
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE datname = current_database() AND (query ILIKE 'LISTEN%' OR query = 'SELECT 1')`
    ),
    garbage
  })
})
