/** A process that starts a `PostgresServer`, says where, and waits to be killed. */
import { NodeRuntime } from "@effect/platform-node"
import { Effect, Option } from "effect"
import * as PostgresServer from "./PostgresServer.ts"

process.stdin.on("end", () => process.exit(0)).resume()

NodeRuntime.runMain(Effect.scoped(Effect.gen(function*() {
  const server = yield* PostgresServer.start()
  const pid = Option.getOrThrow(yield* server.pid)
  process.stdout.write(`${JSON.stringify({ pid, dataDir: server.dataDir })}\n`)
  return yield* Effect.never
})))
