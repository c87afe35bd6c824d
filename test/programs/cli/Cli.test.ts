/** Every command as a child process against a real server: what it answers, and how it ends. */
import { assert, it } from "@effect/vitest"
import { Context, Deferred, Effect, Fiber, Layer, Redacted } from "effect"
import { readFileSync } from "node:fs"
import { createServer, type Server as HttpServer } from "node:http"
import type { AddressInfo } from "node:net"
import * as ApiClient from "../../support/ApiClient.ts"
import * as Cli from "../../support/Cli.ts"
import { freshDatabase } from "../../support/Database.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Processes from "../../support/Processes.ts"

const token = "a-token-for-tests"

interface Site {
  readonly url: string
  readonly database: string
  readonly api: ApiClient.ApiClient
}

class Server extends Context.Service<Server, Site>()("deadman/test/programs/cli/Cli.test/Server") {
  static readonly layer = Layer.effect(
    Server,
    Effect.gen(function*() {
      const { url } = yield* freshDatabase
      const port = yield* Processes.freePort
      yield* Processes.start("server", {
        DEADMAN_DATABASE_URL: Redacted.value(url),
        DEADMAN_PORT: String(port),
        DEADMAN_API_TOKEN: token
      })
      const plain = ApiClient.make(port)
      const api: ApiClient.ApiClient = {
        ...plain,
        send: (method, path, body) => plain.send(method, path, body, { authorization: `Bearer ${token}` })
      }
      const isReady = Effect.map(api.send("GET", "/ready"), ({ status }) => status === 200)
      yield* eventually("the server is ready", isReady, "60 seconds")
      return { url: plain.base, database: Redacted.value(url), api }
    })
  )
}

/** Answers all but looks with `body`. */
const pausingOnly = (look: 503 | "no answer", body: unknown) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.callback<HttpServer>((resume) => {
        const server = createServer(({ method }, response) => {
          if (method !== "GET" || look !== "no answer") {
            response.writeHead(method === "GET" ? 503 : 200, { "content-type": "application/json" })
            response.end(JSON.stringify(method === "GET" ? { error: { code: "unavailable", message: "no" } } : body))
          }
        })
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
      }),
      (server) =>
        Effect.sync(() => {
          server.closeAllConnections()
          server.close()
        })
    ),
    (server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  )

const deadman = (...args: ReadonlyArray<string>) => deadmanWith({}, ...args)

const deadmanWith = ({ env, ...options }: Cli.Options, ...args: ReadonlyArray<string>) =>
  Effect.flatMap(
    Server,
    ({ url }) => Cli.run(args, { ...options, env: { DEADMAN_URL: url, DEADMAN_API_TOKEN: token, ...env } })
  )

/** stdout has to be one document, whatever happened. */
const documentOf = (ran: Cli.Ran) => {
  assert.match(ran.out, /^\{.*\}\n$/s, ran.err)
  return JSON.parse(ran.out)
}

const ok = (ran: Cli.Ran): Cli.Ran => {
  assert.strictEqual(ran.code, 0, ran.err + ran.out)
  return ran
}

