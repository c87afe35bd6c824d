/** The fault catalogue, chapter J: many rows, a herd, many types. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync } from "node:fs"
import * as Processes from "../support/Processes.ts"
import { bulk, layer, sink, Stage } from "./Stage.ts"

const residentMb = (pid: number) =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024

it.layer(layer(), { excludeTestServices: true, timeout: "2 minutes" })("fault catalogue, scale", (it) => {
  it.effect(
    "89: lists, counts and metrics stay quick beside 200,000 finished jobs, and so do claims",
    () =>
      Effect.gen(function*() {
        const { ended, jobs, rows, shared, submit, worker } = yield* Stage
        const { api } = yield* shared
        yield* worker("a")
        yield* ended(yield* submit(api, [{ type: "noop" }]))
        const took = Effect.fnUntraced(function*(path: string) {
          const atMs = performance.now()
          const { status } = yield* api.send("GET", path)
          assert.strictEqual(status, 200, path)
          return performance.now() - atMs
        })
        const paths = [
          "/jobs",
          "/jobs?state=completed&type=noop",
          "/jobs?state=dead",
          "/jobs?state=pending",
          "/stats",
          "/metrics"
        ]
        const look = Effect.forEach(paths, (path) =>
          Effect.gen(function*() {
            yield* took(path)
            return [yield* took(path), yield* took(path), yield* took(path)].sort((a, b) => a - b)[1]!
          }))
        const waited = Effect.gen(function*() {
          const waits: Array<number> = []
          for (let n = 0; n < 15; n++) {
            const ids = yield* submit(api, [{ type: "noop" }])
            yield* ended(ids)
            const { body } = yield* api.send("GET", `/jobs/${ids[0]}`)
            waits.push(body.started_at_ms - body.created_at_ms)
          }
          return waits.sort((a, b) => a - b)[7]!
        })
        // What all of it takes here and now, where there is nothing yet.
        const [looks, wait] = [yield* look, yield* waited]
        yield* rows(`WITH n AS (SELECT uuidv7() AS id, n FROM generate_series(1, 200000) n),
        r AS (SELECT id FROM deadman.route WHERE type = 'noop' LIMIT 1),
        b AS (INSERT INTO deadman.body (id, payload, created_at_ms, max_attempts)
              SELECT id, '1', deadman.now_ms(), 10 FROM n),
        t AS (INSERT INTO deadman.tally SELECT r.id, 3, 200000 FROM r)
        INSERT INTO deadman.job (id, run_at_ms, route, bytes, state, epoch, deliveries, started_at_ms, finished_at_ms)
        SELECT n.id, deadman.now_ms(), r.id, 1, 3, 1, 1, deadman.now_ms(), deadman.now_ms() FROM n, r`)
        for (const [n, ms] of (yield* look).entries()) {
          assert.isBelow(ms, Math.max(500, 10 * looks[n]!), paths[n])
        }
        assert.isBelow(yield* waited, Math.max(100, 10 * wait))
        assert.strictEqual((yield* api.send("GET", "/stats")).body.jobs.by_state.completed >= 200_000, true)
        assert.lengthOf(yield* jobs([]), 0)
      }),
    180_000
  )

  it.effect(
    "91: after all workers were killed the next ones take over a backlog without a herd",
    () =>
      Effect.gen(function*() {
        const { clean, ended, jobs, manned, rows, running, shared, submit, worker } = yield* Stage
        const slow = yield* sink
        slow.mode = "slow"
        const { api } = yield* shared
        // A worker that gets no processor for a length of its lease hands back what it has, which is no herd.
        const crew = { DEADMAN_WORKER_THREADS: "25", DEADMAN_LEASE_MS: "5000" }
        const first = yield* Effect.forEach(["a", "b"], (name) => worker(name, crew))
        yield* manned
        const held = yield* submit(api, Array.from({ length: 50 }, () => ({ type: "sleep", payload: 3_000 })))
        yield* running(held)
        const queued = yield* submit(
          api,
          Array.from({ length: 300 }, () => ({ type: "http", payload: { url: slow.url } }))
        )
        yield* Effect.forEach(first, (one) => one.signal("SIGKILL"))
        yield* Effect.sleep("4 seconds")
        yield* Effect.forEach(
          Array.from({ length: 4 }, (_, n) => `n${n}`),
          (name) => worker(name, crew),
          { concurrency: "unbounded" }
        )
        let connections = 0
        yield* Processes.eventually(
          "all are done",
          Effect.gen(function*() {
            const [now] = yield* rows<{ n: number }>(
              `SELECT count(*)::int AS n FROM pg_stat_activity WHERE application_name LIKE 'deadman%'`
            )
            connections = Math.max(connections, now?.n ?? 0)
            return (yield* jobs([...held, ...queued])).every(({ state }) => state === 3)
          }),
          "90 seconds",
          "200 millis"
        )
        yield* ended(held)
        // A worker claims ahead for slots that short jobs of its mix would leave soon, and hands back after a second what
        // the long ones keep from starting: that is one delivery more for a few, and no loss.
        yield* clean(held, 3)
        yield* clean(queued, 3)
        const all = yield* jobs([...held, ...queued])
        assert.isTrue(all.every(({ losses }) => losses <= 1))
        assert.isAtMost(all.filter(({ deliveries }) => deliveries === 3).length, 25)
        const handedBack = all.reduce((sum, { deliveries, losses }) => sum + deliveries - 1 - losses, 0)
        yield* Processes.eventually(
          `${handedBack} deliveries that were no loss are hand-backs, which their workers have counted`,
          Effect.map(
            rows<{ n: number }>(`SELECT sum((counters ->> 'released')::int)::int AS n FROM deadman.session`),
            ([counted]) => counted?.n === handedBack
          ),
          "10 seconds"
        )
        // 16 for each of the five.
        assert.isAtMost(connections, 80)
      }),
    180_000
  )

  it.effect("93: two thousand types and queues grow no metric, and little memory", () =>
    Effect.gen(function*() {
      const { shared } = yield* Stage
      const { api, program } = yield* shared
      const before = {
        lines: String((yield* api.send("GET", "/metrics")).body).split("\n").length,
        mb: residentMb(program.pid)
      }
      for (let part = 0; part < 4; part++) {
        const bodies = Array.from({ length: 1_000 }, (_, n) => ({ type: `t${part}-${n % 500}`, queue: `q${n % 50}` }))
        yield* bulk(api, bodies)
      }
      const text = String((yield* api.send("GET", "/metrics")).body)
      assert.isAtMost(text.split("\n").length, before.lines + 20)
      assert.notMatch(text, /t1-\d|q\d/)
      const atMs = performance.now()
      assert.strictEqual((yield* api.send("GET", "/stats")).status, 200)
      assert.isBelow(performance.now() - atMs, 1_000)
      assert.isBelow(residentMb(program.pid) - before.mb, 150)
    }), 180_000)
})
