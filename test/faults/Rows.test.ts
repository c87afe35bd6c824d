/** The fault catalogue, entries 77, 78 and 79: deadlocks, counters and old snapshots. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { epochMax } from "../../src/domain/Claim.ts"
import { bulk, layer, Stage } from "./Stage.ts"

it.layer(layer(), { excludeTestServices: true, timeout: "2 minutes" })("fault catalogue, rows", (it) => {
  it.effect(
    "77: cancels, claims, reclaims and settles over the same rows never deadlock",
    () =>
      Effect.gen(function*() {
        const { ended, jobs, rows, shared, worker } = yield* Stage
        const { api } = yield* shared
        const crew = [yield* worker("a", { DEADMAN_WORKER_THREADS: "16" })]
        const dueMs = Date.now() + 1_000
        const bodies = Array.from({ length: 1_200 }, (_, n) => ({
          type: n % 3 === 0 ? "failK" : "sleep",
          payload: n % 3 === 0 ? 1 : 30,
          backoff: { kind: "fixed", delay_ms: 100 },
          run_at_ms: n % 2 === 0 ? dueMs : 0
        }))
        const ids = yield* bulk(api, bodies)
        const killing = yield* Effect.forkChild(Effect.forever(Effect.gen(function*() {
          yield* Effect.sleep("1500 millis")
          yield* crew[0]!.signal("SIGKILL")
          crew[0] = yield* worker("a", { DEADMAN_WORKER_THREADS: "16" })
        })))
        yield* worker("b", { DEADMAN_WORKER_THREADS: "16" })
        const statuses = new Set<number>()
        yield* Effect.forEach(
          ids.filter((_, n) => n % 2 === 1).toReversed(),
          (id, n) =>
            Effect.map(
              n % 5 === 0 ? api.send("POST", `/jobs/${id}/retry`) : api.send("DELETE", `/jobs/${id}`),
              ({ status }) => statuses.add(status)
            ),
          { concurrency: 16 }
        )
        yield* ended(ids)
        yield* Fiber.interrupt(killing)
        assert.isTrue(
          Array.from(statuses).every((status) => status === 200 || status === 409),
          Array.from(statuses).join()
        )
        assert.isAbove((yield* jobs(ids)).filter(({ state }) => state === 4).length, 0)
        const [deadlocks] = yield* rows<{ n: number }>(`SELECT sum(deadlocks)::int AS n FROM pg_stat_database`)
        assert.strictEqual(deadlocks?.n, 0)
      }),
    180_000
  )

  it.effect(
    "78: near the end of the only sequence everything works, and an exhausted one blames nobody",
    () =>
      Effect.gen(function*() {
        const { clean, ended, jobs, rows, running, shared, submit, worker } = yield* Stage
        const { api } = yield* shared
        yield* rows(`SELECT setval('deadman.route_id_seq', 2147483640)`)
        const one = yield* worker("a", { DEADMAN_DRAIN_MS: "0" })
        const ids = yield* submit(api, Array.from({ length: 4 }, (_, n) => ({ type: "noop", queue: `q${n}` })))
        yield* ended(ids)
        yield* clean(ids, 1)
        const [held] = yield* submit(api, [{ type: "sleep", payload: 2_000, queue: "held" }])
        yield* running([held!])
        yield* one.signal("SIGTERM")
        assert.strictEqual(yield* one.exit("10 seconds"), 0)
        yield* worker("b")
        yield* ended([held!])
        assert.deepInclude((yield* jobs([held!]))[0], { state: 3, deliveries: 2, losses: 0 })
        assert.strictEqual((yield* api.send("GET", "/jobs?queue=held")).body.jobs.length, 1)
        yield* rows(`SELECT setval('deadman.route_id_seq', 2147483647)`)
        const refused = yield* api.send("POST", "/jobs", { type: "noop", queue: "one-too-many" })
        assert.deepInclude({ status: refused.status, body: JSON.stringify(refused.body) }, { status: 503 })
        yield* ended(yield* submit(api, [{ type: "sleep", payload: 1, queue: "held" }]))
        yield* rows(`SELECT setval('deadman.route_id_seq', 100000)`)
      }),
    180_000
  )

  it.effect(
    "78: a job that runs again and again for years ends, and stands in the way of no other",
    () =>
      Effect.gen(function*() {
        const { clean, ended, job, jobs, rows, shared, submit, worker } = yield* Stage
        const { api } = yield* shared
        yield* worker("a")
        const hourMs = Date.now() + 3_600_000
        // What `Job.again(0)` is, by its shape.
        const again = { type: "throws", payload: { _tag: "deadman/Again", delayMs: 0 }, queue: "years" }
        const [worn] = yield* submit(api, [again], { run_at_ms: hourMs })
        yield* rows(
          `UPDATE deadman.job SET epoch = ${epochMax - 3}, deliveries = ${epochMax - 3} WHERE id = '${worn}'`
        )
        yield* api.send("POST", `/jobs/${worn}/retry`)
        const others = yield* submit(
          api,
          Array.from({ length: 5 }, () => ({ type: "failK", payload: 0, queue: "years" }))
        )
        yield* ended([worn!, ...others])
        yield* clean(others, 1)
        assert.deepInclude((yield* jobs([worn!]))[0], { state: 4, deliveries: epochMax, losses: 0 })
        const { errors, reason } = yield* job(api, worn!)
        assert.strictEqual(reason, "rejected")
        assert.strictEqual(errors.at(-1).name, "ClaimsExhausted")
      }),
    180_000
  )

  it.effect(
    "79: a snapshot left open pins dead rows, and claims stay quick; nothing of ours stays open itself",
    () =>
      Effect.gen(function*() {
        const { ended, jobs, rows, shared, submit, worker } = yield* Stage
        const { api } = yield* shared
        yield* worker("a", { DEADMAN_WORKER_THREADS: "8" })
        yield* ended(yield* submit(api, [{ type: "noop" }]))
        const pinning = yield* Effect.forkChild(
          rows(`DO $$ DECLARE n bigint; BEGIN SELECT count(*) INTO n FROM deadman.job; PERFORM pg_sleep(60); END $$`)
        )
        const ids: Array<string> = []
        let oldest = 0
        for (let n = 0; n < 60; n++) {
          const batch = Array.from({ length: 40 }, () => ({ type: "sleep", payload: 10 }))
          const made = yield* bulk(api, batch)
          ids.push(...made)
          // One batch after the other: how long a job waits behind others is not what is looked at.
          yield* ended(made)
          const [age] = yield* rows<{ s: number }>(
            `SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8 AS s
           FROM pg_stat_activity WHERE application_name LIKE 'deadman%' AND state LIKE 'idle in transaction%'`
          )
          oldest = Math.max(oldest, age?.s ?? 0)
        }
        const found = yield* jobs(ids)
        assert.isTrue(found.every(({ state }) => state === 3))
        assert.isBelow(oldest, 1)
        const waits = yield* rows<{ ms: number }>(
          `SELECT (j.started_at_ms - b.created_at_ms)::float8 AS ms FROM deadman.job j JOIN deadman.body b ON b.id = j.id
         WHERE j.id IN (${ids.map((id) => `'${id}'`).join()}) ORDER BY 1`
        )
        assert.isBelow(waits[Math.floor(waits.length * 0.99)]?.ms ?? Infinity, 2_000)
        yield* Fiber.interrupt(pinning)
      }),
    180_000
  )
})
