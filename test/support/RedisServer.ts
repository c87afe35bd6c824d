/**
 * A Redis of a test's own, in a temporary folder, to be frozen, killed and started again with real signals.
 *
 * It starts without persistence, so that a restart loses everything. With `persist` it appends every write to a file
 * before it answers, and a restart has it all again.
 */
import { Effect, Option, References, type Scope } from "effect"
import { Redis as Client } from "ioredis"
import type * as Daemon from "../../deploy/services/Daemon.ts"
import * as Redis from "../../deploy/services/Redis.ts"
import { live } from "./Eventually.ts"
import * as ThrowawayServer from "./ThrowawayServer.ts"
import { ServiceFailed } from "./ThrowawayServer.ts"

export interface RedisServer extends ThrowawayServer.Signals {
  /** Stays the same over every stop and start. */
  readonly url: string
  readonly port: number
  /** Starts it if it is stopped, and waits until it answers. */
  readonly start: Effect.Effect<void, ServiceFailed>
  /** A stop and a start: another `run_id`, and without `persist` no keys. */
  readonly restart: Effect.Effect<void, ServiceFailed>
  readonly flushAll: Effect.Effect<void, ServiceFailed>
  readonly configSet: (name: string, value: string) => Effect.Effect<void, ServiceFailed>
  /** Any command, on a connection of its own: for set-up and for judging. */
  readonly call: (command: string, ...args: ReadonlyArray<string>) => Effect.Effect<unknown, ServiceFailed>
  /** The identity that another start does not share, or none while it does not answer. */
  readonly runId: Effect.Effect<Option.Option<string>>
}

export interface Options {
  readonly persist?: boolean | undefined
  /** As in redis.conf. */
  readonly settings?: Readonly<Record<string, string>> | undefined
}

const call = (port: number, command: string, args: ReadonlyArray<string>): Effect.Effect<unknown, ServiceFailed> =>
  Effect.acquireUseRelease(
    Effect.sync(() => {
      const client = new Client({
        host: "127.0.0.1",
        port,
        lazyConnect: true,
        connectTimeout: 2_000,
        commandTimeout: 5_000,
        maxRetriesPerRequest: 0,
        retryStrategy: () => null
      })
      // The command that finds no server says so itself.
      client.on("error", () => {})
      return client
    }),
    (client) =>
      Effect.tryPromise({
        try: () => client.connect().then(() => client.call(command, ...args)),
        catch: (cause) => new ServiceFailed({ message: `Redis cannot ${command}: ${String(cause)}` })
      }),
    (client) => Effect.sync(() => client.disconnect())
  )

const make = Effect.fn("RedisServer.make")(function*(
  options: Options
): Effect.fn.Return<RedisServer, ServiceFailed, Scope.Scope> {
  const program = yield* Redis.program
  const place: Daemon.Place = yield* ThrowawayServer.place("redis")
  const port = yield* ThrowawayServer.freePort
  const settings = {
    port,
    settings: {
      ...(options.persist === true ? { appendonly: "yes", appendfsync: "always" } : {}),
      ...options.settings
    }
  }
  const signals = ThrowawayServer.signals(place)
  const start = Effect.flatMap(
    signals.pid,
    (pid) => Option.isSome(pid) ? Effect.void : Redis.start(place, program, settings)
  )
  yield* start
  return {
    ...signals,
    url: `redis://127.0.0.1:${port}`,
    port,
    start: live(start),
    restart: live(Effect.andThen(signals.stop, start)),
    flushAll: live(Effect.asVoid(call(port, "FLUSHALL", []))),
    configSet: (name, value) => live(Effect.asVoid(call(port, "CONFIG", ["SET", name, value]))),
    call: (command, ...args) => live(call(port, command, args)),
    runId: live(Effect.map(Redis.ask(port), Option.map(({ runId }) => runId)))
  }
})

/** Starts a server of its own port and files. The scope's end kills it and deletes the files. */
export const start = (options: Options = {}): Effect.Effect<RedisServer, ServiceFailed, Scope.Scope> =>
  live(make(options)).pipe(Effect.provideService(References.MinimumLogLevel, "Warn"))
