/** What a scrape brings, of a server and of a worker as processes: all that `docs/operations.md` lists, each of its kind. */
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { readFileSync } from "node:fs"
import * as ApiClient from "../../support/ApiClient.ts"
import { freshDatabase } from "../../support/Database.ts"
import * as Processes from "../../support/Processes.ts"
import * as Servers from "../../support/Servers.ts"

const page = readFileSync("docs/operations.md", "utf8").split("\n## Metrics\n")[1]?.split("\n## ")[0] ?? ""

/** `name kind` of each, and what is said of it. */
const listed = [...page.matchAll(/^\| (`deadman.*?) \| (.*?) \|/gm)].flatMap(([, names = "", meaning = ""]) =>
  [...names.matchAll(/`(\w+)/g)].map(([, name = ""]) => ({
    line: `${name} ${meaning.startsWith("histogram") ? "histogram" : name.endsWith("_total") ? "counter" : "gauge"}`,
    meaning
  }))
)

const scrape = (api: ApiClient.ApiClient) =>
  Effect.map(api.send("GET", "/metrics"), ({ body, status }) => {
    assert.strictEqual(status, 200)
    const text = String(body)
    return {
      kinds: [...text.matchAll(/^# TYPE (\S+ \w+)$/gm)].map(([, line = ""]) => line).sort(),
      helps: [...text.matchAll(/^# HELP (\S+) \S/gm)].length,
      value: (series: string) =>
        Number(new RegExp(`^${series.replaceAll(/[{}"+]/g, "\\$&")} (\\S+)$`, "m").exec(text)?.[1])
    }
  })

const lines = (of: (meaning: string, line: string) => boolean) =>
  listed.filter(({ line, meaning }) => of(meaning, line)).map(({ line }) => line).sort()

it.live(
  "a scrape of a server and of a worker has what the page lists, and says what they have done",
  () =>
    Effect.gen(function*() {
      assert.isAtLeast(listed.length, 15)
      const { url } = yield* freshDatabase
      const env = { DEADMAN_DATABASE_URL: Redacted.value(url) }
      const { api } = yield* Servers.started(env)
      const port = yield* Processes.freePort
      yield* Processes.start("worker", { ...env, DEADMAN_WORKER_THREADS: "2", DEADMAN_METRICS_PORT: String(port) })
      const worker = ApiClient.make(port)

      // What alerts are made of must be there before it first happens.
      const first = (meaning: string, line: string) =>
        !meaning.includes("absent until the first") && !line.endsWith(" histogram")
      yield* Processes.eventually(
        "both say all that they will say",
        Effect.gen(function*() {
          const server = yield* scrape(api)
          const idle = yield* scrape(worker)
          assert.includeMembers(server.kinds, lines(first))
          assert.includeMembers(idle.kinds, lines((meaning, line) => first(meaning, line) && line.endsWith(" counter")))
          return true
        })
      )

      const bodies = [...Array.from({ length: 5 }, () => ({ type: "noop" })), { type: "always-fails", max_attempts: 1 }]
      yield* Effect.forEach(bodies, (body) => api.send("POST", "/jobs", body))
      yield* Processes.eventually(
        "all have run",
        Effect.map(scrape(worker), ({ value }) => value("deadman_completed_total") === 5)
      )
      yield* Processes.eventually(
        "the server counts them",
        Effect.map(
          scrape(api),
          ({ value }) =>
            value(`deadman_jobs{state="completed"}`) === 5 && value("deadman_workers") === 1 &&
            value("deadman_oldest_ready_ms") === 0
        )
      )
      const server = yield* scrape(api)
      const busy = yield* scrape(worker)
      assert.strictEqual(server.value("deadman_submitted_total"), 6)
      assert.strictEqual(server.value("deadman_claimed_total"), 0)
      assert.strictEqual(busy.value("deadman_claimed_total"), 6)
      assert.strictEqual(busy.value("deadman_failed_total"), 1)
      assert.strictEqual(busy.value("deadman_dead_total"), 1)
      assert.strictEqual(busy.value("deadman_wait_ms_count"), 6)
      assert.strictEqual(busy.value(`deadman_run_ms_bucket{le="+Inf"}`), 6)
      for (const { helps, kinds } of [server, busy]) {
        assert.strictEqual(helps, kinds.length)
        assert.deepStrictEqual(kinds.filter((kind) => !listed.some(({ line }) => line === kind)), [])
      }
      const served = new Set([...server.kinds, ...busy.kinds])
      assert.deepStrictEqual(
        lines((meaning, line) => !served.has(line) && !meaning.includes("absent until the first")),
        []
      )

      yield* api.send("POST", "/jobs", { type: "nobody" })
      yield* Processes.eventually(
        "the job that nobody takes is seen to wait",
        Effect.gen(function*() {
          const { body } = yield* api.send("GET", "/stats")
          const waitedMs = (yield* scrape(api)).value("deadman_oldest_ready_ms")
          return body.oldest_ready_ms > 1_000 && waitedMs > 1_000 && waitedMs < 180_000
        })
      )
    }).pipe(Effect.scoped),
  180_000
)
