/**
 * The three servers on a machine without a container engine, each in a folder of its own.
 *
 * Postgres comes with npm, Redis and Kafka are what is installed, or are brought here. Whatever runs is found by the
 * record in its folder, so a start that was killed half-way is completed by the next, and `down` stops it all.
 */
import { Effect, Option } from "effect"
import { existsSync, mkdirSync, readdirSync, rmdirSync, rmSync } from "node:fs"
import { join } from "node:path"
import * as FolderLock from "../../src/adapters/embedded/FolderLock.ts"
import * as Daemon from "./Daemon.ts"
import * as Kafka from "./Kafka.ts"
import * as Ports from "./Ports.ts"
import * as Postgres from "./Postgres.ts"
import * as Redis from "./Redis.ts"
import { type Service } from "./Service.ts"
import { attempt, type ServiceFailed } from "./ServiceFailed.ts"
import { type Ports as PortNumbers } from "./Settings.ts"
import * as Topics from "./Topics.ts"

const makeFolder = (place: Daemon.Place) =>
  attempt(`write to ${place.folder}`, () => mkdirSync(place.folder, { recursive: true, mode: 0o700 }))

/** What Redis and Kafka have in common. */
const daemon = (options: {
  readonly name: "redis" | "kafka"
  readonly place: Daemon.Place
  readonly port: number
  readonly taken: ReadonlyArray<number>
  readonly prepare: Effect.Effect<unknown, ServiceFailed>
  readonly start: Effect.Effect<void, ServiceFailed>
  /** What it is, while it answers. */
  readonly version: Effect.Effect<Option.Option<string>>
  readonly variable: readonly [name: string, value: string]
}): Service => {
  const { name, place, port, version } = options
  const running = Effect.map(Daemon.running(place), Option.isSome)
  return {
    name,
    prepare: Effect.flatMap(running, (runs) => runs ? Effect.void : Effect.asVoid(options.prepare)),
    up: Effect.gen(function*() {
      if (yield* running) {
        // It may be starting still: whoever started it was killed.
        yield* Daemon.awaitReady(place, Effect.map(version, Option.isSome), "1 minute")
        return "already up"
      }
      for (const port of options.taken) {
        yield* Ports.mustBeFree(port, `DEADMAN_SERVICES_${name.toUpperCase()}_PORT`)
      }
      yield* makeFolder(place)
      yield* options.start
      return "started"
    }),
    down: Effect.gen(function*() {
      const ran = yield* Daemon.stop(place)
      yield* attempt(`delete ${place.folder}`, () => rmSync(place.folder, { recursive: true, force: true }))
      return ran
    }),
    status: Effect.gen(function*() {
      const pid = yield* Daemon.running(place)
      const answer = Option.isSome(pid) ? yield* version : Option.none()
      return {
        state: Option.isNone(pid) ? "down" : Option.isNone(answer) ? "not answering" : "up",
        version: Option.getOrElse(answer, () => "-"),
        port,
        pid,
        log: Daemon.logOf(place)
      }
    }),
    variable: Effect.succeed(options.variable)
  }
}

const redis = (folder: string, port: number): Service => {
  const place = { name: "redis", folder: join(folder, "redis") }
  return daemon({
    name: "redis",
    place,
    port,
    taken: [port],
    prepare: Redis.program,
    start: Effect.flatMap(Redis.program, (program) => Redis.start(place, program, { port })),
    version: Effect.map(Redis.ask(port), Option.map(({ version }) => version)),
    variable: ["DEADMAN_REDIS_URL", `redis://127.0.0.1:${port}`]
  })
}

const kafka = (folder: string, port: number): Service => {
  const place = { name: "kafka", folder: join(folder, "kafka") }
  const brokers = `127.0.0.1:${port}`
  const controllerPort = port + 1
  const service = daemon({
    name: "kafka",
    place,
    port,
    taken: [port, controllerPort],
    prepare: Kafka.jars,
    start: Effect.flatMap(Kafka.jars, (jars) => Kafka.start(place, jars, { port, controllerPort })),
    version: Effect.map(Kafka.answers(port), (yes) => yes ? Option.some(Kafka.version) : Option.none()),
    variable: ["DEADMAN_KAFKA_BROKERS", brokers]
  })
  return { ...service, up: Effect.tap(service.up, () => Topics.create(brokers)) }
}

export const services = (folder: string, ports: PortNumbers): ReadonlyArray<Service> => [
  Postgres.service(join(folder, "postgres"), ports.postgres),
  redis(folder, ports.redis),
  kafka(folder, ports.kafka)
]

/** Runs `use` as the only one who starts or stops something in the folder. */
export const alone = (folder: string) => <A, R>(use: Effect.Effect<A, ServiceFailed, R>) =>
  attempt(`write to ${folder}`, () => mkdirSync(folder, { recursive: true })).pipe(
    Effect.andThen(Postgres.worded(FolderLock.withLock(folder)(use)))
  )

/** Deletes the folder if nothing is left in it. */
export const tidy = (folder: string): Effect.Effect<void> =>
  Effect.sync(() => {
    rmSync(join(folder, "services.json"), { force: true })
    if (existsSync(folder) && readdirSync(folder).length === 0) rmdirSync(folder)
  })
