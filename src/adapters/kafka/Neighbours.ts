/**
 * Whether others than this installation take part in the group. Each would be given ids of the other's, find no such job
 * and drop them: nothing is lost by it, but half of all jobs start a second late, and nothing else would say why.
 */
import { Effect, Schedule } from "effect"
import type { Kafka } from "kafkajs"
import * as Client from "./Client.ts"

const ours = /^deadman-[0-9a-f]{8}$/
/** Until it is asked again, where Kafka did not say. */
const againMs = 60_000

/** The names that installations have in the group, each once. Processes of older versions, and those whose database did not say, have none. */
export const among = (clients: ReadonlyArray<string>): ReadonlyArray<string> => [
  ...new Set(clients.filter((client) => ours.test(client)))
]

type Admin = ReturnType<Kafka["admin"]>

export const inGroup = (admin: Admin, names: Client.Names): Effect.Effect<ReadonlyArray<string>, Client.KafkaFailed> =>
  Effect.map(
    Client.call("describing the group", 5_000, () => admin.describeGroups([names.group])),
    ({ groups }) => among(groups.flatMap(({ members }) => members.map(({ clientId }) => clientId)))
  )

const look = (kafka: Kafka, names: Client.Names): Effect.Effect<void, Client.KafkaFailed> =>
  Effect.acquireUseRelease(
    Effect.sync(() => kafka.admin()),
    (admin) =>
      Effect.gen(function*() {
        yield* Client.call("connecting", 3_000, () => admin.connect())
        const others = (yield* inGroup(admin, names)).filter((client) => client !== names.client)
        if (others.length > 0) {
          yield* Effect.logWarning(
            `another installation of Deadman is in the group ${names.group} of this Kafka: each drops what the other ` +
              "publishes, and jobs start a second late. Give each of them a DEADMAN_KAFKA_PREFIX of its own"
          )
        }
      }),
    (admin) => Effect.ignore(Client.call("disconnecting", 1_000, () => admin.disconnect()))
  )

/** Says so if there are any, and ends once it knows. A process without a name takes nobody for another. */
export const say = (kafka: Kafka, names: Client.Names): Effect.Effect<void> =>
  ours.test(names.client) ? Effect.ignore(Effect.retry(look(kafka, names), Schedule.spaced(againMs))) : Effect.void
