/** The fault catalogue, chapter I: stopping, starting and telling how it is, with the built programs. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Random } from "effect"
import * as ApiClient from "../support/ApiClient.ts"
import * as Processes from "../support/Processes.ts"
import { layer, Stage } from "./Stage.ts"

const probe = "DEADMAN_METRICS_PORT"

it.layer(layer(), { excludeTestServices: true, timeout: "60 seconds" })("fault catalogue, shutdown", (it) => {
  it.effect(
    "80: a worker that is told to stop lets short jobs finish and hands the long one back at once",
    () =>
      Effect.gen(function*() {
        const { clean, ended, jobs, running, server, submit, worker } = yield* Stage
        const { api } = yield* server()
        const one = yield* worker("a", { DEADMAN_DRAIN_MS: "1500" })
        const short = yield* submit(api, Array.from({ length: 3 }, () => ({ type: "sleep", payload: 900 })))
        const long = yield* submit(api, [{ type: "sleep", payload: 30_000 }])
        yield* running([...short, ...long])
        yield* one.signal("SIGTERM")
        const late = yield* submit(api, [{ type: "sleep", payload: 10 }])
        assert.strictEqual(yield* one.exit("6 seconds"), 0)
        yield* clean(short, 1)
        assert.deepInclude((yield* jobs(long))[0], { state: 0, attempts: 0, losses: 0 })
        assert.deepInclude((yield* jobs(late))[0], { state: 0, deliveries: 0 })
        yield* api.send("DELETE", `/jobs/${long[0]}`)
        yield* worker("b")
        yield* ended(late)
      }),
    60_000
  )

  it.effect(
    "81: a second signal ends at once, and a kill at any moment of a drain loses nothing",
    () =>
      Effect.gen(function*() {
        const { clean, ended, running, server, submit, worker } = yield* Stage
        const { api } = yield* server({ DEADMAN_MAX_LEASE_LOSSES: "100" })
        const all: Array<string> = []
        for (let round = 0; round < 6; round++) {
          const one = yield* worker(`drained-${round}`, { DEADMAN_DRAIN_MS: "3000" })
          const ids = yield* submit(api, Array.from({ length: 4 }, () => ({ type: "ignoresAbort", payload: 1_200 })))
          all.push(...ids)
          yield* running(ids.slice(0, 1))
          yield* one.signal("SIGTERM")
          yield* Effect.sleep(yield* Random.nextIntBetween(300, 2_000))
          if (round % 2 === 0) {
            yield* one.signal("SIGKILL")
          } else if (one.alive()) {
            yield* one.signal("SIGTERM")
            assert.include([143, 0], yield* one.exit("2 seconds"))
          }
        }
        yield* worker("heir", { DEADMAN_WORKER_THREADS: "12" })
        yield* ended(all)
        yield* clean(all)
      }),
    60_000
  )

  it.effect(
    "82, 87: every program exits within its grace, also with Postgres frozen, gone, or not there yet",
    () =>
      Effect.gen(function*() {
        const { base, postgres, server, worker } = yield* Stage
        const leave = Effect.fnUntraced(function*(what: string, crew: ReadonlyArray<Processes.Program>) {
          yield* Effect.forEach(crew, (one) => one.signal("SIGTERM"), { discard: true })
          for (const one of crew) {
            assert.strictEqual(yield* one.exit("15 seconds"), 0, `${what}: ${one.output().slice(-500)}`)
          }
        })
        const crew = Effect.gen(function*() {
          const { program } = yield* server()
          const port = yield* Processes.freePort
          const one = yield* worker("idle", { [probe]: String(port) })
          const metrics = ApiClient.make(port)
          yield* Processes.eventually(
            "it is up",
            Effect.map(metrics.send("GET", "/metrics"), ({ status }) => status === 200)
          )
          return [program, one]
        })
        yield* leave("all well", yield* crew)
        const frozen = yield* crew
        yield* postgres.freeze
        yield* leave("frozen", frozen).pipe(Effect.ensuring(Effect.orDie(postgres.thaw)))
        const orphaned = yield* crew
        yield* postgres.stopImmediate
        yield* leave("gone", orphaned)
        // What was started while it was away waits, and comes up by itself.
        const waiting = yield* Processes.start("worker", { ...base, DEADMAN_WORKER_NAME: "early" })
        const impatient = yield* Processes.start("worker", { ...base, DEADMAN_WORKER_NAME: "impatient" })
        for (const one of [waiting, impatient]) {
          yield* Processes.eventually("it waits", Effect.sync(() => one.output().includes("waiting for the database")))
        }
        yield* leave("waiting", [impatient])
        yield* postgres.start
        yield* Processes.eventually(
          () => `it comes up: ${waiting.output()}`,
          Effect.sync(() => waiting.output().includes("worker is up"))
        )
      }),
    90_000
  )

  it.effect(
    "84: requests in flight when the server stops are answered or refused, and one job a key remains",
    () =>
      Effect.gen(function*() {
        const { rows, server } = yield* Stage
        const first = yield* server()
        const second = yield* server()
        const statuses = new Map<number, number>()
        const posting = yield* Effect.forkChild(Effect.forEach(
          Array.from({ length: 100 }, (_, client) => client),
          (client) =>
            Effect.forEach(Array.from({ length: 12 }, (_, n) => n), (n) =>
              Effect.gen(function*() {
                const key = { "idempotency-key": `client-${client}-${n}` }
                const body = { type: "parked", payload: { client, n } }
                const answer = yield* first.api.send("POST", "/jobs", body, key)
                statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1)
                const again = yield* second.api.send("POST", "/jobs", body, key)
                assert.include([200, 201], again.status)
                if (answer.status === 201) {
                  assert.strictEqual(again.body.id, answer.body.id)
                }
              })),
          { concurrency: "unbounded" }
        ))
        yield* Effect.sleep("700 millis")
        yield* first.program.signal("SIGTERM")
        assert.strictEqual(yield* first.program.exit("12 seconds"), 0)
        yield* Fiber.join(posting)
        // 0: the connection was closed. Nothing else may happen to anybody.
        for (const status of statuses.keys()) {
          assert.include([0, 201, 503], status)
        }
        assert.isAbove(statuses.get(201) ?? 0, 0)
        const [count] = yield* rows<{ n: number }>(
          `SELECT count(*)::int AS n FROM deadman.job j JOIN deadman.route r ON r.id = j.route WHERE r.type = 'parked'`
        )
        assert.strictEqual(count?.n, 1_200)
      }),
    60_000
  )

  it.effect("85: a type that no worker knows waits untouched for one that does", () =>
    Effect.gen(function*() {
      const { ended, jobs, server, submit, worker } = yield* Stage
      const { api } = yield* server()
      const old = { DEADMAN_HANDLERS: "built-in" }
      yield* worker("old", old)
      const ids = yield* submit(api, [{ type: "greets", payload: "you" }])
      yield* ended(yield* submit(api, [{ type: "noop" }]))
      yield* Effect.sleep("2 seconds")
      assert.deepInclude((yield* jobs(ids))[0], { state: 0, deliveries: 0, attempts: 0 })
      yield* worker("new", { DEADMAN_HANDLERS: "test/support/handlers/typed.ts" })
      yield* ended(ids)
      assert.deepInclude((yield* jobs(ids))[0], { state: 3, deliveries: 1 })
    }), 60_000)

  it.effect(
    "86: alive while Postgres is away or frozen, but not ready, and ready again by itself",
    () =>
      Effect.gen(function*() {
        const { postgres, ready, server, worker } = yield* Stage
        const one = yield* server()
        const port = yield* Processes.freePort
        yield* worker("a", { [probe]: String(port) })
        for (
          const [leave, back] of [[postgres.freeze, postgres.thaw], [postgres.stopImmediate, postgres.start]] as const
        ) {
          yield* leave
          yield* Processes.eventually(
            "it says why it is not ready",
            Effect.map(one.api.send("GET", "/ready"), ({ body, status }) => status === 503 && body.reasons.length > 0)
          )
          assert.strictEqual((yield* one.api.send("GET", "/health")).status, 200)
          yield* back
          yield* ready(one)
        }
      }),
    60_000
  )
})
