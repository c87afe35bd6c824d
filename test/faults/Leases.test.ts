/** The fault catalogue, chapter C: what runs under a lease, with the built programs. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Random } from "effect"
import { heartbeatMs } from "../../src/domain/Watch.ts"
import * as Processes from "../support/Processes.ts"
import { layer, sink, Stage } from "./Stage.ts"

/** Of those whose heartbeats are timed: so long that a pause of the machine is little beside one. */
const timedLeaseMs = 4_000
const pings = 60

const sleeps = (n: number, payload: number) => Array.from({ length: n }, () => ({ type: "sleep", payload }))

it.layer(layer({ DEADMAN_MAX_LEASE_LOSSES: "100" }), { excludeTestServices: true, timeout: "2 minutes" })(
  "fault catalogue, running jobs",
  (it) => {
    it.effect(
      "26: a handler whose lease was taken stops within a heartbeat, and only the new one goes on",
      () =>
        Effect.gen(function*() {
          const { ended, jobs, manned, rows, running, server, submit, worker } = yield* Stage
          const { hits, url } = yield* sink
          const { api } = yield* server()
          const env = { DEADMAN_WORKER_THREADS: "1", DEADMAN_LEASE_MS: String(timedLeaseMs) }
          yield* worker("one", env)
          yield* worker("two", env)
          yield* manned
          const ids = yield* submit(api, [{ type: "http", payload: { url, pings, every_ms: 100 } }])
          yield* running(ids)
          yield* Processes.eventually("it pings", Effect.sync(() => hits.length > 5))
          // As a reaper that had watched it would.
          yield* rows(`WITH l AS (DELETE FROM deadman.lease RETURNING id)
        UPDATE deadman.job j SET state = 0, lease = NULL, losses = 1, rank = run_at_ms,
          lost_epochs = ARRAY[epoch] FROM l WHERE j.lease = l.id AND j.state = 1`)
          const takenMs = Date.now()
          yield* ended(ids)
          const last = Math.max(...hits.filter(({ delivery }) => delivery === 1).map(({ at_ms }) => at_ms))
          // As a part of the lease no more than it is of one of a second: 700 ms of those.
          assert.isBelow(last - takenMs, 3.5 * heartbeatMs(timedLeaseMs))
          assert.strictEqual(hits.filter(({ delivery }) => delivery === 2).length, pings)
          const [job] = yield* jobs(ids)
          assert.deepInclude(job, { state: 3, deliveries: 2, attempts: 0 })
        }),
      180_000
    )

    it.effect(
      "22: submits that wait on every connection that they have leave the heartbeats theirs",
      () =>
        Effect.gen(function*() {
          const { clean, ended, jobs, rows, running, server, submit } = yield* Stage
          const { api } = yield* server({ DEADMAN_WORKER_THREADS: "4", DEADMAN_STORE_POOL: "1" })
          const ids = yield* submit(api, sleeps(4, 7_000))
          yield* running(ids)
          let drawn = 0
          const parked = () => ({ type: "parked", idempotency_key: `flood-${drawn++}` })
          const many = Effect.suspend(() => api.send("POST", "/jobs/batch", Array.from({ length: 100 }, parked)))
          const one = Effect.suspend(() => api.send("POST", "/jobs", parked()))
          const flood = yield* Effect.forkChild(Effect.forEach(
            Array.from({ length: 32 }, (_, n) => n % 2 === 0 ? many : one),
            (send) => Effect.forever(send),
            { concurrency: "unbounded" }
          ))
          yield* rows(`DO $$ BEGIN LOCK TABLE deadman.key IN EXCLUSIVE MODE; PERFORM pg_sleep(5); END $$`)
          yield* Fiber.interrupt(flood)
          yield* ended(ids)
          yield* clean(ids, 1)
          assert.deepStrictEqual((yield* jobs(ids)).map(({ losses }) => losses), [0, 0, 0, 0])
        }),
      180_000
    )

    it.effect("28: each lease is judged by its own length, not by the reaper's", () =>
      Effect.gen(function*() {
        const { clean, ended, running, server, submit, worker } = yield* Stage
        const { api } = yield* server({ DEADMAN_LEASE_MS: "500" })
        const long = yield* worker("long", { DEADMAN_LEASE_MS: "10000" })
        const ids = yield* submit(api, sleeps(2, 2_000))
        yield* running(ids)
        yield* long.signal("SIGSTOP")
        yield* Effect.sleep("4 seconds")
        yield* long.signal("SIGCONT")
        yield* ended(ids)
        yield* clean(ids, 1)
      }), 180_000)

    it.effect(
      "29: workers killed in the middle of their claims lose nothing, and no slot",
      () =>
        Effect.gen(function*() {
          const { capacity, clean, ended, rows, server, submit, worker } = yield* Stage
          // A job that this many workers died with would be dead of it, and rightly so.
          const { api } = yield* server({ DEADMAN_MAX_LEASE_LOSSES: "100" })
          const all: Array<string> = []
          for (let round = 0; round < 12; round++) {
            const victim = yield* worker(`burst-${round}`, { DEADMAN_WORKER_THREADS: "8", DEADMAN_LEASE_MS: "500" })
            const ids = yield* submit(api, sleeps(16, 20))
            all.push(...ids)
            yield* Processes.eventually(
              "it claims",
              Effect.map(
                rows<{ n: number }>(`SELECT count(*)::int AS n FROM deadman.job WHERE worker LIKE 'burst-${round}-%'`),
                ([found]) => (found?.n ?? 0) > 0
              ),
              "60 seconds",
              "2 millis"
            )
            yield* Effect.sleep(yield* Random.nextIntBetween(0, 20))
            yield* victim.signal("SIGKILL")
          }
          yield* worker("heir", { DEADMAN_WORKER_THREADS: "8" })
          yield* ended(all)
          yield* clean(all)
          yield* capacity(api, 8)
        }),
      180_000
    )
  }
)
