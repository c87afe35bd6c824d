/** The topics of Deadman, created where they are missing: at the start, and again when somebody has deleted them. */
import { Effect } from "effect"
import type { Kafka } from "kafkajs"
import * as Client from "./Client.ts"

/** How many workers can share the deliveries; the others claim from the store. */
const partitions = 6

/** An id that was not taken for so long was found in the store. */
const retentionMs = 86_400_000

/** Answers which of them it created. */
export const ensure = (
  kafka: Kafka,
  names: Client.Names
): Effect.Effect<ReadonlyArray<string>, Client.KafkaFailed> =>
  Effect.acquireUseRelease(
    Effect.sync(() => kafka.admin()),
    (admin) =>
      Effect.gen(function*() {
        yield* Client.call("connecting", 3_000, () => admin.connect())
        const there = yield* Client.call("listing topics", 5_000, () => admin.listTopics())
        const wanted = [
          {
            topic: names.ready,
            numPartitions: partitions,
            configEntries: [{ name: "retention.ms", value: String(retentionMs) }]
          },
          { topic: names.dead, numPartitions: 1 }
        ].filter(({ topic }) => !there.includes(topic))
        const missing = wanted.map(({ topic }) => topic)
        // False where another process was first.
        const created = wanted.length > 0 && (yield* Client.call(
          `creating the topics ${missing.join(", ")}`,
          10_000,
          () => admin.createTopics({ topics: wanted, waitForLeaders: true, timeout: 5_000 })
        ))
        return created ? missing : []
      }),
    (admin) => Effect.ignore(Client.call("disconnecting", 1_000, () => admin.disconnect()))
  )
