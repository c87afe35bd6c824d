/** The fault catalogue, chapter H: what Postgres may do to the built programs. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Random } from "effect"
import * as ApiClient from "../support/ApiClient.ts"
import * as HalfOpenProxy from "../support/HalfOpenProxy.ts"
import * as Processes from "../support/Processes.ts"
import { layer, Stage } from "./Stage.ts"

const ours = `FROM pg_stat_activity WHERE application_name LIKE 'deadman%'`

it.layer(layer({ DEADMAN_LEASE_MS: "2000" }), { excludeTestServices: true, timeout: "2 minutes" })(
  "fault catalogue, Postgres",
  (it) => {
    it.effect(
      "71: a table that is locked while jobs end, for half a lease and for two, costs no effect",
      () =>
        Effect.gen(function*() {
          const { clean, ended, jobs, rows, shared, submit, worker } = yield* Stage
          const { api } = yield* shared
          yield* worker("a", { DEADMAN_WORKER_THREADS: "20" })
          yield* worker("b", { DEADMAN_WORKER_THREADS: "20" })
          for (const [seconds, most] of [[1, 1], [4, 2]] as const) {
            const ids = yield* submit(api, [
              ...Array.from({ length: 10 }, () => ({ type: "sleep", payload: 1_000 })),
              ...Array.from({ length: 10 }, (_, n) => ({ type: "side-effect", payload: { seconds, n } }))
            ])
            yield* Processes.eventually(
              "they have begun",
              Effect.map(jobs(ids.slice(0, 10)), (found) => found.every(({ deliveries }) => deliveries > 0))
            )
            yield* rows(
              `DO $$ BEGIN LOCK TABLE deadman.job IN ACCESS EXCLUSIVE MODE; PERFORM pg_sleep(${seconds}); END $$`
            )
            yield* ended(ids)
            yield* clean(ids, most)
            const fired = yield* rows(
              `SELECT job FROM deadman.effect WHERE job IN (${ids.map((id) => `'${id}'`).join()})`
            )
            assert.lengthOf(fired, 10, "each effect once")
            if (most === 1) {
              assert.isTrue((yield* jobs(ids)).every(({ losses }) => losses === 0))
            }
          }
          // Beyond what a lease can be renewed through, and in the middle of a run whose effect is there already.
          yield* rows(`CREATE TABLE IF NOT EXISTS public.ledger (account text, amount int)`)
          yield* worker("c", { DEADMAN_HANDLERS: "test/support/handlers/ledger.ts", DEADMAN_WORKER_THREADS: "6" })
          const paid = yield* submit(
            api,
            Array.from(
              { length: 6 },
              (_, n) => ({ type: "pay", payload: { account: "eve", amount: n, holds_ms: 8_000 } })
            )
          )
          const ledger = rows<{ amount: number }>(`SELECT amount FROM public.ledger ORDER BY amount`)
          yield* Processes.eventually("all have paid", Effect.map(ledger, ({ length }) => length === 6))
          yield* rows(
            `DO $$ BEGIN LOCK TABLE deadman.lease, deadman.job IN ACCESS EXCLUSIVE MODE; PERFORM pg_sleep(4); END $$`
          )
          yield* ended(paid)
          for (const one of yield* jobs(paid)) {
            assert.deepInclude(one, { state: 3, attempts: 0, deliveries: 2 })
          }
          assert.deepStrictEqual((yield* ledger).map(({ amount }) => amount), [0, 1, 2, 3, 4, 5])
        }),
      180_000
    )

    it.effect(
      "72: wakes that were lost cost a second or so, and connections that went half-open are replaced",
      () =>
        Effect.gen(function*() {
          const { ended, jobs, rows, shared, submit, url, worker } = yield* Stage
          const { api } = yield* shared
          const behind = new URL(url)
          const proxy = yield* HalfOpenProxy.make({ port: Number(behind.port) })
          behind.port = String(proxy.port)
          yield* worker("deaf", { DEADMAN_DATABASE_URL: behind.href })
          yield* ended(yield* submit(api, [{ type: "noop" }]))
          // Since when they last listened: one that was asked for an answer shows that question.
          const listening = rows<{ pid: number }>(`SELECT pid ${ours} AND query LIKE 'LISTEN%'`)
          yield* rows(`SELECT pg_terminate_backend(pid) ${ours} AND query LIKE 'LISTEN%'`)
          const after = yield* submit(api, [{ type: "noop" }])
          yield* ended(after, "4 seconds")
          yield* Processes.eventually("both listen again", Effect.map(listening, ({ length }) => length === 2))
          const before = new Set((yield* listening).map(({ pid }) => pid))
          yield* proxy.halfOpen
          const later = yield* submit(api, [{ type: "noop" }])
          yield* ended(later)
          assert.deepInclude((yield* jobs(later))[0], { attempts: 0, losses: 0 })
          // To the server the dead one looks as alive as any.
          yield* Processes.eventually(
            "another one listens",
            Effect.map(listening, (all) => all.some(({ pid }) => !before.has(pid))),
            "60 seconds"
          )
        }),
      180_000
    )

    it.effect(
      "74: a server that is read-only for a while answers 503, and no job fails of it",
      () =>
        Effect.gen(function*() {
          const { clean, ended, running, rows, shared, submit, worker } = yield* Stage
          const { api } = yield* shared
          yield* worker("a")
          const ids = yield* submit(api, Array.from({ length: 4 }, () => ({ type: "sleep", payload: 2_000 })))
          yield* running(ids)
          const readOnly = Effect.fnUntraced(function*(value: string) {
            yield* rows(`ALTER SYSTEM SET default_transaction_read_only = ${value}`)
            yield* rows(`SELECT pg_reload_conf()`)
          })
          yield* readOnly("on")
          const statuses = new Set<string>()
          for (let n = 0; n < 2; n++) {
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
          assert.lengthOf(yield* rows(`SELECT 1 FROM deadman.job WHERE losses_counted > 0`), 0)
        }),
      180_000
    )

    it.effect(
      "99: a server that was demoted and closed no connection is left for the one that takes writes",
      () =>
        Effect.gen(function*() {
          const { clean, ended, ready, rows, shared, submit, worker } = yield* Stage
          const one = yield* shared
          const { api } = one
          yield* worker("a")
          yield* ended(yield* submit(api, [{ type: "noop" }]))
          const [here] = yield* rows<{ name: string }>(`SELECT quote_ident(current_database()) AS name`)
          // Whoever connects from now on gets a session that takes no writes, and keeps it when others get a better one.
          yield* rows(`ALTER DATABASE ${here?.name} SET default_transaction_read_only = on`)
          yield* rows(`SELECT pg_terminate_backend(pid) ${ours}`)
          yield* Processes.eventually(
            "no job is taken",
            Effect.map(api.send("POST", "/jobs", { type: "noop" }), ({ status }) => status === 503)
          )
          yield* Effect.sleep("3 seconds")
          yield* rows(`ALTER DATABASE ${here?.name} RESET default_transaction_read_only`)
          yield* ready(one)
          const ids = yield* submit(api, Array.from({ length: 40 }, () => ({ type: "sleep", payload: 10 })))
          yield* ended(ids)
          yield* clean(ids)
        }),
      180_000
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
        yield* ended(ids)
        yield* clean(ids)
        for (const one of [program, crew]) {
          assert.notMatch(one.output(), /57014|canceling statement/)
        }
      }), 180_000)
  }
)
