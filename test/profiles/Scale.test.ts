/** The laws of `Laws.ts` and `RemoteLaws.ts` on the scale profile, and what of workers over HTTP is seen only there. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as Scale from "../faults/ScaleStage.ts"
import * as Processes from "../support/Processes.ts"
import * as Python from "../support/Python.ts"
import * as TestServers from "../support/TestServers.ts"
import * as Suite from "./Suite.ts"
import * as System from "./System.ts"

const layer = Layer.provideMerge(System.layer, Scale.layer([], System.env))

TestServers.describeWithKafka("all laws", () => {
  it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })("on the scale profile", (it) => {
    it.effect("the programs say so", () =>
      Effect.gen(function*() {
        const { body } = yield* (yield* System.System).api.send("GET", "/stats")
        assert.strictEqual(body.profile, "scale")
        assert.deepInclude(body.adapters, { LeaseRegister: "Redis", JobStore: "Postgres" })
        assert.include(body.adapters.Transport, "Kafka")
      }))

    Suite.suite(it)

    it.effect(
      "a Redis that is flushed costs a worker over HTTP no lease, and its silence costs it one",
      () =>
        Effect.gen(function*() {
          const { redis } = yield* Scale.Servers
          const { ask, job, one, submit, two } = yield* System.System
          const id = yield* submit({ type: "flushed" })
          const { lease } = yield* ask(one.api, { types: ["flushed"], lease_ms: 2_000, worker: "patient" })
          for (let n = 0; n < 20; n++) {
            const { api } = n % 2 === 0 ? one : two
            const beat = yield* api.send("POST", "/workers/heartbeats", { worker: "patient", leases: [lease] })
            assert.deepStrictEqual(beat.body.held, [lease], JSON.stringify(beat.body))
            if (n % 3 === 0) {
              yield* Effect.orDie(redis.flushAll)
            }
            yield* Effect.sleep("250 millis")
          }
          assert.deepInclude(yield* job(id), { state: "running", epoch: 1, lease_losses: 0 })
          const again = yield* ask(two.api, { types: ["flushed"], worker: "next" })
          assert.strictEqual(again.claims[0].job.id, id)
          assert.deepInclude(yield* job(id), { epoch: 2, lease_losses: 1 })
        }),
      180_000
    )

    it.effect(
      "a worker in Python goes on when a server is stopped, and is replaced when it is killed",
      () =>
        Effect.gen(function*() {
          const { job, one, reaches, server, submit } = yield* System.System
          const leaving = yield* server()
          const worker = (name: string) =>
            Python.start("docs/examples/worker.py", {
              DEADMAN_URL: `${leaving.api.base},${one.api.base}`,
              DEADMAN_WORKER_NAME: name,
              DEADMAN_LEASE_MS: "4000"
            })
          const first = yield* worker("py-first")
          const ids = yield* Effect.forEach(
            Array.from({ length: 16 }),
            (_, n) => submit({ type: "py-sleep", payload: 100 + n * 40, max_attempts: 1 })
          )
          yield* reaches(ids[1]!, "completed")
          yield* leaving.program.signal("SIGTERM")
          assert.strictEqual(yield* leaving.program.exit("15 seconds"), 0)
          for (const id of ids) {
            yield* reaches(id, "completed")
            assert.deepInclude(yield* job(id), { attempts: 0, deliveries: 1, lease_losses: 0, stale_writes: 0 })
          }
          assert.isTrue(first.alive(), first.output())

          const long = yield* submit({ type: "py-sleep", payload: 2_500 })
          yield* reaches(long, "running")
          yield* first.signal("SIGKILL")
          yield* worker("py-heir")
          yield* reaches(long, "completed")
          assert.deepInclude(yield* job(long), { worker: "py-heir", attempts: 0, deliveries: 2, lease_losses: 1 })
        }).pipe(Effect.scoped),
      180_000
    )

    it.effect(
      "nothing is left uncommitted in Kafka",
      () => Processes.eventually("all is committed", Scale.caughtUp),
      180_000
    )
  })
})
