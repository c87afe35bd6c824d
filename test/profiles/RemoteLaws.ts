/** The laws of `Laws.ts` that concern workers over HTTP. */
import { assert } from "@effect/vitest"
import { Clock, Effect, Fiber } from "effect"
import * as Processes from "../support/Processes.ts"
import { daily, ids, law, type Laws, prompt } from "./System.ts"

export const laws: Laws = {
  "workers over HTTP and others share the jobs of a type, and each job runs once": law(
    ({ api, ask, ended, jobs, one, report, two }) =>
      Effect.gen(function*() {
        // Without a limit Deadman's own worker would take them all at once.
        assert.strictEqual((yield* api.send("PUT", "/queues/shared", { concurrency: 3 })).status, 200)
        const of = { types: ["sleep"], queues: ["shared"], limit: 3, wait_ms: 500 }
        let waited = 0
        const taken: Array<string> = []
        const guests = yield* Effect.forEach([one.api, two.api, one.api], (server, n) =>
          Effect.forkScoped(Effect.forever(Effect.gen(function*() {
            const claim = yield* ask(server, { ...of, worker: `guest-${n}` })
            taken.push(...claim.claims.map(({ job }: { job: { id: string } }) =>
              job.id
            ))
            if (claim.claims.length > 0) {
              yield* Effect.sleep("20 millis")
              yield* report(server, claim)
            } else waited += 1
          }))))
        yield* Processes.eventually("all of them wait, and the limit is known by then", Effect.sync(() => waited >= 6))
        const body = Array.from({ length: 150 }, () => ({ type: "sleep", payload: 60, queue: "shared" }))
        const batch = yield* api.send("POST", "/jobs/batch", body)
        assert.strictEqual(batch.status, 201)
        const all = ids(batch.body.jobs)
        yield* ended(all)
        yield* Fiber.interruptAll(guests)
        assert.isTrue((yield* jobs(all)).every(({ deliveries, state }) => state === 3 && deliveries === 1))
        assert.strictEqual(new Set(taken).size, taken.length)
        assert.isAbove(taken.length, 0, "both took some")
        assert.isBelow(taken.length, 150, "both took some")
      })
  ),

  "an outcome over HTTP counts under the current claim only, at any server": law(
    ({ ask, job, one, report, submit, two }) =>
      Effect.gen(function*() {
        const id = yield* submit({ type: "fenced" })
        const first = yield* ask(one.api, { types: ["fenced"], lease_ms: 1_000, worker: "first" })
        assert.deepStrictEqual(ids(first.claims.map(({ job }: { job: { id: string } }) => job)), [id])
        // Nobody renews it.
        const second = yield* ask(two.api, { types: ["fenced"], worker: "second" })
        assert.deepStrictEqual([second.claims[0].job.id, second.claims[0].epoch], [id, 2])
        assert.deepInclude(yield* report(two.api, first), { settled: [], stale: [id] })
        const beat = { worker: "first", leases: [first.lease, second.lease] }
        const held = yield* one.api.send("POST", "/workers/heartbeats", beat)
        assert.deepInclude(held.body, { held: [second.lease], lost: [first.lease] })
        assert.deepInclude(yield* report(one.api, second), { settled: [id], stale: [] })
        const found = yield* job(id)
        assert.deepInclude(found, { state: "completed", worker: "second", lease_losses: 1, stale_writes: 1 })
      })
  ),

  "a limit holds for a worker over HTTP, at however many servers it claims at once": law(
    ({ ask, one, report, send, submit, two }) =>
      Effect.gen(function*() {
        yield* send("PUT", "/queues/few", { concurrency: 2 })
        yield* Effect.forEach(Array.from({ length: 60 }), () => submit({ type: "counted", queue: "few" }), {
          concurrency: 8
        })
        for (let round = 0; round < 8; round++) {
          const claims = yield* Effect.forEach(
            [one, two, one, two],
            ({ api }) => ask(api, { types: ["counted"], limit: 2, wait_ms: 0, worker: "everywhere" }),
            { concurrency: "unbounded" }
          )
          assert.lengthOf(claims.flatMap(({ claims }) => claims), 2, `round ${round}`)
          for (const claim of claims) {
            if (claim.claims.length > 0) {
              yield* report(one.api, claim)
            }
          }
        }
      })
  )
}

export const timedLaws: Laws = {
  "a worker over HTTP that waits is given a job at once, wherever it comes from": law(
    ({ ask, connection, job, one, report, send, submit, two }) =>
      Effect.gen(function*() {
        const client = yield* connection
        const type = "awaited"
        yield* send("PUT", "/schedules/awaited", { cron: yield* daily, type, paused: true })
        const elsewhere = (body: object) => two.api.send("POST", "/jobs", { type, ...body })
        const later = submit({ type, run_at_ms: 253_402_300_799_999 })
        const sources = {
          "its own server": submit({ type }),
          "another server": elsewhere({}),
          "a priority": elsewhere({ priority: 5 }),
          "a batch": two.api.send("POST", "/jobs/batch", [{ type }]),
          "SQL": Effect.promise(() => client.query(`SELECT deadman.submit('${type}', '1')`)),
          "a delay": elsewhere({ delay_ms: 50 }),
          "a time": Effect.flatMap(
            Clock.currentTimeMillis,
            (nowMs) => elsewhere({ run_at_ms: nowMs + 50 })
          ),
          "a retry": Effect.flatMap(later, (id) => two.api.send("POST", `/jobs/${id}/retry`)),
          "a schedule": two.api.send("POST", "/schedules/awaited/run")
        }
        for (const [name, source] of Object.entries(sources)) {
          const waited = Effect.gen(function*() {
            const asking = yield* Effect.forkChild(ask(one.api, { types: [type] }))
            // Until it has looked and waits: what it finds by its own look is no news.
            yield* Effect.sleep("250 millis")
            yield* source
            const claim = yield* Fiber.join(asking)
            assert.lengthOf(claim.claims, 1, name)
            yield* report(one.api, claim)
            // By the database's clock: how long this process waits for a core is no part of it.
            const { run_at_ms, started_at_ms } = yield* job(claim.claims[0].job.id)
            return started_at_ms - run_at_ms
          })
          yield* prompt(name, waited)
        }
      })
  )
}
