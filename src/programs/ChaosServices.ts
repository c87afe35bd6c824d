/** The services of a chaos run: its own Postgres, Redis and Kafka, on loopback, with data that nobody misses. */
import { Effect, Option, type Redacted, type Scope } from "effect"
import { spawnSync } from "node:child_process"
import { randomInt } from "node:crypto"
import { mkdirSync, rmSync } from "node:fs"
import { join } from "node:path"
import * as Daemon from "../../deploy/services/Daemon.ts"
import * as Exchange from "../../deploy/services/Exchange.ts"
import * as KafkaServer from "../../deploy/services/Kafka.ts"
import * as Ports from "../../deploy/services/Ports.ts"
import * as RedisServer from "../../deploy/services/Redis.ts"
import * as Topics from "../../deploy/services/Topics.ts"
import type * as Children from "../adapters/chaos/Children.ts"
import * as Cluster from "../adapters/embedded/Cluster.ts"
import * as EmbeddedPostgres from "../adapters/embedded/EmbeddedPostgres.ts"
import * as Postmaster from "../adapters/embedded/Postmaster.ts"
import * as Mend from "../adapters/kafka/Mend.ts"
import { GroundFailed, type Service } from "./chaos/Ground.ts"

export const asGround = <A, E extends { readonly message: string }, R>(
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, GroundFailed, R> => Effect.mapError(effect, ({ message }) => new GroundFailed({ message }))

/** Below the range that connections draw their near end from, so that it is still free after a restart. */
export const freePort: Effect.Effect<number, GroundFailed> = Effect.gen(function*() {
  for (let tries = 0; tries < 50; tries++) {
    const port = randomInt(15_000, 32_000)
    if (yield* Ports.isFree(port)) return port
  }
  return yield* new GroundFailed({ message: "there is no free port between 15000 and 32000 on 127.0.0.1" })
})

const folderIn = (place: Children.Place, name: string) =>
  Effect.sync(() => {
    const folder = join(place.folder, name)
    mkdirSync(folder, { recursive: true })
    return folder
  })

/** The postmaster and its children. */
const processesOf = (postmaster: number): ReadonlyArray<number> =>
  (spawnSync("ps", ["-A", "-o", "pid=,ppid="], { encoding: "utf8" }).stdout ?? "").trim().split("\n")
    .map((line) => line.trim().split(/\s+/).map(Number))
    .filter((ids) => ids.includes(postmaster))
    .map(([pid]) => pid ?? postmaster)

export interface Postgres {
  readonly service: Service
  readonly port: number
  /** Its url by way of another port. */
  readonly urlAt: (port: number) => Redacted.Redacted
}

export const postgres = Effect.fnUntraced(function*(
  place: Children.Place
): Effect.fn.Return<Postgres, GroundFailed, Scope.Scope> {
  const folder = yield* folderIn(place, "postgres")
  const cluster = yield* asGround(EmbeddedPostgres.open({ dataDir: folder }))
  yield* asGround(Cluster.ensure(cluster))
  const pid = Effect.map(asGround(Postmaster.running(cluster)), Option.map(({ pid }) => pid))
  const signalAll = (name: NodeJS.Signals) =>
    Effect.flatMap(pid, (found) =>
      Option.isNone(found)
        ? Effect.void
        : Effect.forEach(processesOf(found.value), (process) => Postmaster.signal(process, name), { discard: true }))
  const start = Effect.tap(asGround(Postmaster.ensure(cluster)), ({ pid }) => Effect.sync(() => place.watch(pid)))
  const crash = Effect.flatMap(
    pid,
    (found) =>
      Option.isNone(found) ? Effect.void : Postmaster.signal(found.value, "SIGQUIT").pipe(
        Effect.andThen(asGround(Postmaster.gone(cluster, found.value, "20 seconds"))),
        Effect.asVoid
      )
  )
  const { port } = yield* Effect.acquireRelease(
    start,
    () => Effect.ignore(Effect.andThen(signalAll("SIGCONT"), Postmaster.stop(cluster)))
  )
  const password = yield* asGround(Cluster.password(cluster))
  return {
    service: {
      crash,
      start: Effect.asVoid(start),
      freeze: signalAll("SIGSTOP"),
      thaw: signalAll("SIGCONT"),
      lose: new GroundFailed({ message: "Postgres is what must survive" })
    },
    port,
    urlAt: (port) => EmbeddedPostgres.urlOf(port, password)
  }
})

const watched = (place: Children.Place, daemon: Daemon.Place) =>
  Effect.flatMap(Daemon.running(daemon), (pid) =>
    Effect.sync(() => {
      if (Option.isSome(pid)) place.watch(pid.value)
    }))

const daemon = Effect.fnUntraced(function*(place: Children.Place, name: string) {
  const folder = yield* folderIn(place, name)
  return yield* Effect.acquireRelease(
    Effect.succeed<Daemon.Place>({ name, folder }),
    (place) => Effect.ignore(Daemon.kill(place))
  )
})

export interface Started {
  readonly service: Service
  readonly port: number
}

/** What is done to a daemon, whichever it is. */
const hurts = (at: Daemon.Place, start: Service["start"]): Omit<Service, "lose"> => ({
  crash: asGround(Daemon.kill(at)),
  start,
  freeze: asGround(Daemon.signal(at, "SIGSTOP")),
  thaw: asGround(Daemon.signal(at, "SIGCONT"))
})

export const redis = Effect.fnUntraced(function*(
  place: Children.Place
): Effect.fn.Return<Started, GroundFailed, Scope.Scope> {
  const program = yield* asGround(RedisServer.program)
  const port = yield* freePort
  const at = yield* daemon(place, "redis")
  const start = asGround(Effect.andThen(RedisServer.start(at, program, { port }), watched(place, at)))
  yield* start
  return {
    service: {
      ...hurts(at, start),
      // It keeps nothing on disk: a crash is a loss. A flush is one without a crash.
      lose: Effect.flatMap(
        Exchange.ask(port, Buffer.from("FLUSHALL\r\n"), (said) => ({ said: said.toString() })),
        (answer) =>
          Option.isSome(answer) && answer.value.said.startsWith("+OK")
            ? Effect.void
            : Effect.fail(new GroundFailed({ message: "Redis did not answer FLUSHALL" }))
      )
    },
    port
  }
})

export const kafka = Effect.fnUntraced(function*(
  place: Children.Place
): Effect.fn.Return<Started, GroundFailed, Scope.Scope> {
  Mend.mend()
  const jars = yield* asGround(KafkaServer.jars)
  const port = yield* freePort
  const controllerPort = yield* freePort
  const at = yield* daemon(place, "kafka")
  const start = asGround(
    Effect.andThen(KafkaServer.start(at, jars, { port, controllerPort, quick: true }), watched(place, at))
  )
  yield* start
  yield* asGround(Topics.create(`127.0.0.1:${port}`))
  const service = hurts(at, start)
  return {
    service: {
      ...service,
      lose: service.crash.pipe(
        Effect.andThen(Effect.sync(() => rmSync(join(at.folder, "data"), { recursive: true, force: true }))),
        Effect.andThen(start)
      )
    },
    port
  }
})
