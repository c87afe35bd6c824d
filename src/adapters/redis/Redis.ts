/**
 * The connection to Redis, and the only file that knows its driver.
 *
 * Effect's own `Redis` service was looked at and left: it loads scripts in a round trip of their own, wants a
 * subscriber and a pool, and knows no deadline, which is the one thing that matters here.
 *
 * Nothing waits for Redis longer than its own deadline, and nothing queues:
 *
 * - While there is no connection a command fails at once, but for the first moments after one was lost: a command that
 *   was under way then is sent again, within its deadline, so every script must be idempotent. What is older is never
 *   sent again: a renewal from before an outage is no sign of life after it.
 * - A connection on which nothing comes back while something is asked is given up, and made again. So a server that hangs
 *   costs its callers one deadline, and from then on they know at once.
 * - A server that became a replica answers and refuses: that too is a connection to be made again, since the address may
 *   lead to another server by now.
 *
 * Reconnecting never ends. The driver's errors carry the command with its arguments, passwords among them, so only their
 * first line leaves this file.
 */
import { Clock, Context, Deferred, Effect, Layer, Queue, Random, type Redacted, Schema, type Scope } from "effect"
import { Redis as Client } from "ioredis"
import { createHash } from "node:crypto"
import type { Pem } from "../../domain/Pem.ts"
import * as Target from "./Target.ts"

/** Redis did not answer, not in time, or not as it should. Perhaps later. */
export class RedisFailed extends Schema.TaggedError<RedisFailed>()("RedisFailed", { message: Schema.String }) {}

/** Redis answers, and will not have us: no waiting cures it. */
export class RedisRefused extends Schema.TaggedError<RedisRefused>()("RedisRefused", { message: Schema.String }) {}

/** Lua, with what it is known by. */
export interface Script {
  readonly lua: string
  readonly sha: string
}

export const script = (lua: string): Script => ({ lua, sha: createHash("sha1").update(lua).digest("hex") })

export class Redis extends Context.Service<Redis, {
  /** What every key begins with. */
  readonly prefix: string
  readonly run: (
    script: Script,
    keys: ReadonlyArray<string>,
    args: ReadonlyArray<string | number>,
    deadlineMs: number
  ) => Effect.Effect<unknown, RedisFailed>
  readonly del: (keys: ReadonlyArray<string>, deadlineMs: number) => Effect.Effect<void, RedisFailed>
  /** Whether the last that was heard of it was good. */
  readonly isUp: Effect.Effect<boolean>
}>()("deadman/adapters/redis/Redis") {}

export interface Options {
  readonly url: Redacted.Redacted
  /** For `rediss:`. */
  readonly pem?: Pem
  /** Keys of several tests in one server are kept apart by it. */
  readonly prefix?: string
  /** For `CLIENT LIST`. */
  readonly name?: string
}

const connectMs = 2_000
/** Nothing heard for this long while something was asked: the connection is dead. */
const silenceMs = 1_000
/** The longest that any command may take: the driver's own deadline, behind those of the callers. */
const commandMs = 2_000
const inFlightMax = 256
/** For so long after a connection was lost the next one is waited for. */
const blipMs = 250
const reconnectFirstMs = 20
const reconnectMaxMs = 1_000
const readonlyEveryMs = 1_000
/** How long a start waits to hear whether Redis would have us. */
const firstAnswerMs = 2_000
/** A shorter interruption is not worth a line. */
const sayAfterMs = 500

const firstLine = (error: unknown): string => {
  const text = error instanceof Error ? error.message : String(error)
  return (text === "" && error instanceof Error ? error.name : text).split("\n", 1)[0]!.slice(0, 200)
}

/** The server said something about itself rather than about the command. */
const isReplica = (message: string): boolean => message.includes("READONLY")

