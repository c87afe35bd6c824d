/** A look at Kafka for people: its brokers, and the topics of Deadman with their partitions. */
import { Effect } from "effect"
import type { KafkaFacts, TopicFacts } from "../../ports/Checkups.ts"
import * as Client from "./Client.ts"
import * as Neighbours from "./Neighbours.ts"

export const look = (options: Client.Options): Effect.Effect<KafkaFacts, Client.KafkaFailed> =>
  Effect.flatMap(Client.make(options), (kafka) =>
    Effect.acquireUseRelease(
      Effect.sync(() => kafka.admin()),
      (admin) =>
        Effect.gen(function*() {
          yield* Client.call("connecting", 5_000, () => admin.connect())
          const cluster = yield* Client.call("asking for the brokers", 5_000, () => admin.describeCluster())
          const there = yield* Client.call("listing topics", 5_000, () => admin.listTopics())
          const names = Client.namesOf(options)
          const wanted = [names.ready, names.dead]
          const present = wanted.filter((name) => there.includes(name))
          // Asked about no topic, kafkajs asks about all of them.
          const { topics } = present.length === 0
            ? { topics: [] }
            : yield* Client.call("describing topics", 5_000, () => admin.fetchTopicMetadata({ topics: present }))
          // A user of few rights may not be told, and is told the rest.
          const installations = yield* Effect.orElseSucceed(Neighbours.inGroup(admin, names), () => [])
          return {
            group: names.group,
            installations: installations.length,
            brokers: cluster.brokers.length,
            topics: wanted.map((name): TopicFacts => {
              const partitions = topics.find((topic) => topic.name === name)?.partitions ?? []
              return {
                name,
                partitions: partitions.length,
                replicas: partitions[0]?.replicas.length ?? 0,
                leaderless: partitions.filter(({ leader }) => leader < 0).length,
                underReplicated: partitions.filter(({ isr, replicas }) => isr.length < replicas.length).length
              }
            })
          } satisfies KafkaFacts
        }),
      (admin) => Effect.ignore(Client.call("disconnecting", 1_000, () => admin.disconnect()))
    ))
