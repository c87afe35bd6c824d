/** A process that starts a `RedisServer`, says where, and waits to be killed. */
import { NodeRuntime } from "@effect/platform-node"
import { Effect, Option } from "effect"
import * as RedisServer from "./RedisServer.ts"

process.stdin.on("end", () => process.exit(0)).resume()

NodeRuntime.runMain(Effect.scoped(Effect.gen(function*() {
  const server = yield* RedisServer.start()
  const pid = Option.getOrThrow(yield* server.pid)
  process.stdout.write(`${JSON.stringify({ pid, folder: server.folder })}\n`)
  return yield* Effect.never
})))