const make = Effect.fnUntraced(function*(
  { name, pem, prefix = "deadman:", url }: Options
): Effect.fn.Return<Redis["Service"], RedisRefused, Scope.Scope> {
  const target = Target.of(url, pem)
  if (target === null) {
    return yield* new RedisRefused({ message: "the URL must look like redis://user:password@host:6379/0" })
  }
  const clock = yield* Clock.Clock
  const random = yield* Random.Random
  const now = () => Number(clock.monotonicTimeNanosUnsafe() / 1_000_000n)
  const news = yield* Queue.sliding<"ready" | "lost">(8)
  const first = yield* Deferred.make<void, RedisRefused>()
  let inFlight = 0
  let lostMs = Number.NEGATIVE_INFINITY
  let replicaMs = Number.NEGATIVE_INFINITY
  let lastError = "no answer"
  let good = false
  const waiting = new Set<() => void>()

  const client = yield* Effect.acquireRelease(
    Effect.sync(() =>
      new Client({
        ...target,
        ...(name === undefined ? {} : { connectionName: name }),
        protocol: 2,
        disableClientInfo: true,
        lazyConnect: true,
        connectTimeout: connectMs,
        commandTimeout: commandMs,
        socketTimeout: silenceMs,
        enableOfflineQueue: false,
        // What is under way when a connection ends is refused at once and sent again below, or not at all. Left to the
        // driver it would be sent whenever the server comes back, however old. Its other switch for this,
        // `autoResendUnfulfilledCommands: false`, leaves promises that never settle.
        maxRetriesPerRequest: 0,
        retryStrategy: (times) =>
          Math.min(reconnectMaxMs, reconnectFirstMs * 2 ** Math.min(times - 1, 10)) *
          (0.75 + random.nextDoubleUnsafe() / 2),
        reconnectOnError: (error) => {
          if (!isReplica(error.message) || now() - replicaMs < readonlyEveryMs) {
            return false
          }
          replicaMs = now()
          return true
        }
      })
    ),
    (client) => Effect.sync(() => client.disconnect())
  )
  client.on("error", (error: unknown) => {
    lastError = firstLine(error)
    if (Target.isHopeless(lastError)) {
      Deferred.doneUnsafe(first, Effect.fail(new RedisRefused({ message: lastError })))
    }
  })
  client.on("ready", () => {
    good = true
    lostMs = Number.NEGATIVE_INFINITY
    Deferred.doneUnsafe(first, Effect.void)
    Queue.offerUnsafe(news, "ready")
    for (const resume of Array.from(waiting)) {
      resume()
    }
  })
  client.on("close", () => {
    if (lostMs === Number.NEGATIVE_INFINITY) {
      lostMs = now()
      Queue.offerUnsafe(news, "lost")
    }
    good = false
  })

  /** Until there is a connection, for a moment at most. Whether there is one. */
  const ready = Effect.suspend(() => {
    if (client.status === "ready") {
      return Effect.succeed(true)
    }
    const leftMs = lostMs + blipMs - now()
    if (!(leftMs > 0)) {
      return Effect.succeed(false)
    }
    return Effect.callback<boolean>((resume) => {
      const answer = () => {
        waiting.delete(answer)
        resume(Effect.succeed(true))
      }
      waiting.add(answer)
      return Effect.sync(() => {
        waiting.delete(answer)
      })
    }).pipe(Effect.timeoutOrElse({ duration: leftMs, orElse: () => Effect.succeed(false) }))
  })

  const failed = (message: string) => {
    good = false
    return new RedisFailed({ message })
  }

  const attempt = <A>(ask: () => Promise<A>) =>
    Effect.tryPromise({
      try: () => {
        inFlight += 1
        return ask().finally(() => {
          inFlight -= 1
        })
      },
      catch: firstLine
    })

  /** Sent again only if the connection was lost under it, and only while its caller waits. */
  const send = <A>(ask: () => Promise<A>, deadlineMs: number): Effect.Effect<A, RedisFailed> =>
    Effect.gen(function*() {
      while (true) {
        if (!(yield* ready)) {
          return yield* failed(`no connection: ${lastError}`)
        }
        if (inFlight >= inFlightMax) {
          return yield* failed(`${inFlightMax} commands are under way already`)
        }
        const answer = yield* Effect.result(attempt(ask))
        if (answer._tag === "Success") {
          good = true
          return answer.success
        }
        if (client.status === "ready" || isReplica(answer.failure)) {
          return yield* failed(answer.failure)
        }
      }
    }).pipe(Effect.timeoutOrElse({
      duration: deadlineMs,
      orElse: () => Effect.suspend(() => Effect.fail(failed(`no answer within ${deadlineMs} ms`)))
    }))

  const run: Redis["Service"]["run"] = ({ lua, sha }, keys, args, deadlineMs) =>
    send(
      () =>
        client.evalsha(sha, keys.length, ...keys, ...args).catch((error: unknown) => {
          if (firstLine(error).startsWith("NOSCRIPT")) {
            return client.eval(lua, keys.length, ...keys, ...args)
          }
          throw error
        }),
      deadlineMs
    )

  const warnOfEviction = Effect.gen(function*() {
    const info = yield* send(() => client.info("memory"), commandMs)
    const field = (key: string) => new RegExp(`^${key}:(.*?)\\r?$`, "m").exec(info)?.[1]
    const policy = field("maxmemory_policy")
    if (policy !== undefined && policy !== "noeviction" && field("maxmemory") !== "0") {
      yield* Effect.logWarning(
        `redis may throw keys away (maxmemory-policy ${policy}): no job is lost by it, but leases must be looked up in ` +
          "Postgres and jobs may start late; set maxmemory-policy to noeviction, or give Deadman a Redis of its own"
      )
    }
  }).pipe(Effect.ignore)

  const saying = Effect.gen(function*() {
    let said = false
    let warned = false
    let sinceMs = now()
    while (true) {
      const what = yield* Queue.take(news)
      if (what === "lost") {
        sinceMs = now()
        yield* Effect.sleep(sayAfterMs)
        if (!said && client.status !== "ready" && now() - lostMs >= sayAfterMs / 2) {
          said = true
          const advice = Target.adviceOf(lastError)
          yield* Effect.logWarning(
            `redis does not answer (${lastError}${
              advice === null ? "" : `. ${advice}`
            }): until it does, leases are looked ` +
              "up in Postgres and what is due is found by its scan"
          )
        }
      } else if (client.status === "ready") {
        if (said) {
          said = false
          yield* Effect.logInfo(`redis answers again, after ${Math.round((now() - sinceMs) / 1_000)} s`)
        }
        if (!warned) {
          warned = true
          yield* warnOfEviction
        }
      }
    }
  })
  yield* Effect.forkScoped(saying)

  client.connect().catch(() => {})
  yield* Effect.timeoutOption(Deferred.await(first), firstAnswerMs)

  return Redis.of({
    prefix,
    run,
    del: (keys, deadlineMs) => Effect.asVoid(send(() => client.del(...keys), deadlineMs)),
    isUp: Effect.sync(() => good && client.status === "ready")
  })
})

/** Does not wait for a Redis that is away; fails only if it answers that it will not have us. */
export const layer = (options: Options): Layer.Layer<Redis, RedisRefused> => Layer.effect(Redis, make(options))
