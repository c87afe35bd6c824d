/** The fault catalogue, chapter D: retries and cancellation, with the built programs. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { randomBytes } from "node:crypto"
import * as Processes from "../support/Processes.ts"
import { bulk, layer, sink, Stage } from "./Stage.ts"

it.layer(layer(), { excludeTestServices: true, timeout: "2 minutes" })("fault catalogue, jobs", (it) => {
  it.effect(
    "4: one attempt is one run, on the failing path and after a lost lease alike",
    () =>
      Effect.gen(function*() {
        const { ended, jobs, rows, running, shared, submit, worker } = yield* Stage
        const { api } = yield* shared
        const first = yield* worker("a")
        const once = { max_attempts: 1 }
        const [fails] = yield* submit(api, [{ type: "always-fails", ...once }])
        const [lost] = yield* submit(api, [{ type: "failK", payload: 0, ...once }])
        yield* ended([fails!, lost!])
        assert.deepInclude((yield* jobs([fails!]))[0], { state: 4, attempts: 1, deliveries: 1 })
        const [slow] = yield* submit(api, [{ type: "lingers", payload: 60_000, ...once }])
        yield* running([slow!])
        yield* first.signal("SIGKILL")
        yield* worker("b")
        yield* ended([slow!])
        assert.deepInclude((yield* jobs([slow!]))[0], { state: 3, attempts: 0, deliveries: 2, losses: 1 })
        assert.lengthOf(
          yield* rows(`SELECT 1 FROM deadman.lease l JOIN deadman.job j ON j.lease = l.id AND j.state = 1`),
          0
        )
      }),
    180_000
  )

  it.effect("30: 200 failures with huge messages leave a small row and a short history", () =>
    Effect.gen(function*() {
      const { ended, jobs, job, rows, shared, submit, worker } = yield* Stage
      const { api } = yield* shared
      yield* worker("a")
      // Nothing that Postgres could compress away.
      const ids = yield* submit(api, [{ type: "throws", payload: randomBytes(375_000).toString("base64") }], {
        max_attempts: 200,
        backoff: { kind: "fixed", delay_ms: 0 }
      })
      yield* ended(ids)
      assert.deepInclude((yield* jobs(ids))[0], { state: 4, attempts: 200, deliveries: 200 })
      const [size] = yield* rows<{ bytes: number }>(
        `SELECT pg_column_size(g.*)::int + pg_column_size(j.*)::int AS bytes FROM deadman.journal g
         JOIN deadman.job j ON j.id = g.id WHERE g.id = '${ids[0]}'`
      )
      assert.isBelow(size?.bytes ?? Infinity, 40_000)
      const { errors } = yield* job(api, ids[0]!)
      assert.lengthOf(errors, 15)
      assert.isTrue(errors.every(({ message }: { message: string }) => message.length > 100 && message.length <= 2_000))
    }), 180_000)

  it.effect("32: what fails together is not retried together", () =>
    Effect.gen(function*() {
      const { rows, shared, worker } = yield* Stage
      const { api } = yield* shared
      yield* worker("a", { DEADMAN_WORKER_THREADS: "32" })
      const bodies = Array.from({ length: 1_000 }, () => ({
        type: "always-fails",
        queue: "herd",
        max_attempts: 2,
        backoff: { kind: "exponential", base_ms: 60_000, cap_ms: 60_000 }
      }))
      yield* bulk(api, bodies)
      const herd = `FROM deadman.job j JOIN deadman.route r ON r.id = j.route AND r.queue = 'herd'`
      // At least once: whoever drew a short wait may have failed again by the time that we look.
      yield* Processes.eventually(
        "all have failed",
        Effect.map(
          rows<{ n: number }>(`SELECT count(*)::int AS n ${herd} WHERE j.attempts >= 1`),
          ([found]) => found?.n === 1_000
        )
      )
      const [most] = yield* rows<{ n: number }>(
        `SELECT count(*)::int AS n ${herd} WHERE wait_ms IS NOT NULL GROUP BY wait_ms / 1000 ORDER BY 1 DESC LIMIT 1`
      )
      // A second is a sixtieth of the window, 17 jobs.
      assert.isBelow(most?.n ?? Infinity, 45)
    }), 180_000)

  it.effect(
    "33: a cancelled job that waits for a slot never starts, and a running one hears of it without a wake",
    () =>
      Effect.gen(function*() {
        const { ended, jobs, rows, shared, submit, worker } = yield* Stage
        const { hits, url } = yield* sink
        const { api } = yield* shared
        yield* worker("one", { DEADMAN_WORKER_THREADS: "1" })
        // So that it measures short runs, and claims ahead.
        yield* ended(yield* submit(api, Array.from({ length: 30 }, () => ({ type: "failK", payload: 0 }))))
        // Which of them comes first is nobody's promise: the one slot has the one that pings, and the others wait.
        const ids = yield* bulk(
          api,
          Array.from({ length: 6 }, () => ({ type: "http", payload: { url, pings: 100, every_ms: 50 } }))
        )
        yield* Processes.eventually("one runs", Effect.sync(() => hits.length > 0))
        const runs = hits[0]!.id
        const [first, waits, ...others] = [runs, ...ids.filter((id) => id !== runs)]
        yield* api.send("DELETE", `/jobs/${waits}`)
        yield* rows(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ILIKE 'LISTEN%'`)
        yield* api.send("DELETE", `/jobs/${first}`)
        const atMs = Date.now()
        // All but one of the others have shown enough.
        const [last, ...rest] = others
        yield* Effect.forEach(rest, (id) => api.send("DELETE", `/jobs/${id}`))
        yield* ended([last!])
        assert.lengthOf(hits.filter(({ id }) => id === waits), 0)
        const lastMs = Math.max(...hits.filter(({ id }) => id === first).map(({ at_ms }) => at_ms))
        assert.isBelow(lastMs - atMs, 1_000)
        assert.deepInclude((yield* jobs([first]))[0], { state: 4, attempts: 0, stale: 0 })
      }),
    180_000
  )

  it.effect("34: what was cancelled just before its time does not run at it", () =>
    Effect.gen(function*() {
      const { jobs, shared, submit, worker } = yield* Stage
      const { hits, url } = yield* sink
      const { api } = yield* shared
      yield* worker("a")
      // Time enough to cancel all of them before it, on any machine.
      const dueMs = Date.now() + 8_000
      const ids = yield* submit(api, Array.from({ length: 20 }, () => ({ type: "http", payload: { url } })), {
        run_at_ms: dueMs
      })
      yield* Effect.sleep("700 millis")
      const answers = yield* Effect.forEach(ids, (id) => api.send("DELETE", `/jobs/${id}`), { concurrency: 10 })
      assert.isTrue(answers.every(({ status }) => status === 200))
      yield* Effect.sleep(Math.max(0, dueMs - Date.now()) + 1_200)
      assert.lengthOf(hits, 0)
      assert.isTrue((yield* jobs(ids)).every(({ deliveries, state }) => state === 4 && deliveries === 0))
    }), 180_000)

  it.effect(
    "36: a row that SQL put there, with a payload its handler cannot read, fails by the usual way",
    () =>
      Effect.gen(function*() {
        const { clean, ended, jobs, rows, shared, submit, worker } = yield* Stage
        const { api } = yield* shared
        yield* worker("a")
        const ids = yield* submit(api, [{ type: "http", payload: { url: "nowhere" } }], {
          max_attempts: 2,
          backoff: { kind: "fixed", delay_ms: 100 },
          run_at_ms: Date.now() + 1_000
        })
        yield* rows(`UPDATE deadman.body SET payload = '[[[]]]' WHERE id = '${ids[0]}'`)
        const good = yield* submit(api, Array.from({ length: 5 }, () => ({ type: "failK", payload: 0 })))
        yield* ended([...ids, ...good])
        yield* clean(good, 1)
        assert.deepInclude((yield* jobs(ids))[0], { state: 4, attempts: 2 })
      }),
    180_000
  )
})
