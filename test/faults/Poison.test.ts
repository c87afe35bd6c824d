/** The fault catalogue, entries 37 and 39: jobs that kill their worker, and jobs that never end. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { layer, sink, Stage } from "./Stage.ts"

it.layer(layer(), { excludeTestServices: true, timeout: "2 minutes" })("fault catalogue, poison", (it) => {
  it.effect(
    "37: jobs that kill their worker, again and again, are dead in the end and take no others with them",
    () =>
      Effect.gen(function*() {
        const { clean, ended, jobs, shared, submit, worker } = yield* Stage
        const { api } = yield* shared
        const hire = worker("restarted", { DEADMAN_LEASE_MS: "500" })
        const crew = [yield* hire, yield* hire]
        const killers = yield* submit(api, Array.from({ length: 4 }, () => ({ type: "crash" })))
        const good = yield* submit(api, Array.from({ length: 60 }, () => ({ type: "sleep", payload: 200 })))
        yield* Effect.forkChild(Effect.forever(Effect.gen(function*() {
          yield* Effect.sleep("100 millis")
          for (const [n, one] of crew.entries()) {
            if (!one.alive()) {
              crew[n] = yield* hire
            }
          }
        })))
        yield* ended(good)
        yield* clean(good)
        yield* ended(killers, "90 seconds")
        for (const one of yield* jobs(killers)) {
          assert.deepInclude(one, { state: 4, attempts: 0, reason: 3 })
        }
      }),
    180_000
  )

  it.effect(
    "39: handlers that never return are cut off on time, and give back their slots",
    () =>
      Effect.gen(function*() {
        const { capacity, clean, ended, jobs, shared, submit, worker } = yield* Stage
        const hung = yield* sink
        hung.mode = "hang"
        const { api } = yield* shared
        yield* worker("two", { DEADMAN_WORKER_THREADS: "2" })
        const bad = yield* submit(
          api,
          Array.from({ length: 10 }, () => ({ type: "http", payload: { url: hung.url } })),
          { timeout_ms: 1_000, max_attempts: 1 }
        )
        const good = yield* submit(api, Array.from({ length: 20 }, () => ({ type: "sleep", payload: 50 })))
        yield* ended([...bad, ...good])
        yield* clean(good)
        for (const one of yield* jobs(bad)) {
          assert.deepInclude(one, { state: 4, attempts: 1, losses: 0 })
          // A second of waiting for a slot included.
          assert.isBelow(one.finished - one.started, 4_000)
        }
        yield* capacity(api, 2)
      }),
    180_000
  )
})
