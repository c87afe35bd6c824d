/** Two installations with the same names in one Kafka: it is said, and a prefix keeps them apart. */
import { assert, it } from "@effect/vitest"
import { Effect, Logger } from "effect"
import * as Checkup from "../../../src/adapters/kafka/Checkup.ts"
import * as Neighbours from "../../../src/adapters/kafka/Neighbours.ts"
import { eventually } from "../../support/Eventually.ts"
import * as TestServers from "../../support/TestServers.ts"
import * as Stage from "./Stage.ts"

it("processes of versions before have no name in the group, and are nobody's neighbours", () => {
  assert.deepStrictEqual(Neighbours.among(["deadman", "deadman-0000000a", "deadman-0000000a", "somebody"]), [
    "deadman-0000000a"
  ])
})

TestServers.describeWithKafka("two installations on one Kafka", () => {
  it.live("one that joins the group of another says so once, and the doctor counts them", () =>
    Effect.gen(function*() {
      const brokers = yield* TestServers.kafkaBrokers
      const prefix = `neighbours${process.pid}.`
      const options = (installation: string) => ({ brokers: brokers.split(","), installation })
      const look = Checkup.look({ ...options("0000000a"), prefix })
      const said: Array<string> = []
      const logger = Logger.layer([Logger.make(({ message }) => {
        said.push(String(message))
      })])
      const warned = () => said.filter((line) => line.startsWith("another installation of Deadman is in the group"))
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
