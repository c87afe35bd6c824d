/** Real servers and the example worker in Python: killed, stopped, and left without a server. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Redacted } from "effect"
import type * as ApiClient from "../../support/ApiClient.ts"
import { freshDatabase } from "../../support/Database.ts"
import * as Processes from "../../support/Processes.ts"
import * as Python from "../../support/Python.ts"
import * as Servers from "../../support/Servers.ts"

const { eventually } = Processes
const example = "docs/examples/worker.py"

/** Servers over one database, and workers that know them all. */
const staged = Effect.fnUntraced(function*(servers: number, env: Record<string, string> = {}) {
  const { url } = yield* freshDatabase
  const started = yield* Effect.forEach(
    Array.from({ length: servers }),
    () => Servers.started({ DEADMAN_DATABASE_URL: Redacted.value(url), ...env })
  )
  const worker = (name: string, more: Record<string, string> = {}) =>
    Python.start(example, {
      DEADMAN_URL: started.map(({ api }) => api.base).join(","),
      DEADMAN_WORKER_NAME: name,
      DEADMAN_LEASE_MS: "2000",
      ...more
    })
  return { servers: started, worker, api: started[0]!.api }
})

const submit = (api: ApiClient.ApiClient, body: object) =>
  Effect.map(api.send("POST", "/jobs", body), (answer) => {
    assert.strictEqual(answer.status, 201, JSON.stringify(answer.body))
    return String(answer.body.id)
  })

const job = (api: ApiClient.ApiClient, id: string) => Effect.map(api.send("GET", `/jobs/${id}`), ({ body }) => body)

const reaches = (api: ApiClient.ApiClient, id: string, state: string, said: () => string = () => "") =>
  eventually(
    () => `${id} is ${state}\n${said()}`,
    Effect.map(job(api, id), (found) => found.state === state),
    "60 seconds"
  )

it.live(
  "a worker in Python that is killed in the middle of a job loses it to another, and nothing else",
  () =>
    Effect.gen(function*() {
      const { api, worker } = yield* staged(1)
      const first = yield* worker("py-killed", { DEADMAN_WORKER_THREADS: "2" })
      const quick = yield* submit(api, { type: "py-sleep", payload: 10, idempotency_key: "order-1" })
      yield* reaches(api, quick, "completed", first.output)
      assert.deepInclude(yield* job(api, quick), {
        worker: "py-killed",
        attempts: 0,
        deliveries: 1,
        result: { slept_ms: 10, key: "order-1" }
      })
      const slow = yield* submit(api, { type: "py-sleep", payload: 3_000 })
      yield* reaches(api, slow, "running", first.output)
      yield* first.signal("SIGKILL")
      const second = yield* worker("py-heir")
      yield* reaches(api, slow, "completed", second.output)
      const found = yield* job(api, slow)
      assert.deepInclude(found, { worker: "py-heir", attempts: 0, deliveries: 2, lease_losses: 1 })
      assert.deepInclude(found.events[0], { kind: "lease_lost", worker: "py-killed" })
    }).pipe(Effect.scoped),
  180_000
)

it.live(
  "a worker in Python reports failures, heeds a cancel and a timeout, and drains on SIGTERM",
  () =>
    Effect.gen(function*() {
      const { api, worker } = yield* staged(1)
      const one = yield* worker("py-whole", { DEADMAN_DRAIN_MS: "8000" })
      const failing = yield* submit(api, { type: "py-fail", payload: "so", max_attempts: 1 })
      yield* reaches(api, failing, "dead", one.output)
      assert.deepInclude((yield* job(api, failing)).errors[0], { name: "ValueError", message: "told to fail: so" })

      const endless = yield* submit(api, { type: "py-sleep", payload: 600_000 })
      const late = yield* submit(api, { type: "py-sleep", payload: 600_000, timeout_ms: 500, max_attempts: 1 })
      yield* reaches(api, endless, "running", one.output)
      yield* reaches(api, late, "dead", one.output)
      assert.deepInclude((yield* job(api, late)).errors[0], { name: "Timeout" })
      yield* api.send("DELETE", `/jobs/${endless}`)

      const last = yield* submit(api, { type: "py-sleep", payload: 1_500 })
      yield* reaches(api, last, "running", one.output)
      yield* one.signal("SIGTERM")
      assert.strictEqual(yield* one.exit("12 seconds"), 0, one.output())
      assert.deepInclude(yield* job(api, last), { state: "completed", attempts: 0, deliveries: 1 })
      // The cancelled one was interrupted: else the drain would have waited for it.
      assert.deepInclude(yield* job(api, endless), { state: "dead", reason: "cancelled", stale_writes: 0 })
    }).pipe(Effect.scoped),
  180_000
)

