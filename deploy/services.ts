/**
 * `npm run services:up`, `services:down`, `services:status`: Postgres, Redis and Kafka on this machine.
 *
 * Where a container engine answers it is deploy/compose.yaml, else the same three are started without one, on the same
 * ports. They outlive this command; their data do not outlive `services:down`.
 */
import { NodeRuntime } from "@effect/platform-node"
import { Console, Effect, Exit, Option } from "effect"
import * as Docker from "./services/Docker.ts"
import * as Native from "./services/Native.ts"
import * as Service from "./services/Service.ts"
import { ServiceFailed } from "./services/ServiceFailed.ts"
import * as Settings from "./services/Settings.ts"

const chooseWay = Effect.fn("chooseWay")(function*({ way }: Settings.Settings) {
  if (Option.isSome(way) && way.value === "native") return way.value
  const engine = yield* Docker.engine
  if (Option.isSome(engine)) {
    yield* Console.log(`by Docker ${engine.value}, as deploy/compose.yaml has it`)
    return "docker"
  }
  if (Option.isSome(way)) {
    return yield* new ServiceFailed({
      message: "docker info does not answer within 3 s: start the engine, or unset DEADMAN_SERVICES"
    })
  }
  yield* Console.log("without containers, because no Docker engine answers")
  return "native"
})

const printVariables = Effect.fn("printVariables")(function*(
  variables: ReadonlyArray<readonly [name: string, value: string]>
) {
  for (const [name, value] of variables) yield* Console.log(`export ${name}=${value}`)
})

const anyRuns = (services: ReadonlyArray<Service.Service>) =>
  Effect.map(
    Effect.forEach(services, ({ status }) => status),
    (all) => all.some(({ state }) => state !== "down")
  )

const same = (one: Settings.Ports, other: Settings.Ports) =>
  one.postgres === other.postgres && one.redis === other.redis && one.kafka === other.kafka

const upNative = Effect.fn("upNative")(function*({ folder, ports }: Settings.Settings) {
  const services = Native.services(folder, ports)
  yield* Settings.remember(folder, { way: "native", ports })
  // What is not there yet is brought before the lock is taken: the network may take its time.
  const prepared = yield* Effect.forEach(services, ({ prepare }) => Effect.exit(prepare), { concurrency: "unbounded" })
  const exits = yield* Native.alone(folder)(
    Effect.forEach(services, ({ up }, index) => {
      const exit = prepared[index]
      return Effect.exit(exit !== undefined && Exit.isFailure(exit) ? Effect.failCause(exit.cause) : up)
    }, { concurrency: "unbounded" })
  )
  for (const [index, service] of services.entries()) {
    const exit = exits[index]
    if (exit === undefined || Exit.isFailure(exit)) {
      process.exitCode = 1
      const error = exit === undefined ? Option.none() : Exit.findErrorOption(exit)
      yield* Console.error(
        `${service.name}: failed: ${
          Option.match(error, { onNone: () => String(exit), onSome: ({ message }) => message })
        }`
      )
      continue
    }
    const status = yield* service.status
    yield* Console.log(Service.lineOf(`${service.name} (${exit.value})`, status))
    yield* printVariables([yield* service.variable])
  }
})

const up = Effect.gen(function*() {
  const settings = yield* Settings.config
  const before = yield* Settings.started(settings.folder)
  if (Option.isSome(before)) {
    const { ports, way } = before.value
    const runs = way === "docker" || (yield* anyRuns(Native.services(settings.folder, ports)))
    if (runs && !same(ports, settings.ports)) {
      return yield* new ServiceFailed({
        message: `the servers of ${settings.folder} were started on other ports: npm run services:down first`
      })
    }
    if (runs && way === "native") return yield* upNative(settings)
  }
  const way = yield* chooseWay(settings)
  if (way === "native") return yield* upNative(settings)
  yield* Settings.remember(settings.folder, { way, ports: settings.ports })
  yield* Docker.up(settings.ports)
  yield* printVariables(Docker.variables(settings.ports))
})

const down = Effect.gen(function*() {
  const { folder, ports } = yield* Settings.config
  const before = yield* Settings.started(folder)
  if (Option.isNone(before)) return yield* Console.log("nothing was started")
  if (before.value.way === "docker") {
    yield* Docker.down(before.value.ports)
    yield* Native.tidy(folder)
    return yield* Console.log("stopped, and their volumes deleted")
  }
  yield* Native.alone(folder)(
    Effect.forEach(
      Native.services(folder, before.value.ports ?? ports),
      ({ down, name }) =>
        Effect.flatMap(down, (ran) => Console.log(`${name}: ${ran ? "stopped, its data deleted" : "was not running"}`)),
      {
        concurrency: "unbounded"
      }
    )
  )
  yield* Native.tidy(folder)
})

const status = Effect.gen(function*() {
  const { folder, ports } = yield* Settings.config
  const before = yield* Settings.started(folder)
  if (Option.isSome(before) && before.value.way === "docker") {
    for (const line of yield* Docker.lines(before.value.ports)) yield* Console.log(line)
    return
  }
  const started = Option.match(before, { onNone: () => ports, onSome: ({ ports }) => ports })
  for (const service of Native.services(folder, started)) {
    const status = yield* service.status
    yield* Console.log(Service.lineOf(service.name, status))
    if (status.state === "up") yield* printVariables([yield* service.variable])
  }
})

const commands = { up, down, status }

const isCommand = (word: string | undefined): word is keyof typeof commands => word !== undefined && word in commands

const main = Effect.gen(function*() {
  const word = process.argv[2]
  if (!isCommand(word)) {
    return yield* new ServiceFailed({ message: "usage: node deploy/services.ts up | down | status" })
  }
  yield* commands[word]
}).pipe(Effect.catch((error) =>
  Console.error(error.message).pipe(Effect.andThen(Effect.sync(() => {
    process.exitCode = 1
  })))
))

NodeRuntime.runMain(main)
