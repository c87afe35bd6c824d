/** The fault catalogue, chapter I: starting, stopping and telling how it is while Postgres is away. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import * as ApiClient from "../support/ApiClient.ts"
import * as Processes from "../support/Processes.ts"
import { layer, Stage } from "./Stage.ts"

const probe = "DEADMAN_METRICS_PORT"

it.layer(layer(), { excludeTestServices: true, timeout: "2 minutes" })("fault catalogue, health", (it) => {
  it.effect("85: a type that no worker knows waits untouched for one that does", () =>
    Effect.gen(function*() {
      const { ended, jobs, server, submit, worker } = yield* Stage
      const { api } = yield* server()
      const old = { DEADMAN_HANDLERS: "built-in" }
      yield* worker("old", old)
      const ids = yield* submit(api, [{ type: "greets", payload: "you" }])
      yield* ended(yield* submit(api, [{ type: "noop" }]))
      yield* Effect.sleep("2 seconds")
      assert.deepInclude((yield* jobs(ids))[0], { state: 0, deliveries: 0, attempts: 0 })
      yield* worker("new", { DEADMAN_HANDLERS: "test/support/handlers/typed.ts" })
      yield* ended(ids)
      assert.deepInclude((yield* jobs(ids))[0], { state: 3, deliveries: 1 })
    }), 180_000)

  it.effect(
    "86: alive while Postgres is away or frozen, but not ready, and ready again by itself",
    () =>
      Effect.gen(function*() {
        const { postgres, ready, server, worker } = yield* Stage
        const one = yield* server()
        const port = yield* Processes.freePort
        yield* worker("a", { [probe]: String(port) })
        for (
          const [leave, back] of [[postgres.freeze, postgres.thaw], [postgres.stopImmediate, postgres.start]] as const
        ) {
          yield* leave
          yield* Processes.eventually(
            "it says why it is not ready",
            Effect.map(one.api.send("GET", "/ready"), ({ body, status }) => status === 503 && body.reasons.length > 0)
          )
          assert.strictEqual((yield* one.api.send("GET", "/health")).status, 200)
          yield* back
          yield* ready(one)
        }
      }),
    180_000
  )

  it.effect(
    "82, 87: every program exits within its grace, also with Postgres frozen, gone, or not there yet",
    () =>
      Effect.gen(function*() {
        const { base, postgres, server, worker } = yield* Stage
        const leave = Effect.fnUntraced(function*(what: string, crew: ReadonlyArray<Processes.Program>) {
          yield* Effect.forEach(crew, (one) => one.signal("SIGTERM"), { discard: true })
          for (const one of crew) {
            assert.strictEqual(yield* one.exit("15 seconds"), 0, `${what}: ${one.output().slice(-500)}`)
          }
        })
        const crew = Effect.gen(function*() {
          const { program } = yield* server()
          const port = yield* Processes.freePort
          const one = yield* worker("idle", { [probe]: String(port) })
          const metrics = ApiClient.make(port)
          yield* Processes.eventually(
            "it is up",
            Effect.map(metrics.send("GET", "/metrics"), ({ status }) => status === 200)
          )
          return [program, one]
        })
        yield* leave("all well", yield* crew)
        const frozen = yield* crew
        yield* postgres.freeze
        yield* leave("frozen", frozen).pipe(Effect.ensuring(Effect.orDie(postgres.thaw)))
        const orphaned = yield* crew
        yield* postgres.stopImmediate
        yield* leave("gone", orphaned)
        // What was started while it was away waits, and comes up by itself.
        const waiting = yield* Processes.start("worker", { ...base, DEADMAN_WORKER_NAME: "early" })
        const impatient = yield* Processes.start("worker", { ...base, DEADMAN_WORKER_NAME: "impatient" })
        for (const one of [waiting, impatient]) {
          yield* Processes.eventually("it waits", Effect.sync(() => one.output().includes("waiting for the database")))
        }
        yield* leave("waiting", [impatient])
        yield* postgres.start
        yield* Processes.eventually(
          () => `it comes up: ${waiting.output()}`,
          Effect.sync(() => waiting.output().includes("worker is up"))
        )
      }),
    180_000
  )

  it.effect(
    "21: a reaper without the job's handler gives the job back, and it waits for one that has it",
    () =>
      Effect.gen(function*() {
        const { clean, ended, jobs, running, server, submit, worker } = yield* Stage
        const { api } = yield* server({ DEADMAN_HANDLERS: "built-in", DEADMAN_WORKER_THREADS: "2" })
        const first = yield* worker("knows")
        const ids = yield* submit(api, [{ type: "lingers", payload: 60_000 }])
        yield* running(ids)
        yield* first.signal("SIGKILL")
        yield* Processes.eventually("it waits", Effect.map(jobs(ids), ([job]) => job?.losses === 1 && job.state === 0))
        yield* Effect.sleep("1 second")
        const [job] = yield* jobs(ids)
        assert.deepInclude(job, { state: 0, deliveries: 1, attempts: 0 })
        yield* worker("knows")
        yield* ended(ids)
        yield* clean(ids)
      }),
    180_000
  )
})