it.live("what a worker in Python cannot finish in its drain is handed back", () =>
  Effect.gen(function*() {
    const { api, worker } = yield* staged(1)
    const one = yield* worker("py-short", { DEADMAN_DRAIN_MS: "0" })
    const id = yield* submit(api, { type: "py-sleep", payload: 600_000 })
    yield* reaches(api, id, "running", one.output)
    yield* one.signal("SIGTERM")
    assert.strictEqual(yield* one.exit("12 seconds"), 0, one.output())
    const found = yield* job(api, id)
    assert.deepInclude(found, { state: "pending", attempts: 0, lease_losses: 0 })
    assert.deepInclude(found.events.at(-1), { kind: "released", worker: "py-short" })
  }).pipe(Effect.scoped), 180_000)

it.live("servers that are deployed one after the other cost a worker elsewhere nothing", () =>
  Effect.gen(function*() {
    const { servers, worker } = yield* staged(2)
    const [leaving, staying] = servers
    const one = yield* worker("py-deployed")
    const ids = yield* Effect.forEach(
      Array.from({ length: 30 }),
      (_, n) => submit(staying!.api, { type: "py-sleep", payload: 100 + n * 20, max_attempts: 1 })
    )
    yield* reaches(staying!.api, ids[2]!, "completed", one.output)
    yield* leaving!.program.signal("SIGTERM")
    assert.strictEqual(yield* leaving!.program.exit("15 seconds"), 0)
    for (const id of ids) {
      yield* reaches(staying!.api, id, "completed", one.output)
      assert.deepInclude(yield* job(staying!.api, id), { attempts: 0, lease_losses: 0, stale_writes: 0 })
    }
    assert.isTrue(one.alive())
  }).pipe(Effect.scoped), 180_000)

it.live(
  "a server that drains hands nothing out, ends waits, and hears heartbeats and outcomes to the last",
  () =>
    Effect.gen(function*() {
      const { servers } = yield* staged(1, { DEADMAN_WORKER_THREADS: "1", DEADMAN_DRAIN_MS: "10000" })
      const { api, program } = servers[0]!
      const own = yield* submit(api, { type: "sleep", payload: 8_000 })
      yield* reaches(api, own, "running")
      const id = yield* submit(api, { type: "elsewhere" })
      const ask = { worker: "raw", types: ["elsewhere"], limit: 1, wait_ms: 0 }
      const { body: taken } = yield* api.send("POST", "/workers/claims", ask)
      const { epoch } = taken.claims[0]
      const waiting = yield* Effect.forkChild(api.send("POST", "/workers/claims", { ...ask, wait_ms: 60_000 }))
      yield* Effect.sleep("500 millis")
      yield* program.signal("SIGTERM")
      const ended = yield* Fiber.join(waiting)
      for (const refused of [ended, yield* api.send("POST", "/workers/claims", ask)]) {
        assert.deepStrictEqual([refused.status, refused.body.error?.code], [503, "stopping"])
        assert.strictEqual(refused.headers.get("retry-after"), "1")
      }
      assert.strictEqual((yield* api.send("GET", "/ready")).status, 503)
      const beat = yield* api.send("POST", "/workers/heartbeats", { worker: "raw", leases: [taken.lease] })
      assert.deepStrictEqual(beat.body, { held: [taken.lease], lost: [], revoked: [] })
      const outcome = { id, epoch, lease: taken.lease, kind: "completed" }
      const settled = yield* api.send("POST", "/workers/outcomes", { outcomes: [outcome] })
      assert.deepStrictEqual(settled.body, { settled: [id], stale: [], undecided: [] })
      assert.strictEqual(yield* program.exit("15 seconds"), 0)
    }).pipe(Effect.scoped),
  180_000
)

it.live("a worker that is killed while it waits costs the job that comes next nothing", () =>
  Effect.gen(function*() {
    const { api, worker } = yield* staged(1)
    const first = yield* worker("py-waiting")
    yield* eventually("it is there", Effect.sync(() => first.output().includes("works for")))
    yield* Effect.sleep("1 second")
    yield* first.signal("SIGKILL")
    yield* first.exit("30 seconds")
    const id = yield* submit(api, { type: "py-sleep", payload: 1 })
    yield* worker("py-next")
    yield* reaches(api, id, "completed")
    assert.deepInclude(yield* job(api, id), { worker: "py-next", deliveries: 1, lease_losses: 0 })
  }).pipe(Effect.scoped), 180_000)
