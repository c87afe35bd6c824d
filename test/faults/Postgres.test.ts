/** The fault catalogue, chapter H and entries 12 and 13: what Postgres may do to the built programs. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Random } from "effect"
import * as ApiClient from "../support/ApiClient.ts"
import * as HalfOpenProxy from "../support/HalfOpenProxy.ts"
import * as Processes from "../support/Processes.ts"
import { layer, sink, Stage } from "./Stage.ts"

const ours = `FROM pg_stat_activity WHERE application_name LIKE 'deadman%'`

/** Posts under a key until it is taken, as a client does that retries. */
const persist = Effect.fnUntraced(function*(api: ApiClient.ApiClient, key: string, body: object) {
  const wrong: Array<number> = []
  for (let tries = 0; tries < 100; tries++) {
    const { body: job, status } = yield* api.send("POST", "/jobs", body, { "idempotency-key": key })
    if (status === 200 || status === 201) {
      return { id: String(job.id), wrong }
    }
    if (status !== 503) {
      wrong.push(status)
    }
    yield* Effect.sleep("100 millis")
  }
  return yield* Effect.die(new Error(`${key} was never taken`))
})

it.layer(layer({ DEADMAN_LEASE_MS: "2000" }), { excludeTestServices: true, timeout: "60 seconds" })(
  "fault catalogue, Postgres",
  (it) => {
    it.effect(
      "12: sessions that are killed under twenty requests with one key leave one job a key",
      () =>
        Effect.gen(function*() {
          const { rows, server } = yield* Stage
          const { api } = yield* server()
          const killing = yield* Effect.forkChild(Effect.forever(Effect.andThen(
            rows(`SELECT pg_terminate_backend(pid) ${ours} ORDER BY random() LIMIT 1`),
            Effect.sleep("20 millis")
          )))
          const told = new Map<string, Set<string>>()
          const wrong: Array<number> = []
          for (let round = 0; round < 40; round++) {
            const key = `killed-${round}`
            const ids = new Set<string>()
            const answers = yield* Effect.forEach(
              Array.from({ length: 20 }),
              () => api.send("POST", "/jobs", { type: "waits", payload: round }, { "idempotency-key": key }),
              { concurrency: "unbounded" }
            )
            for (const { body, status } of answers) {
              if (status === 200 || status === 201) {
                ids.add(String(body.id))
              } else if (status !== 503) {
                wrong.push(status)
              }
            }
            told.set(key, ids)
          }
          yield* Fiber.interrupt(killing)
          assert.deepStrictEqual(wrong, [])
          for (const [key, ids] of told) {
            const { id } = yield* persist(api, key, { type: "waits", payload: Number(key.slice(7)) })
            ids.add(id)
            assert.strictEqual(ids.size, 1, key)
            assert.strictEqual((yield* api.send("GET", `/jobs/${id}`)).status, 200)
          }
          const [count] = yield* rows<{ n: number }>(
            `SELECT count(*)::int AS n FROM deadman.job j JOIN deadman.route r ON r.id = j.route WHERE r.type = 'waits'`
          )
          assert.strictEqual(count?.n, 40)
        }),
      60_000
    )

    it.effect(
      "13: a run after one whose completion was lost carries the same effect key",
      () =>
        Effect.gen(function*() {
          const { ended, jobs, server, submit, url, worker } = yield* Stage
          const target = yield* sink
          target.mode = "slow"
          const { api } = yield* server()
          const behind = new URL(url)
          const proxy = yield* HalfOpenProxy.make({ port: Number(behind.port) })
          behind.port = String(proxy.port)
          const first = yield* worker("cut", { DEADMAN_DATABASE_URL: behind.href })
          const ids = yield* submit(api, [{ type: "http", payload: { url: target.url }, idempotency_key: "order-7" }])
          yield* Processes.eventually("the effect is under way", Effect.sync(() => target.hits.length === 1))
          yield* proxy.halfOpen
          // New connections are not affected, and a frozen process opens none.
          yield* first.signal("SIGSTOP")
          yield* worker("sound")
          yield* ended(ids)
          assert.deepStrictEqual(target.hits.map(({ key }) => key), ["order-7", "order-7"])
          yield* first.signal("SIGCONT")
          yield* Processes.eventually("refused", Effect.map(jobs(ids), ([job]) => job?.stale === 1))
          assert.deepInclude((yield* jobs(ids))[0], { state: 3, deliveries: 2, attempts: 0 })
        }),
      60_000
    )

    it.effect(
      "70: sessions killed at random all the time cost no job, no effect and no process",
      () =>
        Effect.gen(function*() {
          const { capacity, clean, ended, rows, server, worker } = yield* Stage
          const { api, program } = yield* server()
          const crew = [yield* worker("a"), yield* worker("b")]
          const killing = yield* Effect.forkChild(Effect.forever(Effect.andThen(
            rows(`SELECT pg_terminate_backend(pid) ${ours} ORDER BY random() LIMIT 2`),
            Effect.sleep("150 millis")
          )))
          const taken = yield* Effect.forEach(
            Array.from({ length: 300 }, (_, n) => n),
            (n) =>
              Effect.andThen(
                Effect.sleep("200 millis"),
                persist(api, `effect-${n}`, { type: "side-effect", payload: { n } })
              ),
            { concurrency: 8 }
          )
          yield* Fiber.interrupt(killing)
          const ids = taken.map(({ id }) => id)
          assert.deepStrictEqual(taken.flatMap(({ wrong }) => wrong), [])
          assert.strictEqual(new Set(ids).size, 300)
          yield* ended(ids)
          yield* clean(ids)
          const [effects] = yield* rows<{ n: number }>(`SELECT count(*)::int AS n FROM deadman.effect`)
          assert.strictEqual(effects?.n, 300)
          assert.isTrue([program, ...crew].every((one) => one.alive()))
          yield* capacity(api, 8)
        }),
      90_000
    )

    it.effect(
      "71: a table that is locked while jobs end, for half a lease and for two, costs no effect",
      () =>
        Effect.gen(function*() {
          const { clean, ended, jobs, rows, running, server, submit, worker } = yield* Stage
          const { api } = yield* server()
          yield* worker("a", { DEADMAN_WORKER_THREADS: "20" })
          yield* worker("b", { DEADMAN_WORKER_THREADS: "20" })
          for (const [seconds, most] of [[1, 1], [4, 2]] as const) {
            const ids = yield* submit(api, [
              ...Array.from({ length: 10 }, () => ({ type: "sleep", payload: 500 })),
              ...Array.from({ length: 10 }, (_, n) => ({ type: "side-effect", payload: { seconds, n } }))
            ])
            yield* running(ids.slice(0, 10), "10 seconds")
            yield* rows(
              `DO $$ BEGIN LOCK TABLE deadman.job IN ACCESS EXCLUSIVE MODE; PERFORM pg_sleep(${seconds}); END $$`
            )
            yield* ended(ids)
            yield* clean(ids, most)
            if (most === 1) {
              assert.isTrue((yield* jobs(ids)).every(({ losses }) => losses === 0))
            }
          }
          const twice = yield* rows(`SELECT job FROM deadman.effect GROUP BY job HAVING count(*) > 1`)
          assert.deepStrictEqual(twice, [])
        }),
      60_000
    )

    it.effect(
      "72: wakes that were lost cost a second or so, and connections that went half-open are replaced",
      () =>
        Effect.gen(function*() {
          const { ended, jobs, rows, server, submit, url, worker } = yield* Stage
          const { api } = yield* server()
          const behind = new URL(url)
          const proxy = yield* HalfOpenProxy.make({ port: Number(behind.port) })
          behind.port = String(proxy.port)
          yield* worker("deaf", { DEADMAN_DATABASE_URL: behind.href })
          yield* ended(yield* submit(api, [{ type: "noop" }]))
          yield* rows(`SELECT pg_terminate_backend(pid) ${ours} AND query LIKE 'LISTEN%'`)
          const after = yield* submit(api, [{ type: "noop" }])
          yield* ended(after, "4 seconds")
          yield* proxy.halfOpen
          const later = yield* submit(api, [{ type: "noop" }])
          yield* ended(later, "15 seconds")
          assert.deepInclude((yield* jobs(later))[0], { attempts: 0, losses: 0 })
          yield* Processes.eventually(
            "somebody listens again",
            Effect.map(rows(`SELECT 1 ${ours} AND query LIKE 'LISTEN%'`), ({ length }) => length >= 2),
            "20 seconds"
          )
        }),
      60_000
    )

    it.effect(
      "74: a server that is read-only for a while answers 503, and no job fails of it",
      () =>
        Effect.gen(function*() {
          const { clean, ended, running, rows, server, submit, worker } = yield* Stage
          const { api } = yield* server()
          yield* worker("a")
          const ids = yield* submit(api, Array.from({ length: 4 }, () => ({ type: "sleep", payload: 2_000 })))
          yield* running(ids)
          const readOnly = Effect.fnUntraced(function*(value: string) {
            yield* rows(`ALTER SYSTEM SET default_transaction_read_only = ${value}`)
            yield* rows(`SELECT pg_reload_conf()`)
          })
          yield* readOnly("on")
          const statuses = new Set<string>()
          for (let n = 0; n < 6; n++) {
            const { headers, status } = yield* api.send("POST", "/jobs", { type: "noop" })
            statuses.add(`${status} ${headers.get("retry-after")}`)
            yield* Effect.sleep("200 millis")
          }
          yield* readOnly("off")
          assert.deepStrictEqual(Array.from(statuses).filter((one) => !one.startsWith("201")), ["503 1"])
          yield* Processes.eventually(
            "it takes jobs again",
            Effect.map(api.send("POST", "/jobs", { type: "noop" }), ({ status }) => status === 201)
          )
          yield* ended(ids)
          yield* clean(ids)
        }),
      60_000
    )

    it.effect("75: requests that are given up cancel nobody else's", () =>
      Effect.gen(function*() {
        const { clean, ended, port, program, worker } = yield* Effect.gen(function*() {
          const stage = yield* Stage
          return { ...stage, ...(yield* stage.server()) }
        })
        const crew = yield* worker("a")
        const healthy = ApiClient.make(port)
        const statuses = new Map<number, number>()
        const ids: Array<string> = []
        const traffic = yield* Effect.forkChild(Effect.forever(Effect.gen(function*() {
          const made = yield* healthy.send("POST", "/jobs", { type: "sleep", payload: 5 })
          const got = yield* healthy.send("GET", "/jobs?limit=5")
          for (const { status } of [made, got]) {
            statuses.set(status, (statuses.get(status) ?? 0) + 1)
          }
          ids.push(String(made.body.id))
        })))
        yield* Effect.forEach(
          Array.from({ length: 2_000 }),
          (_, n) =>
            Effect.gen(function*() {
              const hasty = ApiClient.make(port, { timeoutMs: yield* Random.nextIntBetween(1, 20) })
              yield* n % 2 === 0
                ? hasty.send("POST", "/jobs", { type: "sleep", payload: 1 })
                : hasty.send("GET", "/jobs?limit=50&type=sleep")
            }),
          { concurrency: 16 }
        )
        yield* Fiber.interrupt(traffic)
        assert.deepStrictEqual(Array.from(statuses.keys()).sort(), [200, 201])
        yield* ended(ids, "30 seconds")
        yield* clean(ids)
        for (const one of [program, crew]) {
          assert.notMatch(one.output(), /57014|canceling statement/)
        }
      }), 60_000)
  }
)
