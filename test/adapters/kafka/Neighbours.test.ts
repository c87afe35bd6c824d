/** Two installations with the same names in one Kafka: it is said, and a prefix keeps them apart. */
import { assert, it } from "@effect/vitest"
import { Effect, Logger } from "effect"
import { TestClock } from "effect/testing"
import type { Kafka } from "kafkajs"
import * as Checkup from "../../../src/adapters/kafka/Checkup.ts"
import * as Client from "../../../src/adapters/kafka/Client.ts"
import * as Neighbours from "../../../src/adapters/kafka/Neighbours.ts"
import { eventually } from "../../support/Eventually.ts"
import * as TestServers from "../../support/TestServers.ts"
import * as Stage from "./Stage.ts"

it("processes of versions before have no name in the group, and are nobody's neighbours", () => {
  assert.deepStrictEqual(Neighbours.among(["deadman", "deadman-0000000a", "deadman-0000000a", "somebody"]), [
    "deadman-0000000a"
  ])
})

/** A Kafka with two installations in the group, which does not say so the first times that it is asked. */
const crowded = (refusals: number, clients = ["deadman-0000000a", "deadman-0000000b"]) => {
  let asked = 0
  const members = clients.map((clientId) => ({ clientId }))
  const admin = {
    connect: () => Promise.resolve(),
    describeGroups: () => {
      asked += 1
      return asked <= refusals ? Promise.reject(new Error("not now")) : Promise.resolve({ groups: [{ members }] })
    },
    disconnect: () => Promise.resolve()
  }
  return { asked: () => asked, kafka: { admin: () => admin } as unknown as Kafka }
}

const hearing = () => {
  const said: Array<string> = []
  return {
    logger: Logger.layer([Logger.make(({ message }) => {
      said.push(String(message))
    })]),
    warned: () => said.filter((line) => line.startsWith("another installation of Deadman is in the group"))
  }
}

const namesOf = (installation: string | null) => Client.namesOf({ brokers: [], installation })

it.effect("a look that failed is done again", () =>
  Effect.gen(function*() {
    const { asked, kafka } = crowded(1)
    const { logger, warned } = hearing()
    yield* Effect.forkScoped(Effect.provide(Neighbours.say(kafka, namesOf("0000000a")), logger))
    yield* eventually("it has been asked", Effect.sync(() => asked() === 1))
    yield* eventually("it was said", Effect.map(TestClock.adjust("1 minute"), () => warned().length === 1))
  }).pipe(Effect.scoped))

it.effect("a process whose database did not say who it is takes none of its own for another's", () =>
  Effect.gen(function*() {
    const { kafka } = crowded(0)
    const { logger, warned } = hearing()
    yield* Effect.provide(Neighbours.say(kafka, namesOf(null)), logger)
    assert.deepStrictEqual(warned(), [])
    yield* Effect.provide(Neighbours.say(kafka, namesOf("0000000a")), logger)
    assert.strictEqual(warned().length, 1)
    const own = crowded(0, ["deadman-0000000a", "deadman-0000000a", "deadman"])
    yield* Effect.provide(Neighbours.say(own.kafka, namesOf("0000000a")), logger)
    assert.strictEqual(warned().length, 1, "processes of one installation are no neighbours")
  }))

TestServers.describeWithKafka("two installations on one Kafka", () => {
  it.live("one that joins the group of another says so once, and the doctor counts them", () =>
    Effect.gen(function*() {
      const brokers = yield* TestServers.kafkaBrokers
      const prefix = `neighbours${process.pid}.`
      const options = (installation: string) => ({ brokers: brokers.split(","), installation })
      const look = Checkup.look({ ...options("0000000a"), prefix })
      const { logger, warned } = hearing()
      const joined = (count: number, installations: number) =>
        eventually(
          `${installations} installations are in the group`,
          Effect.gen(function*() {
            const facts = yield* look
            return facts.installations === installations && facts.topics.every(({ partitions }) => partitions > 0) &&
              warned().length === count
          })
        )
      const first = yield* Stage.make(brokers, prefix, options("0000000a"))
      yield* Effect.provide(first.worker({ noop: () => Effect.void }), logger)
      yield* joined(0, 1)
      // Of the same installation: no neighbour.
      yield* Effect.provide(first.worker({ noop: () => Effect.void }), logger)
      const second = yield* Stage.make(brokers, prefix, options("0000000b"))
      yield* Effect.provide(second.worker({ noop: () => Effect.void }), logger)
      yield* joined(1, 2)
      assert.match(warned()[0]!, new RegExp(`group ${prefix}deadman of this Kafka: .* DEADMAN_KAFKA_PREFIX of its own`))
    }).pipe(Effect.scoped), 180_000)
})
