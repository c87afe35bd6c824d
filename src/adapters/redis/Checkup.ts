/** A look at Redis for people, on a connection of its own: what it is, what it keeps, what it may throw away. */
import { Clock, Effect, Schema } from "effect"
import { Redis as Client } from "ioredis"
import { because } from "../../domain/Because.ts"
import type { RedisFacts } from "../../ports/Checkups.ts"
import type { Options } from "./Redis.ts"
import * as Target from "./Target.ts"

export class CheckupFailed extends Schema.TaggedError<CheckupFailed>()("CheckupFailed", { message: Schema.String }) {
  /** What to do, where it is not an outage: no waiting cures it. */
  get advice(): string | null {
    return Target.adviceOf(this.message)
  }
}

/** `INFO` as it is sent: `name:value` lines under `# Section` lines. */
const fieldsOf = (info: string): ReadonlyMap<string, string> =>
  new Map(
    info.split("\r\n").flatMap((line) => {
      const at = line.indexOf(":")
      return at > 0 && !line.startsWith("#") ? [[line.slice(0, at), line.slice(at + 1)] as const] : []
    })
  )

const connected = ({ pem, url }: Options) =>
  Effect.acquireRelease(
    Effect.suspend(() => {
      const target = Target.of(url, pem)
      if (target === null) {
        return Effect.fail(
          new CheckupFailed({ message: "the address must look like redis://user:password@host:6379/0" })
        )
      }
      const client = new Client({
        ...target,
        // A user of few rights is asked for no more than by whoever works with it.
        protocol: 2,
        disableClientInfo: true,
        lazyConnect: true,
        connectTimeout: 2_000,
        commandTimeout: 3_000,
        maxRetriesPerRequest: 0,
        retryStrategy: () => null
      })
      let said: unknown
      client.on("error", (error: unknown) => {
        said = error
      })
      return Effect.succeed({ client, why: (cause: unknown) => said ?? cause })
    }),
    ({ client }) => Effect.sync(() => client.disconnect())
  )

export const look = (options: Options): Effect.Effect<RedisFacts, CheckupFailed> =>
  Effect.gen(function*() {
    const { client, why } = yield* connected(options)
    const ask = <A>(run: () => Promise<A>) =>
      // The driver's errors carry the command with its arguments: only their message leaves this file. A connection that
      // is refused is a closed one to whoever made it, and the reason an event.
      Effect.tryPromise({ try: run, catch: (cause) => new CheckupFailed({ message: because(why(cause)) }) })
    yield* ask(() => client.connect())
    const before = yield* Clock.currentTimeMillis
    const fields = fieldsOf(yield* ask(() => client.info()))
    const after = yield* Clock.currentTimeMillis
    const number = (name: string) => Number(fields.get(name) ?? 0)
    const kept = fields.get("aof_enabled") === "1" ? "append-only file" : "snapshots, or none"
    return {
      version: fields.get("redis_version") ?? "unknown",
      role: fields.get("role") ?? "unknown",
      evictionPolicy: fields.get("maxmemory_policy") ?? "unknown",
      maxMemoryBytes: number("maxmemory"),
      usedMemoryBytes: number("used_memory"),
      evictedKeys: number("evicted_keys"),
      persistence: kept,
      lastSaveFailed: fields.get("rdb_last_bgsave_status") === "err" || fields.get("aof_last_write_status") === "err",
      roundTripMs: after - before
    } satisfies RedisFacts
  }).pipe(Effect.scoped)
