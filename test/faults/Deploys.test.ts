/** The fault catalogue, entries 18 and 38: rolling deploys without any fault charge nothing and lose nothing. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Random } from "effect"
import * as Processes from "../support/Processes.ts"
import { bulk, layer, Stage } from "./Stage.ts"

/** The lease is the default one: on a machine that is busy with so many starts, a second of silence is a fault. */
const env = { DEADMAN_LEASE_MS: "5000" }

it.layer(layer(env), { excludeTestServices: true, timeout: "2 minutes" })("fault catalogue, rolling deploys", (it) => {
  it.effect(
    "18: 5,000 jobs over workers that come and go see one delivery each, no loss and no attempt",
    () =>
      Effect.gen(function*() {
        const { clean, ended, jobs, rows, shared, worker } = yield* Stage
        const { api, program } = yield* shared
        const env = { DEADMAN_WORKER_THREADS: "40", DEADMAN_DRAIN_MS: "3000" }
        const outputs: Array<() => string> = [program.output]
        const hire = (name: string) =>
          Effect.tap(worker(name, env), (one) =>
            Effect.sync(() => {
              outputs.push(one.output)
            }))
        const crew = [yield* hire("w0"), yield* hire("w1"), yield* hire("w2"), yield* hire("w3")]
        const bodies = yield* Effect.forEach(
          Array.from({ length: 5_000 }),
          () => Effect.map(Random.nextIntBetween(50, 500), (payload) => ({ type: "sleep", payload, max_attempts: 1 }))
        )
        const ids = yield* bulk(api, bodies)
        let left = 0
        const rolling = yield* Effect.forkChild(Effect.gen(function*() {
          for (let n = 0;; n++) {
            yield* Effect.sleep("1 second")
            const leaver = crew[n % 4]!
            left = n + 1
            yield* leaver.signal("SIGTERM")
            assert.strictEqual(yield* leaver.exit("10 seconds"), 0)
            crew[n % 4] = yield* hire(`w${n + 4}`)
          }
        }))
        yield* ended(ids, "2 minutes")
        yield* Fiber.interrupt(rolling)
        yield* clean(ids)
        const found = yield* jobs(ids)
        assert.deepStrictEqual(found.filter(({ losses, stale }) => losses > 0 || stale > 0), [])
        // What was claimed ahead may go back unstarted, about as much as runs; what had begun was let finish.
        const runs = found.reduce((sum, { deliveries }) => sum + deliveries, 0)
        const [events] = yield* rows<{ n: number }>(
          `SELECT coalesce(sum(events_total), 0)::int AS n FROM deadman.journal`
        )
        assert.strictEqual(events?.n, 0)
        assert.isBelow(runs, 5_000 + 40 * Math.max(left, 25))
        for (const output of outputs) {
          assert.notMatch(output(), /went quiet|stale|lease was lost/)
        }
      }),
    180_000
  )

  it.effect("38: handing back at each of many restarts uses up no attempt", () =>
    Effect.gen(function*() {
      const { clean, ended, jobs, shared, submit, worker } = yield* Stage
      const { api } = yield* shared
      const ids = yield* submit(api, Array.from({ length: 40 }, () => ({ type: "sleep", payload: 700 })), {
        max_attempts: 1
      })
      for (let n = 0; n < 4; n++) {
        const one = yield* worker(`short${n}`, { DEADMAN_WORKER_THREADS: "8", DEADMAN_DRAIN_MS: "0" })
        yield* Processes.eventually(
          "it runs some",
          Effect.map(jobs(ids), (found) =>
            found.filter(({ state, worker }) => state === 1 && worker?.startsWith(`short${n}-`)).length > 4)
        )
        yield* one.signal("SIGTERM")
        assert.strictEqual(yield* one.exit("10 seconds"), 0)
      }
      yield* worker("last", { DEADMAN_WORKER_THREADS: "20" })
      yield* ended(ids)
      yield* clean(ids)
    }), 180_000)
})
