/** The fault catalogue, chapter I: stopping, with the built programs. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Random } from "effect"
import * as Processes from "../support/Processes.ts"
import { layer, Stage } from "./Stage.ts"

it.layer(layer({ DEADMAN_MAX_LEASE_LOSSES: "100" }), { excludeTestServices: true, timeout: "2 minutes" })(
  "fault catalogue, shutdown",
  (it) => {
    it.effect(
      "80: a worker that is told to stop lets short jobs finish and hands the long one back at once",
      () =>
        Effect.gen(function*() {
          const { clean, ended, jobs, running, server, submit, worker } = yield* Stage
          const { api } = yield* server()
          const one = yield* worker("a", { DEADMAN_DRAIN_MS: "3500" })
          const short = yield* submit(api, Array.from({ length: 3 }, () => ({ type: "sleep", payload: 2_000 })))
          const long = yield* submit(api, [{ type: "sleep", payload: 30_000 }])
          yield* running([...short, ...long])
          yield* one.signal("SIGTERM")
          const late = yield* submit(api, [{ type: "sleep", payload: 10 }])
          assert.strictEqual(yield* one.exit("8 seconds"), 0)
          yield* clean(short, 1)
          assert.deepInclude((yield* jobs(long))[0], { state: 0, attempts: 0, losses: 0 })
          assert.deepInclude((yield* jobs(late))[0], { state: 0, deliveries: 0 })
          yield* api.send("DELETE", `/jobs/${long[0]}`)
          yield* worker("b")
          yield* ended(late)
        }),
      180_000
    )

    it.effect(
      "81: a second signal ends at once, and a kill at any moment of a drain loses nothing",
      () =>
        Effect.gen(function*() {
          const { clean, ended, jobs, server, submit, worker } = yield* Stage
          const { api } = yield* server({ DEADMAN_MAX_LEASE_LOSSES: "100" })
          const all: Array<string> = []
          for (let round = 0; round < 4; round++) {
            const one = yield* worker(`drained-${round}`, { DEADMAN_DRAIN_MS: "3000" })
            const ids = yield* submit(api, Array.from({ length: 4 }, () => ({ type: "ignoresAbort", payload: 800 })))
            all.push(...ids)
            yield* Processes.eventually(
              "it runs some",
              Effect.map(jobs(all), (found) => found.some(({ worker }) => worker?.startsWith(`drained-${round}-`)))
            )
            yield* one.signal("SIGTERM")
            yield* Effect.sleep(yield* Random.nextIntBetween(300, 1_500))
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
      180_000
    )

    it.effect(
      "84: requests in flight when the server stops are answered or refused, and one job a key remains",
      () =>
        Effect.gen(function*() {
          const { rows, server } = yield* Stage
          const first = yield* server()
          const second = yield* server()
          const statuses = new Map<number, number>()
          /** Requests that are not answered yet, and how the others were. */
          const open = new Set<string>()
          const answered = new Map<string, number>()
          const posting = yield* Effect.forkChild(Effect.forEach(
            Array.from({ length: 100 }, (_, client) => client),
            (client) =>
              Effect.forEach(Array.from({ length: 12 }, (_, n) => n), (n) =>
                Effect.gen(function*() {
                  const name = `client-${client}-${n}`
                  const key = { "idempotency-key": name }
                  const body = { type: "parked", payload: { client, n } }
                  open.add(name)
                  const answer = yield* first.api.send("POST", "/jobs", body, key)
                  open.delete(name)
                  answered.set(name, answer.status)
                  statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1)
                  let again = yield* second.api.send("POST", "/jobs", body, key)
                  // The store is held for a moment.
                  while (again.status === 503) {
                    yield* Effect.sleep("100 millis")
                    again = yield* second.api.send("POST", "/jobs", body, key)
                  }
                  assert.include([200, 201], again.status)
                  if (answer.status === 201) {
                    assert.strictEqual(again.body.id, answer.body.id)
                  }
                })),
            { concurrency: "unbounded" }
          ))
          yield* Processes.eventually("some are answered", Effect.sync(() => (statuses.get(201) ?? 0) > 100))
          // So that many are in flight, for longer than the rest of the stop takes.
          yield* Effect.forkChild(
            rows(`DO $$ BEGIN LOCK TABLE deadman.body IN EXCLUSIVE MODE; PERFORM pg_sleep(1); END $$`)
          )
          yield* Processes.eventually(
            "the store is held, and many wait for the first server",
            Effect.map(
              rows(`SELECT 1 FROM pg_locks WHERE relation = 'deadman.body'::regclass AND NOT granted`),
              ({ length }) => length > 0 && open.size > 10
            )
          )
          const asked = Array.from(open)
          yield* first.program.signal("SIGTERM")
          assert.strictEqual(yield* first.program.exit("12 seconds"), 0)
          yield* Fiber.join(posting)
          // Whoever had asked before the signal was told something.
          assert.deepStrictEqual(asked.filter((name) => answered.get(name) === 0), [])
          // 0: the connection was closed. Nothing else may happen to anybody.
          for (const status of statuses.keys()) {
            assert.include([0, 201, 503], status)
          }
          const [count] = yield* rows<{ n: number }>(
            `SELECT count(*)::int AS n FROM deadman.job j JOIN deadman.route r ON r.id = j.route WHERE r.type = 'parked'`
          )
          assert.strictEqual(count?.n, 1_200)
        }),
      180_000
    )
  }
)
