/** The fault catalogue, entries 12, 13 and 70: sessions that are killed, and answers that are lost. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import type * as ApiClient from "../support/ApiClient.ts"
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

it.layer(layer({ DEADMAN_LEASE_MS: "2000" }), { excludeTestServices: true, timeout: "2 minutes" })(
  "fault catalogue, sessions",
  (it) => {
    it.effect(
      "12: sessions that are killed under twenty requests with one key leave one job a key",
      () =>
        Effect.gen(function*() {
          const { rows, shared } = yield* Stage
          const { api } = yield* shared
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
      180_000
    )

    it.effect(
      "13: a run after one whose completion was lost carries the same effect key",
      () =>
        Effect.gen(function*() {
          const { ended, jobs, shared, submit, url, worker } = yield* Stage
          const target = yield* sink
          target.mode = "slow"
          const { api } = yield* shared
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
      180_000
    )

    it.effect(
      "70: sessions killed at random all the time cost no job, no effect and no process",
      () =>
        Effect.gen(function*() {
          const { capacity, clean, ended, rows, shared, worker } = yield* Stage
          const { api, program } = yield* shared
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
      180_000
    )
  }
)
