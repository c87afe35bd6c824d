/** The fault catalogue, chapter C: claims and leases, with the built programs. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Processes from "../support/Processes.ts"
import { layer, Stage } from "./Stage.ts"

const sleeps = (n: number, payload: number) => Array.from({ length: n }, () => ({ type: "sleep", payload }))

it.layer(layer(), { excludeTestServices: true, timeout: "2 minutes" })("fault catalogue, claims and leases", (it) => {
  it.effect(
    "14: a handler that blocks its process for three leases takes no other job with it",
    () =>
      Effect.gen(function*() {
        const { clean, ended, jobs, shared, submit, worker } = yield* Stage
        const { api } = yield* shared
        const first = yield* worker("blocked")
        const others = yield* submit(api, sleeps(3, 2_500))
        const blocks = yield* submit(api, [{ type: "block", payload: 3_000 }])
        yield* Processes.eventually("it is claimed", Effect.map(jobs(blocks), ([job]) => (job?.deliveries ?? 0) > 0))
        const second = yield* worker("other")
        yield* ended([...others, ...blocks])
        yield* clean(others)
        const [culprit] = yield* jobs(blocks)
        assert.strictEqual(culprit?.attempts, 0)
        assert.strictEqual(culprit?.losses, (culprit?.deliveries ?? 0) - (culprit?.state === 3 ? 1 : 0))
        assert.isTrue(first.alive() && second.alive())
      }),
    180_000
  )

  it.effect(
    "14: offloaded to a thread it blocks for three leases, and neither it nor a neighbour loses one",
    () =>
      Effect.gen(function*() {
        const { ended, jobs, shared, submit, worker } = yield* Stage
        const { api } = yield* shared
        const env = {
          DEADMAN_LEASE_MS: "2000",
          DEADMAN_HANDLERS: "built-in test/support/handlers/offloaded.ts"
        }
        const program = yield* worker("threads", env)
        const ids = [
          ...(yield* submit(api, sleeps(3, 5_000))),
          ...(yield* submit(api, [{ type: "crunch", payload: { do: "block", ms: 6_500 } }]))
        ]
        yield* ended(ids)
        for (const job of yield* jobs(ids)) {
          assert.deepInclude(job, { state: 3, attempts: 0, deliveries: 1, losses: 0 })
        }
        assert.isTrue(program.alive())
      }),
    180_000
  )

  it.effect(
    "26: a worker that freezes in its handler's transaction holds up no other run, and its effect is not kept",
    () =>
      Effect.gen(function*() {
        const { ended, jobs, rows, running, shared, submit, worker } = yield* Stage
        const { api } = yield* shared
        yield* rows("CREATE TABLE IF NOT EXISTS public.ledger (account text, amount int)")
        const env = { DEADMAN_HANDLERS: "built-in test/support/handlers/ledger.ts" }
        const first = yield* worker("frozen", env)
        const ids = yield* submit(api, [{ type: "deposit", payload: { account: "ada", amount: 7, holds_ms: 60_000 } }])
        yield* running(ids)
        // The line is sent after the INSERT, and the transaction stays open.
        yield* Processes.eventually(
          "it is in its transaction",
          Effect.map(api.send("GET", `/jobs/${ids[0]}`), ({ body }) => body.logs.length > 0)
        )
        yield* first.signal("SIGSTOP")
        yield* worker("successor", env)
        yield* ended(ids)
        yield* first.signal("SIGCONT")
        const [job] = yield* jobs(ids)
        assert.deepInclude(job, { state: 3, attempts: 0, deliveries: 2, losses: 1 })
        const { body } = yield* api.send("GET", `/jobs/${ids[0]}`)
        assert.deepStrictEqual(body.result, { balance: 7 })
        yield* first.signal("SIGTERM")
        assert.strictEqual(yield* first.exit("15 seconds"), 0)
        assert.deepStrictEqual(yield* rows("SELECT amount FROM public.ledger"), [{ amount: 7 }])
      }),
    180_000
  )

  it.effect(
    "15: a worker that wakes past its lease neither keeps it nor ends the new one",
    () =>
      Effect.gen(function*() {
        const { jobs, rows, running, shared, submit, worker } = yield* Stage
        const { api } = yield* shared
        const first = yield* worker("sleeper")
        const ids = yield* submit(api, sleeps(1, 60_000))
        yield* running(ids)
        yield* first.signal("SIGSTOP")
        yield* worker("successor")
        yield* Processes.eventually("another has it", Effect.map(jobs(ids), ([job]) => job?.deliveries === 2))
        const lease = () =>
          rows<{ lease: string; token: string; worker: string }>(
            `SELECT l.id::text AS lease, l.token::text, l.worker FROM deadman.lease l JOIN deadman.job j ON j.lease = l.id
           WHERE j.id = '${ids[0]}'`
          )
        const [held] = yield* lease()
        yield* first.signal("SIGCONT")
        yield* Effect.sleep("1 second")
        yield* first.signal("SIGTERM")
        assert.strictEqual(yield* first.exit("15 seconds"), 0)
        const [after] = yield* lease()
        assert.strictEqual(after?.lease, held?.lease)
        assert.isTrue(after?.worker.startsWith("successor"))
        const [job] = yield* jobs(ids)
        assert.strictEqual(job?.state, 1)
        assert.strictEqual(job?.deliveries, 2)
        yield* api.send("DELETE", `/jobs/${ids[0]}`)
      }),
    180_000
  )

  it.effect(
    "17: a worker that restarts under its name does not keep its predecessor's jobs",
    () =>
      Effect.gen(function*() {
        const { jobs, running, shared, submit, worker } = yield* Stage
        const { api } = yield* shared
        const env = { DEADMAN_WORKER_THREADS: "1" }
        const first = yield* worker("phoenix", env)
        const ids = yield* submit(api, sleeps(1, 60_000))
        yield* running(ids)
        const atMs = Date.now()
        yield* first.signal("SIGKILL")
        const second = yield* worker("phoenix", env)
        yield* Processes.eventually("there is a slot", Effect.sync(() => second.output().includes("worker is up")))
        const upMs = Date.now()
        yield* Processes.eventually("it runs again", Effect.map(jobs(ids), ([job]) => job?.deliveries === 2))
        // A lease and 2 s from the kill on; where the start took longer, which is nobody's promise, 2 s from there.
        assert.isBelow((yield* jobs(ids))[0]!.started, Math.max(atMs + 3_500, upMs + 2_000))
        yield* api.send("DELETE", `/jobs/${ids[0]}`)
      }),
    180_000
  )

  it.effect("20: an orphan behind a thousand healthy leases is found", () =>
    Effect.gen(function*() {
      const { jobs, rows, shared, submit, worker } = yield* Stage
      const { api } = yield* shared
      const first = yield* worker("victim")
      // Healthy ones, as a thousand other workers would have them: renewed all the time, sorting before and behind.
      yield* rows(`INSERT INTO deadman.lease (id, claimed_at_ms, seen_at_ms, lease_ms, worker, job_ids)
        SELECT gen_random_uuid(), 0, 0, 10000, 'healthy', '{}' FROM generate_series(1, 1000)`)
      yield* Effect.forkChild(Effect.forever(Effect.andThen(
        rows(`UPDATE deadman.lease SET token = token + 1 WHERE worker = 'healthy'`),
        Effect.sleep("200 millis")
      )))
      yield* Effect.sleep("1 second")
      const ids = yield* submit(api, sleeps(1, 20_000))
      yield* Processes.eventually("it runs", Effect.map(jobs(ids), ([job]) => job?.deliveries === 1))
      const atMs = performance.now()
      yield* first.signal("SIGKILL")
      yield* Processes.eventually("it is taken back", Effect.map(jobs(ids), ([job]) => job?.losses === 1))
      assert.isBelow(performance.now() - atMs, 4_000)
      const [left] = yield* rows<{ n: number }>(
        `SELECT count(*)::int AS n FROM deadman.lease WHERE worker = 'healthy'`
      )
      assert.strictEqual(left?.n, 1_000)
      yield* rows(`DELETE FROM deadman.lease WHERE worker = 'healthy'`)
      yield* api.send("DELETE", `/jobs/${ids[0]}`)
    }), 180_000)
})
