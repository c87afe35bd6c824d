/**
 * A Kafka of a test's own, in a temporary folder, to be frozen, killed, wiped and started again with real signals.
 *
 * A start takes 3 to 5 s, after `kill` up to 4 s more, because the controller waits for the registration of the dead
 * broker to end. Share one among the tests of a file.
 */
import { Effect, Option, References, type Scope } from "effect"
import { rmSync } from "node:fs"
import { join } from "node:path"
import type * as Daemon from "../../deploy/services/Daemon.ts"
import * as Kafka from "../../deploy/services/Kafka.ts"
import { attempt } from "../../deploy/services/ServiceFailed.ts"
import * as Topics from "../../deploy/services/Topics.ts"
import { live } from "./Eventually.ts"
import * as ThrowawayServer from "./ThrowawayServer.ts"
import { type ServiceFailed } from "./ThrowawayServer.ts"

export interface KafkaServer extends ThrowawayServer.Signals {
  /** Stays the same over every stop and start. */
  readonly brokers: string
  readonly port: number
  /** Starts it if it is stopped, and waits until it answers. */
  readonly start: Effect.Effect<void, ServiceFailed>
  readonly restart: Effect.Effect<void, ServiceFailed>
  /** Kills it, deletes its data and starts it: topics, messages, groups and offsets are gone. */
  readonly wipe: Effect.Effect<void, ServiceFailed>
  /** Deadman's own, unless others are named; those that exist are left alone. */
  readonly createTopics: (topics?: ReadonlyArray<Topics.Topic>) => Effect.Effect<void, ServiceFailed>
  readonly deleteTopics: (...names: ReadonlyArray<string>) => Effect.Effect<void, ServiceFailed>
  /** Where the group goes on from, in every partition of the topic. The group must have no members. */
  readonly setOffsets: (group: string, topic: string, offset: string) => Effect.Effect<void, ServiceFailed>
}

export interface Options {
  /** As in server.properties. */
  readonly settings?: Readonly<Record<string, string>> | undefined
  /** Unless false, it starts sooner and is slower under load: say so where its speed is measured. */
  readonly quick?: boolean | undefined
  /** Where given, it is used instead of one that is free. */
  readonly port?: number | undefined
  /** The same for the port of its controller, for settings that name it. */
  readonly controllerPort?: number | undefined
}

const make = Effect.fn("KafkaServer.make")(function*(
  options: Options
): Effect.fn.Return<KafkaServer, ServiceFailed, Scope.Scope> {
  const jars = yield* Kafka.jars
  const place: Daemon.Place = yield* ThrowawayServer.place("kafka")
  const port = options.port ?? (yield* ThrowawayServer.freePort)
  const controllerPort = options.controllerPort ?? (yield* ThrowawayServer.freePort)
  const brokers = `127.0.0.1:${port}`
  const signals = ThrowawayServer.signals(place)
  const start = Effect.flatMap(
    signals.pid,
    (pid) =>
      Option.isSome(pid)
        ? Effect.void
        : Kafka.start(place, jars, { port, controllerPort, settings: options.settings, quick: options.quick ?? true })
  )
  yield* start
  return {
    ...signals,
    brokers,
    port,
    start: live(start),
    restart: live(Effect.andThen(signals.stop, start)),
    wipe: live(signals.kill.pipe(
      Effect.andThen(
        attempt("delete its data", () => rmSync(join(place.folder, "data"), { recursive: true, force: true }))
      ),
      Effect.andThen(start)
    )),
    createTopics: (topics) => live(Topics.create(brokers, topics)),
    deleteTopics: (...names) =>
      live(Topics.withAdmin(brokers, "delete topics", (admin) => admin.deleteTopics({ topics: [...names] }))),
    setOffsets: (groupId, topic, offset) =>
      live(
        Topics.withAdmin(brokers, "set offsets", (admin) =>
          admin.fetchTopicMetadata({ topics: [topic] }).then(({ topics: [found] }) =>
            admin.setOffsets({
              groupId,
              topic,
              partitions: (found?.partitions ?? []).map(({ partitionId }) => ({ partition: partitionId, offset }))
            })
          ))
      )
  }
})

/** Starts a server of its own port and files. The scope's end kills it and deletes the files. */
export const start = (options: Options = {}): Effect.Effect<KafkaServer, ServiceFailed, Scope.Scope> =>
  live(make(options)).pipe(Effect.provideService(References.MinimumLogLevel, "Warn"))
