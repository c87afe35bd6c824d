/** The programs under the one name: in this very process, with their own signals and exit codes. */
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Cli from "../../support/Cli.ts"
import { freshDatabase } from "../../support/Database.ts"
import * as Processes from "../../support/Processes.ts"

const whenUp = (name: NodeJS.Signals, text: string): Cli.Options["signal"] => ({
  name,
  when: (out) => out.includes(text)
})

/** What is said of the stop. */
const stopOf = (out: string) => Array.from(out.matchAll(/"message":"(told to stop|stop[^"]*)"/g), ([, said]) => said)

it.live("server and worker run in the process of the command, and end as they do", () =>
  Effect.gen(function*() {
    const { url } = yield* freshDatabase
    const env = { DEADMAN_DATABASE_URL: Redacted.value(url), DEADMAN_LOG_FORMAT: "json" }
    const port = { DEADMAN_PORT: String(yield* Processes.freePort) }
    const server = yield* Cli.run(["server"], {
      env: { ...env, ...port },
      signal: whenUp("SIGTERM", "server is up")
    })
    assert.strictEqual(server.code, 0, server.err)
    // Idle, they say so too.
    assert.deepStrictEqual(stopOf(server.out), ["told to stop", "stopped"])
    const worker = yield* Cli.run(["worker"], { env, signal: whenUp("SIGINT", "worker is up") })
    assert.strictEqual(worker.code, 0, worker.err)
    assert.deepStrictEqual(stopOf(worker.out), ["told to stop", "stopped"])
    const wrong = yield* Cli.run(["worker"], { env: { ...env, DEADMAN_WORKER_THREADS: "-1" } })
    assert.strictEqual(wrong.code, 1)
    assert.include(wrong.err, "DEADMAN_WORKER_THREADS")
  }).pipe(Effect.scoped), 300_000)

it.live(
  "what runs until it is told to stop has no JSON answer, and says so; chaos has one, of a failure too",
  () =>
    Effect.gen(function*() {
      for (const name of ["dev", "server", "worker"]) {
        const refused = yield* Cli.run([name, "--json"])
        assert.strictEqual(refused.code, 2, name)
        assert.include(refused.err, "leave --json out")
        assert.strictEqual(JSON.parse(refused.out).error.code, "usage", name)
      }
      const wrong = yield* Cli.run(["chaos", "--json", "--faults", "earthquake"])
      assert.strictEqual(wrong.code, 1)
      assert.include(JSON.parse(wrong.out).error.message, "--faults")
    }),
  300_000
)

it.live(
  "dev has everything in itself, says what to try, and leaves the services of others alone",
  () =>
    Effect.gen(function*() {
      const folder = yield* Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), "deadman-cli-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
      )
      const port = yield* Processes.freePort
      const ran = yield* Cli.run(["dev", "--port", String(port), "--data-dir", join(folder, "data")], {
        // Nothing is there: it must not be asked.
        env: { DEADMAN_DATABASE_URL: "postgres://nobody@127.0.0.1:1/none", DEADMAN_LOG_FORMAT: "json" },
        signal: whenUp("SIGTERM", "server is up")
      })
      assert.strictEqual(ran.code, 0, ran.err + ran.out)
      assert.include(ran.out, `deadman submit sleep 500 --wait --url http://127.0.0.1:${port}`)
      assert.include(ran.out, "DEADMAN_DATABASE_URL is set and left alone")
      assert.include(ran.out, "always-fails")
      // The same where no flag says the port, and with handlers of one's own.
      writeFileSync(join(folder, "mine.mjs"), "export const handlers = { mine: () => 1 }\n")
      const byVariable = yield* Cli.run(
        ["dev", "--data-dir", join(folder, "data"), "--handlers", join(folder, "mine.mjs")],
        {
          env: {
            DEADMAN_DATABASE_URL: "postgres://nobody@127.0.0.1:1/none",
            DEADMAN_PORT: String(port),
            DEADMAN_LOG_FORMAT: "json"
          },
          signal: whenUp("SIGTERM", "server is up"),
          killAfterMs: 30_000
        }
      )
      assert.strictEqual(byVariable.code, 0, byVariable.err + byVariable.out)
      assert.include(byVariable.out, "\"profile\":\"embedded\"")
      assert.include(byVariable.out, "\"handlers\":[\"mine\",\"noop\"")
      assert.include(byVariable.out, join(folder, "data"))
      const wrong = yield* Cli.run(["dev", "--port", "none"])
      assert.strictEqual(wrong.code, 2)
      assert.include(wrong.err, "port")
    }).pipe(Effect.scoped),
  300_000
)
