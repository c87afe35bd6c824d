/** The server as a process: how it starts, what it refuses to start with, and how it stops. */
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import * as ApiClient from "../../support/ApiClient.ts"
import { freshDatabase } from "../../support/Database.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Processes from "../../support/Processes.ts"

const started = Effect.fnUntraced(function*(env: Record<string, string> = {}) {
  const { url } = yield* freshDatabase
  const port = yield* Processes.freePort
  const program = yield* Processes.start("server", {
    DEADMAN_DATABASE_URL: Redacted.value(url),
    DEADMAN_PORT: String(port),
    ...env
  })
  const client = ApiClient.make(port)
  yield* eventually(
    "the server is ready",
    Effect.map(client.send("GET", "/ready"), ({ status }) => status === 200),
    "60 seconds"
  )
  return { program, port, ...client }
})

it.live("a wrong or contradictory variable stops the start with one line that names it", () =>
  Effect.gen(function*() {
    const database = "postgres://nobody@127.0.0.1:1/none"
    const wrong: ReadonlyArray<readonly [string, Record<string, string>]> = [
      ["DEADMAN_PORT", { DEADMAN_PORT: "http" }],
      ["DEADMAN_WORKER_THREADS", { DEADMAN_WORKER_THREADS: "-1" }],
      ["DEADMAN_LEASE_MS", { DEADMAN_LEASE_MS: "5s" }],
      ["DEADMAN_DATABASE_URL", { DEADMAN_DATABASE_URL: "mysql://root:hunter2@h/d" }],
      ["DEADMAN_DATA_DIR", { DEADMAN_DATABASE_URL: database, DEADMAN_DATA_DIR: "/tmp/x" }],
      ["DEADMAN_REDIS_URL", { DEADMAN_REDIS_URL: "nonsense" }],
      ["DEADMAN_API_TOKEN", { DEADMAN_API_TOKEN: "short" }],
      ["DEADMAN_KEY_TTL_MS", { DEADMAN_KEY_TTL_MS: "1e3" }],
      ["DEADMAN_LOG_FORMAT", { DEADMAN_LOG_FORMAT: "xml" }],
      // Nobody answers there: the line must come before anything is waited for.
      ["DEADMAN_RETAIN_DEAD_MS", { DEADMAN_DATABASE_URL: database, DEADMAN_RETAIN_DEAD_MS: "30d" }],
      ["DEADMAN_DRAIN_MS", { DEADMAN_DATABASE_URL: database, DEADMAN_DRAIN_MS: "ten" }],
      ["DEADMAN_HANDLERS", {
        DEADMAN_DATABASE_URL: database,
        DEADMAN_HANDLERS: "test/support/handlers/misnamed.js"
      }]
    ]
    yield* Effect.all(
      wrong.map(([name, env]) =>
        Effect.gen(function*() {
          const program = yield* Processes.start("server", env)
          assert.strictEqual(yield* program.exit("60 seconds"), 1, name)
          const lines = program.output().trim().split("\n")
          assert.strictEqual(lines.length, 1, program.output())
          assert.include(lines[0], name)
          assert.notInclude(program.output(), "hunter2")
        })
      ),
      { concurrency: 2 }
    )
  }).pipe(Effect.scoped), 180_000)

it.live("a port that is taken is said in one line", () =>
  Effect.gen(function*() {
    const { url } = yield* freshDatabase
    const { port } = yield* started()
    const second = yield* Processes.start("server", {
      DEADMAN_DATABASE_URL: Redacted.value(url),
      DEADMAN_PORT: String(port)
    })
    assert.strictEqual(yield* second.exit("60 seconds"), 1)
    assert.include(second.output(), `Cannot listen on 127.0.0.1:${port}: the port is taken`)
  }).pipe(Effect.scoped), 180_000)

it.live("I80: SIGTERM lets a running job finish, refuses submits meanwhile, and exits 0", () =>
  Effect.gen(function*() {
    const { program, send, url } = yield* Effect.map(started(), (one) => ({ ...one, url: one.base }))
    assert.isString(url)
    const { body } = yield* send("POST", "/jobs", { type: "sleep", payload: 5_000 })
    yield* eventually("it runs", Effect.map(send("GET", `/jobs/${body.id}`), (found) => found.body.state === "running"))
    yield* program.signal("SIGTERM")
    yield* eventually("not ready", Effect.map(send("GET", "/ready"), ({ status }) => status === 503))
    const refused = yield* send("POST", "/jobs", { type: "noop" })
    assert.strictEqual(refused.body.error?.code, "stopping")
    assert.strictEqual(yield* program.exit("12 seconds"), 0)
  }).pipe(Effect.scoped), 180_000)

it.live("I81: a second signal exits at once", () =>
  Effect.gen(function*() {
    const { program, send } = yield* started()
    const { body } = yield* send("POST", "/jobs", { type: "sleep", payload: 60_000 })
    yield* eventually("it runs", Effect.map(send("GET", `/jobs/${body.id}`), (found) => found.body.state === "running"))
    yield* program.signal("SIGTERM")
    yield* eventually("it drains", Effect.map(send("GET", "/ready"), ({ status }) => status === 503))
    // One signal that arrives twice is one: npm passes on what the terminal sends too.
    yield* Effect.sleep("400 millis")
    yield* program.signal("SIGTERM")
    assert.strictEqual(yield* program.exit("2 seconds"), 143)
  }).pipe(Effect.scoped), 180_000)

it.live("I87: a start without its database waits, and an impatient stop ends it with 0", () =>
  Effect.gen(function*() {
    const program = yield* Processes.start("server", {
      DEADMAN_DATABASE_URL: "postgres://nobody:hunter2@127.0.0.1:1/none",
      DEADMAN_PORT: "0"
    })
    yield* eventually(
      "it waits",
      Effect.sync(() => program.output().includes("waiting for the database")),
      "60 seconds"
    )
    assert.include(program.output(), "waiting for the database: Postgres at 127.0.0.1:1 does not answer: ")
    assert.notInclude(program.output(), "hunter2")
    yield* program.signal("SIGTERM")
    assert.strictEqual(yield* program.exit("30 seconds"), 0)
  }).pipe(Effect.scoped), 180_000)

it.live("a variable that is none of Deadman's is said at the start", () =>
  Effect.gen(function*() {
    const { program } = yield* started({ DEADMAN_WORKERS_THREADS: "9" })
    const said = program.output().split("\n").filter((line) => line.includes("DEADMAN_WORKERS_THREADS"))
    assert.strictEqual(said.length, 1, program.output())
    assert.include(said[0], "is DEADMAN_WORKER_THREADS meant?")
  }).pipe(Effect.scoped), 180_000)

it.live("API only: jobs wait, and the process is in the counters", () =>
  Effect.gen(function*() {
    const { send } = yield* started({ DEADMAN_WORKER_THREADS: "0" })
    yield* send("POST", "/jobs", { type: "noop" })
    yield* eventually(
      "it is counted",
      Effect.map(
        send("GET", "/stats"),
        ({ body }) => body.counters?.submitted === 1 && body.jobs.by_state.pending === 1
      )
    )
    const { body } = yield* send("GET", "/stats")
    assert.deepStrictEqual(body.workers.map((worker: { slots: number }) => worker.slots), [0])
  }).pipe(Effect.scoped), 180_000)