it.layer(Server.layer, { excludeTestServices: true, timeout: "2 minutes" })("deadman", (it) => {
  it.effect("submits, waits for the end, and shows the job as text and as JSON", () =>
    Effect.gen(function*() {
      const ran = ok(yield* deadman("submit", "sleep", "20", "--tag", "a", "--tag", "b c", "--wait", "--json"))
      const job = documentOf(ran)
      assert.strictEqual(job.state, "completed")
      assert.deepStrictEqual([job.payload, job.tags], [20, ["a", "b c"]])
      const text = ok(yield* deadman("get", job.id)).out
      assert.match(text, /^id +\S+$/m)
      assert.match(text, /^state +completed$/m)
      assert.notInclude(text, "\u001b")
      assert.deepStrictEqual(documentOf(ok(yield* deadman("get", job.id, "--json"))).id, job.id)
    }), 180_000)

  it.effect("prints the id of what it submits, and the same one for the same key", () =>
    Effect.gen(function*() {
      const first = ok(yield* deadman("submit", "noop", "--key", "cli-1")).out.trim()
      const again = ok(yield* deadman("submit", "noop", "--key", "cli-1"))
      assert.match(first, /^\S+$/)
      assert.strictEqual(again.out, `${first}\n`)
      assert.include(again.err, "replayed")
      const other = yield* deadman("submit", "noop", "1", "--key", "cli-1", "--json")
      assert.strictEqual(other.code, 1)
      assert.strictEqual(documentOf(other).error.code, "key_reused")
    }), 180_000)

  it.effect(
    "takes the payload from stdin, and refuses what is no JSON, or would be rounded",
    () =>
      Effect.gen(function*() {
        const ran = ok(yield* deadmanWith({ input: "{\"to\": \"ada\"}\n" }, "submit", "cli.none", "-", "--json"))
        assert.deepStrictEqual(documentOf(ran).payload, { to: "ada" })
        for (const payload of ["{to: ada}", "12345678901234567890123", "1e999"]) {
          const refused = yield* deadman("submit", "cli.none", payload)
          assert.strictEqual(refused.code, 2, payload)
          assert.strictEqual(refused.out, "")
          assert.include(refused.err, "not JSON")
        }
      }),
    180_000
  )

  it.effect("fails with a job that ended dead, and says how it died", () =>
    Effect.gen(function*() {
      const ran = yield* deadman("submit", "always-fails", "--max-attempts", "1", "--wait", "--json")
      assert.strictEqual(ran.code, 1)
      const job = documentOf(ran)
      assert.strictEqual(job.reason, "attempts_exhausted")
      const text = ok(yield* deadman("get", job.id)).out
      assert.match(text, /dead \(attempts_exhausted\)/)
      assert.match(text, /failed, attempt 1/)
      const resubmitted = documentOf(ok(yield* deadman("resubmit", job.id, "--json")))
      assert.strictEqual(resubmitted.resubmitted_from, job.id)
    }), 180_000)

  it.effect("says of a job it waits for that nobody has a handler for its type", () =>
    Effect.gen(function*() {
      const late = yield* deadman("submit", "cli.nobody", "--wait", "--within", "20s", "--json")
      assert.deepStrictEqual([late.code, documentOf(late).error.code], [1, "not_ended"])
      assert.match(late.err, /^no process has a handler for cli\.nobody: start a worker/m)
      const asleep = ok(yield* deadman("submit", "sleep", "14000", "--wait"))
      assert.notInclude(asleep.err, "no process has a handler")
    }), 180_000)

  it.effect("books a job for later, lets it run now, and cancels it", () =>
    Effect.gen(function*() {
      const later = documentOf(ok(yield* deadman("submit", "cli.none", "--in", "1h", "--json")))
      assert.strictEqual(later.run_at_ms - later.created_at_ms, 3_600_000)
      const booked = ["submit", "cli.none", "--in", "1h", "--key", "cli-in"]
      assert.strictEqual(ok(yield* deadman(...booked)).out, ok(yield* deadman(...booked)).out)
      const now = documentOf(ok(yield* deadman("retry", later.id, "--json")))
      assert.isBelow(now.run_at_ms - later.created_at_ms, 180_000)
      assert.strictEqual(documentOf(ok(yield* deadman("cancel", later.id, "--json"))).reason, "cancelled")
      const again = ok(yield* deadman("cancel", later.id, "--json"))
      assert.deepStrictEqual([documentOf(again).reason, again.err], ["cancelled", "it was cancelled before\n"])
      const refused = yield* deadman("retry", later.id, "--json")
      assert.strictEqual(refused.code, 1)
      assert.deepInclude(documentOf(refused).error, { code: "wrong_state", state: "dead" })
      const at = documentOf(ok(yield* deadman("submit", "cli.none", "--at", "2999-01-01T00:00:00Z", "--json")))
      assert.strictEqual(at.run_at_ms, Date.UTC(2999, 0, 1))
      const east = ok(yield* deadman("submit", "cli.none", "--at", "2999-01-01T02:00:00+02:00"))
      assert.strictEqual(east.err, "due at 2999-01-01 00:00:00.000 UTC\n")
      const unzoned = yield* deadman("submit", "cli.none", "--at", "2999-01-01T00:00:00")
      assert.deepStrictEqual([unzoned.code, unzoned.out], [2, ""])
      assert.include(
        unzoned.err,
        "Expected: a time with its zone, as 2999-01-01T08:00:00Z or 2999-01-01T08:00:00+02:00"
      )
      const said = Effect.map(deadman("list", "--limit", "0"), ({ err }) => err.split("\n")[0])
      assert.strictEqual(
        yield* said,
        "Invalid value for flag --limit: \"0\". Expected: a value between 1 and 10000"
      )
      const both = ["--at", "2999-01-01T00:00:00Z", "--in", "1h"]
      assert.strictEqual((yield* deadman("submit", "cli.none", ...both)).code, 2)
      const terms = ["submit", "cli.terms", "7", "--unique", "--start-within", "1h", "--retain", "1d", "--json"]
      const first = documentOf(ok(yield* deadman(...terms)))
      assert.strictEqual(first.retain_ms, 86_400_000)
      assert.isAbove(first.start_by_ms - first.created_at_ms, 3_590_000)
      assert.strictEqual(documentOf(ok(yield* deadman(...terms))).id, first.id)
    }), 180_000)

  it.effect("lists what a filter lets through, page by page", () =>
    Effect.gen(function*() {
      const { api } = yield* Server
      for (let n = 0; n < 5; n++) {
        yield* api.send("POST", "/jobs", { type: "cli.listed", payload: n, tags: ["list"] })
      }
      const page = documentOf(ok(yield* deadman("list", "--type", "cli.listed", "--limit", "3", "--json")))
      assert.deepStrictEqual(page.jobs.map((job: { payload: number }) => job.payload), [4, 3, 2])
      const rest = documentOf(
        ok(yield* deadman("ls", "--type", "cli.listed", "--cursor", page.next_cursor, "--json"))
      )
      assert.deepStrictEqual(rest.jobs.map((job: { payload: number }) => job.payload), [1, 0])
      assert.isNull(rest.next_cursor)
      const text = ok(yield* deadman("list", "--tag", "list")).out.trim().split("\n")
      assert.match(text[0] ?? "", /^ID +STATE +TYPE/)
      assert.strictEqual(text.length, 6)
      assert.strictEqual(ok(yield* deadman("list", "--type", "cli.nothing")).out, "no jobs\n")
    }), 180_000)

  it.effect("follows a job until it has ended, one document per change", () =>
    Effect.gen(function*() {
      const { api } = yield* Server
      const { id } = (yield* api.send("POST", "/jobs", { type: "cli.none" })).body
      const seen = yield* Deferred.make<void>()
      const onOutput = () => Deferred.doneUnsafe(seen, Effect.void)
      const tail = yield* Effect.forkChild(deadmanWith({ onOutput }, "tail", id, "--every", "50", "--json"))
      yield* Deferred.await(seen)
      yield* api.send("DELETE", `/jobs/${id}`)
      const ran = ok(yield* Fiber.join(tail))
      const states = ran.out.trim().split("\n").map((line) => JSON.parse(line).state)
      assert.deepStrictEqual(states, ["pending", "dead"])
      assert.match(ok(yield* deadman("tail", id)).out, /dead \(cancelled\) +cli\.none/)
    }), 180_000)

  it.effect("follows what comes until it is interrupted, and ends by the signal", () =>
    Effect.gen(function*() {
      const { api } = yield* Server
      yield* api.send("POST", "/jobs", { type: "cli.before" })
      const submitting = yield* Effect.forkChild(
        Effect.forever(Effect.andThen(api.send("POST", "/jobs", { type: "cli.tailed" }), Effect.sleep(200)))
      )
      const ran = yield* deadmanWith(
        { signal: { name: "SIGINT", when: (out) => out.includes("cli.tailed") } },
        "tail",
        "--every",
        "100"
      )
      yield* Effect.sync(() => submitting.interruptUnsafe())
      assert.strictEqual(ran.code, 130, ran.err)
      assert.notInclude(ran.out, "cli.before")
      assert.include(ran.err, "following what happens")
    }), 180_000)

  it.effect("follows what waited before, however much came after it", () =>
    Effect.gen(function*() {
      const { api } = yield* Server
      const made = yield* api.send("POST", "/jobs/batch", Array.from({ length: 700 }, () => ({ type: "cli.deep" })))
      const ids: ReadonlyArray<string> = made.body.jobs.map(({ id }: { id: string }) => id)
      // The oldest of them, one after the other: those that came before it has found them are not told.
      const cancelling = yield* Effect.forkChild(
        Effect.forEach(ids.slice(0, 400), (id) => Effect.andThen(api.send("DELETE", `/jobs/${id}`), Effect.sleep(100)))
      )
      const ran = yield* deadmanWith(
        { signal: { name: "SIGINT", when: (out) => out.includes("cancelled") } },
        "tail",
        "--type",
        "cli.deep",
        "--state",
        "dead",
        "--json"
      )
      yield* Effect.sync(() => cancelling.interruptUnsafe())
      assert.strictEqual(ran.code, 130, ran.err)
      const told = ran.out.trim().split("\n").map((line) => JSON.parse(line))
      assert.isTrue(told.every(({ id, state }) => state === "dead" && ids.slice(0, 400).includes(id)))
    }), 180_000)

  it.effect("tells each change of what began and ended between two looks", () =>
    Effect.gen(function*() {
      const { api } = yield* Server
      const submitting = yield* Effect.forkChild(
        Effect.forever(
          Effect.andThen(api.send("POST", "/jobs", { type: "noop", tags: ["cli-quick"] }), Effect.sleep(300))
        )
      )
      const ran = yield* deadmanWith(
        { signal: { name: "SIGINT", when: (out) => out.split("completed").length > 5 } },
        "tail",
        "--tag",
        "cli-quick",
        "--every",
        "2000",
        "--json"
      )
      yield* Effect.sync(() => submitting.interruptUnsafe())
      assert.strictEqual(ran.code, 130, ran.err)
      const states = new Map<string, Array<string>>()
      for (const line of ran.out.trim().split("\n")) {
        const { finished_at_ms, id, state } = JSON.parse(line)
        assert.strictEqual(finished_at_ms !== null, state === "completed")
        states.set(id, [...states.get(id) ?? [], state])
      }
      // The first of them may have been there before the first look: what became of it since is what is told of it.
      const whole = [...states.values()].slice(1).filter((all) => all.at(-1) === "completed")
      assert.isAbove(whole.length, 3)
      assert.deepStrictEqual(whole, whole.map(() => ["pending", "running", "completed"]))
    }), 180_000)

  it.effect("shows counts and processes", () =>
    Effect.gen(function*() {
      const stats = documentOf(ok(yield* deadman("stats", "--json")))
      assert.strictEqual(stats.profile, "postgres")
      const text = ok(yield* deadman("stats")).out
      assert.match(text, /^completed +\d+$/m)
      assert.match(text, /^oldest ready +(none|\d.*)$/m)
      assert.match(text, /^PROCESS +ROLE/m)
      assert.match(text, / server /)
    }), 180_000)

  it.effect("lists queues, pauses and limits them", () =>
    Effect.gen(function*() {
      const { api } = yield* Server
      yield* api.send("POST", "/jobs", { type: "cli.none", queue: "cli-q" })
      const paused = ok(yield* deadman("queues", "pause", "cli-q", "--json"))
      assert.isTrue(documentOf(paused).paused)
      assert.strictEqual(paused.err, "")
      const mistyped = ok(yield* deadman("queues", "pause", "clj-q", "--json"))
      assert.isTrue(documentOf(mistyped).paused)
      assert.match(mistyped.err, /^There was no queue clj-q so far: it is made now\. Is that its name\?/)
      assert.match(ok(yield* deadman("queues")).out, /^cli-q +paused/m)
      const set = documentOf(
        ok(yield* deadman("queues", "set", "cli-q", "--concurrency", "2", "--step", "strict", "--json"))
      )
      assert.deepStrictEqual([set.concurrency, set.step_ms, set.paused], [2, "strict", true])
      assert.isFalse(documentOf(ok(yield* deadman("queues", "resume", "cli-q", "--json"))).paused)
      assert.isNull(
        documentOf(ok(yield* deadman("queues", "set", "cli-q", "--concurrency", "none", "--json"))).concurrency
      )
      assert.include(
        documentOf(ok(yield* deadman("queues", "list", "--json"))).queues.map(({ name }: { name: string }) => name),
        "cli-q"
      )
      assert.strictEqual((yield* deadman("queues", "set", "cli-q")).code, 2)
      assert.strictEqual((yield* deadman("queues", "set", "cli-q", "--step", "soon")).code, 2)
    }), 180_000)

  it.effect("pauses a queue also where it cannot be looked at", () =>
    Effect.gen(function*() {
      const { api } = yield* Server
      yield* api.send("POST", "/queues/cli-hidden/pause")
      const shown = (yield* api.send("GET", "/queues/cli-hidden")).body
      for (const look of [503, "no answer"] as const) {
        const url = yield* pausingOnly(look, shown)
        const paused = ok(yield* deadmanWith({ env: { DEADMAN_URL: url } }, "queues", "pause", "cli-hidden", "--json"))
        assert.deepStrictEqual([documentOf(paused), paused.err], [shown, ""])
      }
    }), 180_000)

  it.effect("puts a schedule, shows, pauses, resumes and runs it, and deletes it", () =>
    Effect.gen(function*() {
      const put = documentOf(
        ok(yield* deadman("schedules", "put", "cli-s", "cli.none", "{\"n\":1}", "--cron", "0 3 1 1 *", "--json"))
      )
      assert.deepStrictEqual([put.name, put.cron, put.payload, put.paused], ["cli-s", "0 3 1 1 *", { n: 1 }, false])
      assert.match(ok(yield* deadman("schedules")).out, /^cli-s +on +0 3 1 1 \* +cli\.none/m)
      assert.isTrue(documentOf(ok(yield* deadman("schedules", "pause", "cli-s", "--json"))).paused)
      assert.isFalse(documentOf(ok(yield* deadman("schedules", "resume", "cli-s", "--json"))).paused)
      assert.match(ok(yield* deadman("schedules", "get", "cli-s")).out, /^next +\d{4}-01-01 03:00:00 UTC$/m)
      const run = documentOf(ok(yield* deadman("schedules", "run", "cli-s", "--key", "cli-s-1", "--json")))
      assert.strictEqual(run.type, "cli.none")
      assert.strictEqual(
        documentOf(ok(yield* deadman("schedules", "run", "cli-s", "--key", "cli-s-1", "--json"))).id,
        run.id
      )
      const every = documentOf(
        ok(yield* deadman("schedules", "put", "cli-s", "cli.none", "--every", "1h", "--missed", "3", "--json"))
      )
      assert.deepStrictEqual([every.every_ms, every.missed], [3_600_000, { all: 3 }])
      assert.strictEqual((yield* deadman("schedules", "put", "cli-s", "cli.none")).code, 2)
      const wrong = yield* deadman("schedules", "put", "cli-s", "cli.none", "--cron", "never", "--json")
      assert.strictEqual(wrong.code, 1)
      assert.strictEqual(documentOf(wrong).error.field, "cron")
      assert.strictEqual(documentOf(ok(yield* deadman("schedules", "delete", "cli-s", "--json"))).deleted, "cli-s")
      assert.strictEqual((yield* deadman("schedules", "get", "cli-s")).code, 1)
    }), 180_000)

  it.effect(
    "ends with 3 where no server is, with 1 without the token, and for an id that is none",
    () =>
      Effect.gen(function*() {
        const nowhere = `http://127.0.0.1:${yield* Processes.freePort}`
        for (const args of [["get", "x"], ["submit", "noop"], ["tail"], ["schedules"]]) {
          const ran = yield* deadman(...args, "--url", nowhere, "--json")
          assert.strictEqual(ran.code, 3, args.join(" "))
          assert.strictEqual(documentOf(ran).error.code, "server_unavailable")
          assert.include(ran.err, "deadman dev")
        }
        const stranger = yield* deadmanWith({ env: { DEADMAN_API_TOKEN: "" } }, "list", "--json")
        assert.strictEqual(stranger.code, 1)
        assert.strictEqual(documentOf(stranger).error.code, "unauthorized")
        assert.include(stranger.err, "DEADMAN_API_TOKEN")
        const wrong = yield* deadmanWith({ env: { DEADMAN_API_TOKEN: "another-token" } }, "stats")
        assert.strictEqual(wrong.code, 1)
        assert.notInclude(wrong.err, "another-token")
        const unknown = yield* deadman("get", "nothing", "--json")
        assert.strictEqual(unknown.code, 1)
        assert.strictEqual(documentOf(unknown).error.code, "not_found")
      }),
    180_000
  )

  it.effect(
    "ends with 2 where it is used wrongly, says how, and leaves stdout to answers",
    () =>
      Effect.gen(function*() {
        const wrong: ReadonlyArray<ReadonlyArray<string>> = [
          ["get"],
          ["list", "--bogus"],
          ["list", "--limit", "0"],
          ["bogus"],
          ["submit", "noop", "--in", "soon"],
          ["submit", "noop", "--in", "1h", "--start-within", "1m"],
          ["submit", "noop", "--in", "1h", "--start-within", "60m"],
          ["server", "--port", "1"],
          ["--json", "server"],
          ["--json", "dev"],
          ["list", "--url", "ftp://x"],
          ["queues", "bogus"]
        ]
        for (const args of wrong) {
          const ran = yield* deadman(...args)
          assert.strictEqual(ran.code, 2, args.join(" "))
          assert.strictEqual(ran.out.replace(/^\{"error".*\}\n$/, ""), "", args.join(" "))
          assert.isNotEmpty(ran.err)
        }
        const refused = yield* deadman("submit", "no good type", "--json")
        assert.strictEqual(refused.code, 1)
        assert.strictEqual(documentOf(refused).error.field, "type")
      }),
    180_000
  )

  it.effect("helps, completes, and says its version", () =>
    Effect.gen(function*() {
      const help = ok(yield* deadman("--help")).out
      for (
        const name of ["dev", "server", "worker", "submit", "tail", "queues", "doctor", "migrate", "chaos", "bench"]
      ) {
        assert.match(help, new RegExp(`^  ${name}\\b`, "m"), name)
      }
      for (const shell of ["bash", "zsh", "fish"]) {
        const script = ok(yield* deadman("--completions", shell)).out
        assert.include(script, "resubmit", shell)
      }
      const manifest = JSON.parse(readFileSync("package.json", "utf8"))
      assert.strictEqual(ok(yield* deadman("--version")).out, `${manifest.version}\n`)
      assert.include(ok(yield* deadman("bench", "--help")).out, "--suites")
      assert.include(ok(yield* deadman("chaos", "--help")).out, "--kill-rate")
      assert.include(ok(yield* deadman("worker", "--help")).out, "Claims jobs")
    }), 180_000)

  it.effect("does not mind a reader that has seen enough", () =>
    Effect.gen(function*() {
      const { api } = yield* Server
      yield* api.send(
        "POST",
        "/jobs/batch",
        Array.from({ length: 300 }, () => ({
          type: "cli.long",
          payload: "x".repeat(2_000)
        }))
      )
      // One that would go on: nothing else tells it that nobody reads any more.
      const submitting = yield* Effect.forkChild(
        Effect.forever(Effect.andThen(api.send("POST", "/jobs", { type: "cli.read" }), Effect.sleep(200)))
      )
      const tail = yield* deadmanWith({ closeAfter: 1 }, "tail", "--type", "cli.read", "--every", "100", "--json")
      yield* Effect.sync(() => submitting.interruptUnsafe())
      assert.strictEqual(tail.code, 0, tail.err)
      const ran = yield* deadmanWith({ closeAfter: 1 }, "list", "--type", "cli.long", "--limit", "300", "--json")
      assert.strictEqual(ran.code, 0, ran.err)
      assert.notInclude(ran.err, "EPIPE")
      const whole = documentOf(ok(yield* deadman("list", "--type", "cli.long", "--limit", "300", "--json")))
      assert.strictEqual(whole.jobs.length, 300)
    }), 180_000)

  it.effect("colours nothing for a pipe, nor where NO_COLOR is set", () =>
    Effect.gen(function*() {
      const forced = ok(yield* deadmanWith({ env: { FORCE_COLOR: "1" } }, "stats")).out
      assert.include(forced, "\u001b[")
      const never = ok(yield* deadmanWith({ env: { FORCE_COLOR: "1", NO_COLOR: "1" } }, "stats")).out
      assert.notInclude(never, "\u001b")
      assert.notInclude(ok(yield* deadman("stats")).out, "\u001b")
    }), 180_000)

  it.effect("migrates, and only looks where it is asked to", () =>
    Effect.gen(function*() {
      const { database } = yield* Server
      const env = { DEADMAN_DATABASE_URL: database }
      const done = documentOf(ok(yield* deadmanWith({ env }, "migrate", "--json")))
      assert.strictEqual(done.schema_version, done.from_version)
      assert.include(ok(yield* deadmanWith({ env }, "migrate", "--check")).out, "nothing to do")
      const empty = new URL(database)
      empty.pathname = "/postgres"
      const check = yield* deadmanWith({ env: { DEADMAN_DATABASE_URL: empty.href } }, "migrate", "--check", "--json")
      assert.strictEqual(check.code, 1)
      assert.strictEqual(documentOf(check).error.code, "schema")
      const away = { DEADMAN_DATABASE_URL: `postgres://nobody@127.0.0.1:${yield* Processes.freePort}/none` }
      const refused = yield* deadmanWith({ env: away }, "migrate", "--json")
      assert.strictEqual(refused.code, 3)
      assert.strictEqual(documentOf(refused).error.code, "unavailable")
    }), 180_000)
})
