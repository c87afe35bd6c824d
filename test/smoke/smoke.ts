/**
 * `npm run smoke`: the built programs on the embedded default, over HTTP, through the whole life of jobs.
 *
 * One server that runs nothing and two workers share a data folder, as a newcomer would have them.
 */
import { NodeRuntime } from "@effect/platform-node"
import { Console, type Duration, Effect } from "effect"
import { existsSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Processes from "../support/Processes.ts"
import * as Servers from "../support/Servers.ts"

let passed = 0
const failures: Array<string> = []

const check = (what: string, held: boolean, seen?: unknown): Effect.Effect<void> => {
  if (held) {
    passed += 1
    return Effect.void
  }
  failures.push(what)
  return Console.error(`FAILED  ${what}${seen === undefined ? "" : `: ${JSON.stringify(seen)?.slice(0, 600)}`}`)
}

const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "deadman-smoke-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const main = Effect.gen(function*() {
  const dataDir = yield* folder
  const env = { DEADMAN_DATA_DIR: join(dataDir, "data"), DEADMAN_LEASE_MS: "2000", DEADMAN_DRAIN_MS: "3000" }
  const { api, program: server } = yield* Servers.started(env, "90 seconds")
  const metricsPort = yield* Processes.freePort
  const workerEnv = {
    ...env,
    DEADMAN_WORKER_THREADS: "4",
    DEADMAN_HANDLERS: "built-in ./test/support/handlers/probes.js"
  }
  const first = yield* Processes.start("worker", {
    ...workerEnv,
    DEADMAN_WORKER_NAME: "first",
    DEADMAN_METRICS_PORT: String(metricsPort)
  })

  const get = (id: string) => Effect.map(api.send("GET", `/jobs/${id}`), ({ body }) => body)
  const reaches = (id: string, state: string, within: Duration.Input = "60 seconds") =>
    Effect.andThen(
      Effect.ignore(
        Processes.eventually(`${id} is ${state}`, Effect.map(get(id), (job) => job.state === state), within)
      ),
      get(id)
    )

  // A clean run.
  const created = yield* api.send("POST", "/jobs", { type: "sleep", payload: 100, tags: ["smoke"] })
  yield* check("a submit is answered 201", created.status === 201, created)
  yield* check("with the job itself, pending", created.body.state === "pending", created.body)
  yield* check("and where to find it", created.headers.get("location") === `/jobs/${created.body.id}`, [
    ...created.headers
  ])
  const done = yield* reaches(created.body.id, "completed")
  yield* check("it completes", done.state === "completed", done)
  yield* check(
    "with no attempt, one delivery, epoch 1",
    done.attempts === 0 && done.deliveries === 1 && done.epoch === 1,
    done
  )
  yield* check("by the worker that runs", String(done.worker).startsWith("first-"), done.worker)
  yield* check(
    "in the order submitted, started, finished",
    done.created_at_ms <= done.started_at_ms && done.started_at_ms + 100 <= done.finished_at_ms + 5,
    done
  )

  // Idempotency.
  const key = { "idempotency-key": "smoke-1" }
  const once = yield* api.send("POST", "/jobs", { type: "noop", payload: { a: 1, b: [2] } }, key)
  const twice = yield* api.send("POST", "/jobs", { payload: { b: [2], a: 1.0 }, type: "noop" }, key)
  const other = yield* api.send("POST", "/jobs", { type: "noop", payload: { a: 2 } }, key)
  yield* check("a key creates once", once.status === 201, once)
  yield* check("a repeat answers 200 with the same job", twice.status === 200 && twice.body.id === once.body.id, twice)
  yield* check("and says so", twice.headers.get("idempotent-replayed") === "true", [...twice.headers])
  yield* check("another request under the key is a 422", other.status === 422, other)

  // Failures, retries, death.
  const failing = yield* api.send("POST", "/jobs", {
    type: "always-fails",
    max_attempts: 2,
    backoff: { kind: "fixed", delay_ms: 10 }
  })
  const dead = yield* reaches(failing.body.id, "dead")
  yield* check("a job that always fails is dead", dead.state === "dead" && dead.reason === "attempts_exhausted", dead)
  yield* check("after its attempts, each with its error", dead.attempts === 2 && dead.errors.length === 2, dead)
  const again = yield* api.send("POST", `/jobs/${dead.id}/resubmit`)
  yield* check("it can be resubmitted", again.status === 201 && again.body.resubmitted_from === dead.id, again)
  yield* check("and links forward", (yield* get(dead.id)).resubmitted_as === again.body.id)
  const timedOut = yield* api.send("POST", "/jobs", {
    type: "sleep",
    payload: 60_000,
    timeout_ms: 200,
    max_attempts: 1
  })
  const late = yield* reaches(timedOut.body.id, "dead")
  yield* check("a run past its timeout is a failed attempt", late.attempts === 1 && late.state === "dead", late)

  // Delay, priority, retry, cancel.
  const now = done.finished_at_ms
  const delayed = yield* api.send("POST", "/jobs", { type: "noop", run_at_ms: now + 86_400_000 })
  yield* check("a delayed job waits", (yield* get(delayed.body.id)).state === "pending")
  const booked = yield* api.send("POST", `/jobs/${delayed.body.id}/retry`)
  yield* check("retry re-books it for now", booked.status === 200, booked)
  yield* check("and it runs", (yield* reaches(delayed.body.id, "completed")).state === "completed")
  const soon = yield* api.send("POST", "/jobs", {
    type: "noop",
    run_at_ms: (yield* get(delayed.body.id)).finished_at_ms + 1_500
  })
  const punctual = yield* reaches(soon.body.id, "completed")
  yield* check(
    "a job runs at its time, and not before",
    punctual.started_at_ms >= punctual.run_at_ms && punctual.started_at_ms < punctual.run_at_ms + 2_000,
    punctual
  )
  const long = yield* api.send("POST", "/jobs", { type: "sleep", payload: 120_000 })
  yield* reaches(long.body.id, "running")
  const cancelled = yield* api.send("DELETE", `/jobs/${long.body.id}`)
  yield* check(
    "a running job is cancelled",
    cancelled.status === 200 && cancelled.body.reason === "cancelled",
    cancelled
  )
  yield* check("once only", (yield* api.send("DELETE", `/jobs/${long.body.id}`)).status === 409)
  yield* check("and is not retried", (yield* api.send("POST", `/jobs/${long.body.id}/retry`)).status === 409)

  // Results.
  const returning = yield* api.send("POST", "/jobs", { type: "returns", payload: "object" })
  const returned = yield* reaches(returning.body.id, "completed")
  yield* check("what a handler returns is the result", returned.result !== null, returned)

  // Batches.
  const batch = yield* api.send(
    "POST",
    "/jobs/batch",
    Array.from({ length: 20 }, (_, n) => ({ type: "side-effect", payload: n }))
  )
  yield* check("a batch is stored in its order", batch.body.jobs?.length === 20, batch)
  const broken = yield* api.send("POST", "/jobs/batch", [{ type: "noop" }, { type: "" }])
  yield* check("or not at all", broken.status === 400 && String(broken.body.error.field).includes("1"), broken)
  const lines = yield* api.send("POST", "/jobs/batch", `{"type":"noop"}\n{"type":7}\n{"type":"noop"}\n`, {
    "content-type": "application/x-ndjson"
  })
  const answers = String(lines.body).trim().split("\n").map((line) => JSON.parse(line))
  yield* check(
    "NDJSON is answered line by line",
    lines.status === 200 && answers.length === 3 && answers.filter(({ error }) => error !== undefined).length === 1,
    lines
  )

  // Lists and bad input.
  const page = yield* api.send("GET", "/jobs?limit=5")
  const next = yield* api.send("GET", `/jobs?limit=5&cursor=${page.body.next_cursor}`)
  const seen = [...page.body.jobs, ...next.body.jobs].map(({ id }: { id: string }) => id)
  yield* check("pages do not overlap", new Set(seen).size === 10, seen)
  yield* check("a tag filters", (yield* api.send("GET", "/jobs?tag=smoke")).body.jobs.length === 1)
  const unknown = yield* api.send("POST", "/jobs", { type: "noop", colour: "red" })
  yield* check("an unknown field is named", unknown.status === 400 && unknown.body.error.field === "colour", unknown)
  yield* check("an unknown id is a 404", (yield* api.send("GET", "/jobs/nothing")).status === 404)
  const huge = yield* api.send("POST", "/jobs", `{"type":"noop","payload":12345678901234567890}`)
  yield* check("a number that cannot be kept is refused", huge.status === 400, huge)

  // A kill and a rescue.
  const second = yield* Processes.start("worker", { ...workerEnv, DEADMAN_WORKER_NAME: "second" })
  const victim = yield* api.send("POST", "/jobs", { type: "sleep", payload: 4_000 })
  const held = yield* reaches(victim.body.id, "running")
  const [killed, survivor] = String(held.worker).startsWith("first-") ? [first, second] : [second, first]
  yield* killed.signal("SIGKILL")
  const rescued = yield* reaches(victim.body.id, "completed")
  yield* check("a killed worker's job completes elsewhere", rescued.state === "completed", rescued)
  yield* check(
    "no attempt charged; the loss, the second delivery and their evidence shown",
    rescued.attempts === 0 && rescued.lease_losses === 1 && rescued.deliveries === 2 &&
      rescued.events.some(({ kind }: { kind: string }) => kind === "lease_lost"),
    rescued
  )

  // Figures.
  const stats = yield* api.send("GET", "/stats")
  yield* check("stats know the profile", stats.body.profile === "embedded", stats)
  yield* Effect.ignore(Processes.eventually(
    "the reclaim is counted",
    Effect.map(api.send("GET", "/stats"), ({ body }) => body.counters.reclaimed >= 1),
    "60 seconds"
  ))
  yield* check("counters count the reclaim", (yield* api.send("GET", "/stats")).body.counters.reclaimed >= 1)
  const metrics = yield* api.send("GET", "/metrics")
  yield* check("metrics are Prometheus text", String(metrics.body).includes("deadman_submitted_total"), metrics.status)
  const openapi = yield* api.send("GET", "/openapi.json")
  yield* check("OpenAPI is there", openapi.body.paths?.["/jobs"] !== undefined, openapi.status)
  yield* check("and a page to read", (yield* api.send("GET", "/docs")).status === 200)
  yield* check("health answers", (yield* api.send("GET", "/health")).status === 200)

  // The counts of the load program, and an orderly end.
  const counting = yield* Processes.start("load", env, [
    "--jobs",
    "200",
    "--type",
    "side-effect",
    "--wait",
    "60",
    "--json"
  ])
  yield* check(
    "the load program loads, waits and counts",
    (yield* counting.exit("90 seconds")) === 0,
    counting.output()
  )
  yield* survivor.signal("SIGTERM")
  yield* check("the worker exits 0", (yield* survivor.exit("15 seconds")) === 0, survivor.output().slice(-800))
  yield* server.signal("SIGTERM")
  yield* check("the server exits 0", (yield* server.exit("15 seconds")) === 0, server.output().slice(-800))
  yield* check(
    "and leaves no Postgres running",
    !existsSync(join(dataDir, "data", "postgres", "data", "postmaster.pid"))
  )
})

const report = Effect.suspend(() => {
  if (failures.length > 0) {
    process.exitCode = 1
  }
  return Console.log(`smoke: ${passed} passed, ${failures.length} failed`)
})

NodeRuntime.runMain(
  Effect.scoped(main).pipe(
    Effect.tapCause((cause) => check("the smoke run came to its end", false, String(cause))),
    Effect.ensuring(report)
  )
)
