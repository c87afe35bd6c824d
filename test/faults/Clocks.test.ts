/** The fault catalogue, entries 24 and 25: wrong clocks and strange plans. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { bulk, layer, Stage, wrongClock } from "./Stage.ts"

const sleeps = (n: number, payload: number) => Array.from({ length: n }, () => ({ type: "sleep", payload }))

it.layer(layer({ DEADMAN_LEASE_MS: "2000" }), { excludeTestServices: true, timeout: "2 minutes" })(
  "fault catalogue, clocks and plans",
  (it) => {
    it.effect(
      "24: clocks that are wrong by minutes, or step, take no lease and start nothing early",
      () =>
        Effect.gen(function*() {
          const { clean, ended, jobs, manned, server, starting, submit, worker } = yield* Stage
          const { api } = yield* server(wrongClock(300_000))
          yield* Effect.flatMap(starting(wrongClock(-300_000)), () => Effect.void)
          yield* worker("fast", wrongClock(300_000, -7_200_000, 4_000))
          yield* worker("slow", wrongClock(-300_000, 3_600_000, 4_000))
          yield* manned
          const long = yield* submit(api, sleeps(6, 6_000))
          const dueMs = Date.now() + 4_000
          const later = yield* submit(api, sleeps(2, 10), { run_at_ms: dueMs })
          yield* ended([...long, ...later])
          yield* clean([...long, ...later], 1)
          for (const { started } of yield* jobs(later)) {
            assert.isAtLeast(started, dueMs)
            assert.isBelow(started, dueMs + 8_000)
          }
        }),
      180_000
    )

    it.effect("25: a claim takes no more than its limit, whatever the planner does", () =>
      Effect.gen(function*() {
        const { clean, ended, rows, server, worker } = yield* Stage
        const off = ["hashjoin", "mergejoin", "material", "hashagg"]
        const [here] = yield* rows<{ name: string }>(`SELECT quote_ident(current_database()) AS name`)
        yield* rows(`ANALYZE deadman.job`)
        const { api } = yield* server()
        const bodies = Array.from({ length: 5_000 }, (_, n) => ({ type: "sleep", payload: n < 40 ? 800 : 60_000 }))
        const made = yield* bulk(api, bodies)
        // For the sessions of the workers, which are begun after this.
        for (const one of off) {
          yield* rows(`ALTER DATABASE ${here?.name} SET enable_${one} = off`)
        }
        yield* Effect.forEach(["a", "b", "c"], (name) => worker(`two-${name}`, { DEADMAN_WORKER_THREADS: "2" }))
        const ids = made.slice(0, 40)
        yield* ended(ids)
        yield* clean(ids)
        // All jobs of one claim statement have one lease, also when they are settled. Of runs this long none is claimed ahead.
        const [most] = yield* rows<{ n: number }>(
          `SELECT count(*)::int AS n FROM deadman.job WHERE worker LIKE 'two-%' GROUP BY lease ORDER BY 1 DESC LIMIT 1`
        )
        assert.strictEqual(most?.n, 2)
      }), 180_000)
  }
)
