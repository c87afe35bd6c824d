/** The Redis adapters of a test: on the run's shared server under a prefix of its own, or on a server of its own. */
import { Context, Effect, Layer, Redacted } from "effect"
import { randomBytes } from "node:crypto"
import * as DelayedJobsRedis from "../../src/adapters/redis/DelayedJobsRedis.ts"
import * as LeaseRegisterRedis from "../../src/adapters/redis/LeaseRegisterRedis.ts"
import * as Redis from "../../src/adapters/redis/Redis.ts"
import type { DelayedJobs } from "../../src/ports/DelayedJobs.ts"
import type { LeaseRegister } from "../../src/ports/LeaseRegister.ts"
import * as RedisServer from "./RedisServer.ts"
import * as TestServers from "./TestServers.ts"

/** The server of one suite, to be frozen, flushed and killed. */
export class Server extends Context.Service<Server, RedisServer.RedisServer>()("deadman/test/support/Redis/Server") {}

export const freshPrefix = Effect.sync(() => `deadman-test-${randomBytes(6).toString("hex")}:`)

const adapters = Layer.mergeAll(LeaseRegisterRedis.layer, DelayedJobsRedis.layer)

/** On the run's own server. */
export const shared: Layer.Layer<LeaseRegister | DelayedJobs | Redis.Redis> = Layer.unwrap(Effect.gen(function*() {
  const url = Redacted.make(yield* TestServers.redisUrl)
  return Layer.provideMerge(adapters, Redis.layer({ url, prefix: yield* freshPrefix }))
})).pipe(Layer.orDie)

export const server = (options: RedisServer.Options = {}): Layer.Layer<Server> =>
  Layer.effect(Server, RedisServer.start(options)).pipe(Layer.orDie)

/** A connection to the server of the suite. */
export const client: Layer.Layer<Redis.Redis, never, Server> = Layer.unwrap(
  Effect.map(Server, ({ url }) => Redis.layer({ url: Redacted.make(url) }))
).pipe(Layer.orDie)

/** Both adapters on it. */
export const onServer: Layer.Layer<LeaseRegister | DelayedJobs | Redis.Redis, never, Server> = Layer.provideMerge(
  adapters,
  client
)
