/** The fault catalogue, chapter J and entry 98: many rows, many keys, many types, a herd, and what logs may hold. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync } from "node:fs"
import * as Processes from "../support/Processes.ts"
import { layer, sink, Stage } from "./Stage.ts"

const residentMb = (pid: number) =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024

const env = {
  DEADMAN_RETAIN_COMPLETED_MS: "1000",
  DEADMAN_RETAIN_DEAD_MS: "1000",
  DEADMAN_KEY_TTL_MS: "1000"
}

it.layer(layer(), { excludeTestServices: true, timeout: "60 seconds" })("fault catalogue, scale", (it) => {
  it.effect(
    "89: lists, counts and metrics stay quick beside 200,000 finished jobs, and so do claims",
    () =>
      Effect.gen(function*() {
        const { ended, jobs, rows, server, submit, worker } = yield* Stage
        const { api } = yield* server()
        yield* worker("a")
        yield* ended(yield* submit(api, [{ type: "noop" }]))
        yield* rows(`WITH n AS (SELECT uuidv7() AS id, n FROM generate_series(1, 200000) n),
        r AS (SELECT id FROM deadman.route WHERE type = 'noop' LIMIT 1),
        b AS (INSERT INTO deadman.body (id, payload, created_at_ms, max_attempts)
              SELECT id, '1', deadman.now_ms(), 10 FROM n),
        t AS (INSERT INTO deadman.tally SELECT r.id, 3, 200000 FROM r)
        INSERT INTO deadman.job (id, run_at_ms, route, bytes, state, epoch, deliveries, started_at_ms, finished_at_ms)
        SELECT n.id, deadman.now_ms(), r.id, 1, 3, 1, 1, deadman.now_ms(), deadman.now_ms() FROM n, r`)
        const took = Effect.fnUntraced(function*(path: string) {
          const atMs = performance.now()
          const { status } = yield* api.send("GET", path)
          assert.strictEqual(status, 200, path)
          return performance.now() - atMs
        })
        for (
          const path of [
            "/jobs",
            "/jobs?state=completed&type=noop",
            "/jobs?state=dead",
            "/jobs?state=pending",
            "/stats",
            "/metrics"
          ]
        ) {
          yield* took(path)
          const times = [yield* took(path), yield* took(path), yield* took(path)].sort((a, b) => a - b)
          assert.isBelow(times[1]!, 500, path)
        }
        const waits: Array<number> = []
        for (let n = 0; n < 15; n++) {
          const ids = yield* submit(api, [{ type: "noop" }])
          yield* ended(ids)
          const { body } = yield* api.send("GET", `/jobs/${ids[0]}`)
          waits.push(body.started_at_ms - body.created_at_ms)
        }
        assert.isBelow(waits.sort((a, b) => a - b)[7]!, 100)
        assert.strictEqual((yield* api.send("GET", "/stats")).body.jobs.by_state.completed >= 200_000, true)
        assert.lengthOf(yield* jobs([]), 0)
      }),
    60_000
  )

  it.effect(
    "91: after all workers were killed the next ones take over a backlog without a herd",
    () =>
      Effect.gen(function*() {
        const { clean, ended, jobs, rows, running, server, submit, worker } = yield* Stage
        const slow = yield* sink
        slow.mode = "slow"
        const { api } = yield* server()
        const first = yield* Effect.forEach(["a", "b"], (name) => worker(name, { DEADMAN_WORKER_THREADS: "25" }))
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
          (name) => worker(name, { DEADMAN_WORKER_THREADS: "25" }),
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
          "40 seconds",
          "200 millis"
        )
        yield* ended(held)
        yield* clean(held, 2)
        yield* clean(queued, 2)
        assert.isTrue((yield* jobs(queued)).every(({ losses }) => losses <= 1))
        // 12 for each of the five.
        assert.isAtMost(connections, 60)
      }),
    60_000
  )

  it.effect("93: two thousand types and queues grow no metric, and little memory", () =>
    Effect.gen(function*() {
      const { server } = yield* Stage
      const { api, program } = yield* server()
      const before = {
        lines: String((yield* api.send("GET", "/metrics")).body).split("\n").length,
        mb: residentMb(program.pid)
      }
      for (let part = 0; part < 4; part++) {
        const bodies = Array.from({ length: 1_000 }, (_, n) => ({ type: `t${part}-${n % 500}`, queue: `q${n % 50}` }))
        assert.strictEqual((yield* api.send("POST", "/jobs/batch", bodies)).status, 201)
      }
      const text = String((yield* api.send("GET", "/metrics")).body)
      assert.isAtMost(text.split("\n").length, before.lines + 20)
      assert.notMatch(text, /t1-\d|q\d/)
      const atMs = performance.now()
      assert.strictEqual((yield* api.send("GET", "/stats")).status, 200)
      assert.isBelow(performance.now() - atMs, 1_000)
      assert.isBelow(residentMb(program.pid) - before.mb, 150)
    }), 60_000)

  it.effect(
    "90, 94: finished jobs, keys and cancelled ones are gone after their time, and what waits is not",
    () =>
      Effect.gen(function*() {
        const { ended, rows, server, submit, worker } = yield* Stage
        const first = yield* server(env)
        yield* worker("a", { ...env, DEADMAN_WORKER_THREADS: "16" })
        const keyed = Array.from({ length: 5_000 }, (_, n) => ({ type: "noop", idempotency_key: `flood-${n}` }))
        const made = yield* first.api.send("POST", "/jobs/batch", keyed)
        assert.strictEqual(made.status, 201)
        const kept = yield* submit(first.api, [{ type: "noop", run_at_ms: Date.now() + 3_600_000 }])
        const later = yield* submit(
          first.api,
          Array.from({ length: 200 }, (_, n) => ({
            type: "noop",
            run_at_ms: Date.now() + 3_600_000 + n,
            idempotency_key: `later-${n}`
          }))
        )
        yield* Effect.forEach(later, (id) => first.api.send("DELETE", `/jobs/${id}`), { concurrency: 16 })
        yield* ended(made.body.jobs.map(({ id }: { id: string }) => id))
        // The one that prunes dies in the middle of it.
        yield* first.program.signal("SIGKILL")
        yield* server(env)
        yield* Processes.eventually(
          "nothing of them is left",
          Effect.map(
            rows<{ n: number }>(`SELECT (SELECT count(*) FROM deadman.key)::int
            + (SELECT count(*) FROM deadman.job WHERE state IN (3, 4))::int AS n`),
            ([left]) => left?.n === 0
          ),
          "45 seconds",
          "500 millis"
        )
        const [left] = yield* rows<{ n: number }>(`SELECT count(*)::int AS n FROM deadman.job WHERE id = '${kept[0]}'`)
        assert.strictEqual(left?.n, 1)
        const [bodies] = yield* rows<{ n: number }>(
          `SELECT count(*)::int AS n FROM deadman.body b WHERE NOT EXISTS (SELECT 1 FROM deadman.job j WHERE j.id = b.id)`
        )
        assert.strictEqual(bodies?.n, 0)
      }),
    60_000
  )

  it.effect("98: payloads are in no log and in no refusal, whatever becomes of them", () =>
    Effect.gen(function*() {
      const { ended, postgres, server, submit, url, worker } = yield* Stage
      const logs = { DEADMAN_LOG_LEVEL: "debug" }
      const { api, program } = yield* server(logs)
      const one = yield* worker("a", logs)
      const secret = "sk_live_hunter2"
      yield* ended(
        yield* submit(api, [
          { type: "returns", payload: { secret } },
          { type: "rejects", payload: { secret }, max_attempts: 1 },
          { type: "sleep", payload: secret }
        ])
      )
      const answers = [
        yield* api.send("POST", "/jobs", { type: "noop", payload: secret, max_attempts: -1 }),
        yield* api.send("POST", "/jobs", { type: "noop", payload: `${secret}\u0000` }),
        yield* api.send("POST", "/jobs", `{"type":"noop","payload":"${secret}`),
        yield* api.send("POST", "/jobs", { type: "noop", payload: secret.padEnd(2_000_000, "x") })
      ]
      yield* postgres.stopImmediate
      answers.push(yield* api.send("POST", "/jobs", { type: "noop", payload: secret }))
      yield* postgres.start
      assert.deepStrictEqual(answers.map(({ status }) => status), [400, 400, 400, 413, 503])
      const password = new URL(url).password
      for (const said of [...answers.map(({ body }) => JSON.stringify(body)), program.output(), one.output()]) {
        assert.notInclude(said, secret)
        assert.notInclude(said, password)
        assert.notMatch(said, /INSERT INTO|SELECT |\bat .*\.js:\d/)
      }
    }), 60_000)
})
