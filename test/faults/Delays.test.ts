/** The fault catalogue, chapter E: jobs that wait for their time, with the built programs. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { bulk, layer, Stage } from "./Stage.ts"

it.layer(layer(), { excludeTestServices: true, timeout: "2 minutes" })("fault catalogue, delays", (it) => {
  it.effect("40: a time in the past means now, however far back", () =>
    Effect.gen(function*() {
      const { clean, ended, server, submit, worker } = yield* Stage
      const { api, program } = yield* server()
      yield* worker("a")
      const ids = yield* submit(api, [0, 1, Date.now() - 1_000].map((run_at_ms) => ({ type: "noop", run_at_ms })))
      yield* ended(ids)
      yield* clean(ids, 1)
      const seconds = Math.floor(Date.now() / 1_000)
      for (const run_at_ms of [-1, -1e15, "1970-01-01T00:00:00Z", "infinity", 1e20, seconds]) {
        assert.strictEqual((yield* api.send("POST", "/jobs", { type: "noop", run_at_ms })).status, 400)
      }
      const before = yield* program.cpuMs
      yield* Effect.sleep("2 seconds")
      assert.isBelow((yield* program.cpuMs) - before, 500)
    }), 180_000)

  it.effect(
    "42, 43: two thousand jobs due at once, after many leases, run once each though a server dies then",
    () =>
      Effect.gen(function*() {
        const { clean, ended, jobs, manned, server, worker } = yield* Stage
        const servers = [yield* server(), yield* server(), yield* server()]
        yield* worker("a", { DEADMAN_WORKER_THREADS: "32" })
        yield* worker("b", { DEADMAN_WORKER_THREADS: "32" })
        yield* manned
        const dueMs = Date.now() + 6_000
        const bodies = Array.from({ length: 2_000 }, () => ({ type: "noop", run_at_ms: dueMs }))
        const ids = yield* bulk(servers[0]!.api, bodies)
        yield* Effect.sleep(Math.max(0, dueMs - Date.now() - 5))
        yield* servers[0]!.program.signal("SIGKILL")
        yield* ended(ids)
        yield* clean(ids, 2)
        const found = yield* jobs(ids)
        assert.isAtLeast(Math.min(...found.map(({ started }) => started)), dueMs)
        assert.isBelow(Math.max(...found.map(({ finished }) => finished)), dueMs + 10_000)
        assert.isTrue(found.every(({ losses }) => losses === 0))
      }),
    180_000
  )

  it.effect(
    "44: what fell due while no server was there runs soon after one is back, with nothing else to wake it",
    () =>
      Effect.gen(function*() {
        const { ended, jobs, manned, server, submit, worker } = yield* Stage
        const first = yield* server()
        yield* worker("a")
        yield* manned
        const dueMs = Date.now() + 1_500
        const ids = yield* submit(first.api, [{ type: "noop", run_at_ms: dueMs }])
        yield* first.program.signal("SIGKILL")
        yield* Effect.sleep(Math.max(0, dueMs + 500 - Date.now()))
        yield* server()
        const backMs = Date.now()
        yield* ended(ids)
        assert.isBelow((yield* jobs(ids))[0]!.started, backMs + 1_500)
      }),
    180_000
  )
})
