/** The Redis of the tests does to a client what a real one does when it is flushed, frozen, killed and restarted. */
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Fiber, Layer, Option } from "effect"
import { Redis } from "ioredis"
import { spawn } from "node:child_process"
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"
import * as ProcessIdentity from "../../src/adapters/embedded/ProcessIdentity.ts"
import { eventually, live } from "../support/Eventually.ts"
import * as RedisServer from "../support/RedisServer.ts"

class Plain extends Context.Service<Plain, RedisServer.RedisServer>()("deadman/test/deploy/RedisServer.test/Plain") {
  static readonly layer = Layer.effect(Plain, RedisServer.start())
}

const client = (url: string) =>
  Effect.acquireRelease(
    Effect.sync(() => new Redis(url, { maxRetriesPerRequest: null }).on("error", () => {})),
    (client) => Effect.sync(() => client.disconnect())
  )

describe("RedisServer", () => {
  layer(Plain.layer)((it) => {
    it.effect("answers commands and scripts, and forgets on FLUSHALL", () =>
      Effect.gen(function*() {
        const server = yield* Plain
        const redis = yield* client(server.url)
        const script = "return redis.call('set', KEYS[1], ARGV[1], 'PX', 60000)"
        yield* Effect.promise(() => redis.eval(script, 1, "lease", "token"))
        assert.strictEqual(yield* Effect.promise(() => redis.get("lease")), "token")
        yield* server.flushAll
        assert.isNull(yield* Effect.promise(() => redis.get("lease")))
      }))

    it.effect("does not answer while it is frozen, and goes on when thawed", () =>
      Effect.gen(function*() {
        const server = yield* Plain
        const redis = yield* client(server.url)
        yield* Effect.promise(() => redis.set("kept", "1"))
        yield* server.freeze
        const asking = yield* Effect.forkChild(Effect.promise(() => redis.get("kept")))
        yield* live(Effect.sleep("300 millis"))
        assert.isUndefined(asking.pollUnsafe())
        yield* server.thaw
        assert.strictEqual(yield* Fiber.join(asking), "1")
      }))

    it.effect("comes back empty, with another run id, on the same port", () =>
      Effect.gen(function*() {
        const server = yield* Plain
        const before = yield* server.runId
        const redis = yield* client(server.url)
        yield* Effect.promise(() => redis.set("lost", "1"))
        yield* server.kill
        assert.deepStrictEqual(yield* server.pid, Option.none())
        assert.deepStrictEqual(yield* server.runId, Option.none())
        yield* server.start
        assert.notDeepEqual(yield* server.runId, before)
        yield* eventually("the client is back", Effect.sync(() => redis.status === "ready"))
        assert.isNull(yield* Effect.promise(() => redis.get("lost")))
      }))

    it.effect("takes settings while it runs", () =>
      Effect.gen(function*() {
        const server = yield* Plain
        yield* server.configSet("maxmemory", "1mb")
        assert.deepStrictEqual(yield* server.call("CONFIG", "GET", "maxmemory"), ["maxmemory", "1048576"])
        yield* server.configSet("maxmemory", "0")
        yield* server.call("REPLICAOF", "127.0.0.1", "1")
        const refused = yield* Effect.flip(server.call("SET", "a", "b"))
        assert.include(refused.message, "READONLY")
        yield* server.call("REPLICAOF", "NO", "ONE")
        assert.strictEqual(yield* server.call("SET", "a", "b"), "OK")
      }))

    it.effect("keeps what was written over a crash when it persists", () =>
      Effect.gen(function*() {
        const server = yield* RedisServer.start({ persist: true })
        yield* server.call("SET", "kept", "1")
        yield* server.kill
        yield* server.start
        assert.strictEqual(yield* server.call("GET", "kept"), "1")
      }).pipe(Effect.scoped))

    it.effect("is gone with its scope, frozen or not", () =>
      Effect.gen(function*() {
        const pid = yield* Effect.scoped(Effect.gen(function*() {
          const server = yield* RedisServer.start()
          yield* server.freeze
          return Option.getOrThrow(yield* server.pid)
        }))
        assert.isUndefined(ProcessIdentity.startOf(pid))
      }))

    it.effect("does not outlive a test that was killed, frozen or not", () =>
      Effect.gen(function*() {
        const program = fileURLToPath(new URL("../support/redisHolder.ts", import.meta.url))
        const holder = yield* Effect.acquireRelease(
          Effect.sync(() => spawn(process.execPath, [program], { stdio: ["pipe", "pipe", "inherit"] })),
          (child) => Effect.sync(() => void child.kill("SIGKILL"))
        )
        let said = ""
        holder.stdout.on("data", (chunk) => said += String(chunk))
        yield* eventually("it has a server", Effect.sync(() => said.endsWith("\n")), "60 seconds")
        const { folder, pid } = JSON.parse(said)
        assert.isTrue(existsSync(folder))
        process.kill(pid, "SIGSTOP")
        holder.kill("SIGKILL")
        yield* eventually("it is gone", Effect.sync(() => ProcessIdentity.startOf(pid) === undefined))
        yield* eventually("its files are gone", Effect.sync(() => !existsSync(folder)))
      }).pipe(Effect.scoped))
  })
})
