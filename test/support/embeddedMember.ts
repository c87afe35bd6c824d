/**
 * A process that is a member of an embedded Postgres: prints one line of JSON when it has it, and leaves on SIGTERM
 * or when its stdin ends, which it does when the test that started it is gone.
 */
import { NodeRuntime } from "@effect/platform-node"
import { Duration, Effect, Redacted } from "effect"
import * as EmbeddedPostgres from "../../src/adapters/embedded/EmbeddedPostgres.ts"

const [dataDir = "", programs, programsCache] = process.argv.slice(2)
const lingerMs = process.env["TEST_LINGER_MS"]
const linger = lingerMs === undefined ? undefined : Duration.millis(Number(lingerMs))

const say = (line: object) => Effect.sync(() => process.stdout.write(`${JSON.stringify(line)}\n`))

process.stdin.on("end", () => process.kill(process.pid, "SIGTERM")).resume()

NodeRuntime.runMain(
  Effect.scoped(Effect.gen(function*() {
    const { pid, port, started, url } = yield* EmbeddedPostgres.acquire({ dataDir, programs, programsCache, linger })
    yield* say({ pid, port, started, url: Redacted.value(url) })
    return yield* Effect.never
  })).pipe(
    Effect.catchTag("EmbeddedPostgresFailed", (error) => say({ failed: error.message }))
  ),
  { disableErrorReporting: true }
)
