import { assert, it } from "@effect/vitest"
import { Clock, Effect, Fiber, Layer, Queue, Redacted } from "effect"
import * as DatabaseLanes from "../../../src/adapters/postgres/Database.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Ids from "../../support/Ids.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const layerWith = (wake: boolean) =>
  Layer.provideMerge(JobStorePostgres.layer({ wake, keyTtlMs: 60_000 }), Postgres.layer)

/** What `body` makes the store say on the channel of wakes. */
const said = Effect.fnUntraced(function*<E, R>(body: Effect.Effect<unknown, E, R>) {
  const database = yield* DatabaseLanes.Database
  const { notifications } = yield* database.listen("deadman_wake")
  yield* body
  yield* Rows.query(`SELECT pg_notify('deadman_wake', 'end')`)
  const payloads: Array<string> = []
  while (payloads.at(-1) !== "end") {
    payloads.push((yield* Queue.take(notifications)).payload)
  }
  return payloads.slice(0, -1)
}, Effect.scoped)

it.layer(layerWith(true), { excludeTestServices: true, timeout: "2 minutes" })("JobStorePostgres, waking", (it) => {
  it.effect("a cancel of a running job names the claim, and one of a waiting job wakes nobody", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const { epoch, id, lease } = yield* Rows.freshClaim
      assert.deepStrictEqual(yield* said(store.cancel(id)), [`v:${lease}:${epoch}:${id}`])
      const waiting = Ids.jobId()
      yield* Rows.pending([{ id: waiting }])
      assert.deepStrictEqual(yield* said(store.cancel(waiting)), [])
      assert.deepStrictEqual(yield* said(store.cancel(waiting)), [])
    }))

  it.effect("what becomes ready wakes the workers, once a statement, and nothing else does", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const [later, failing, done] = [Ids.jobId(), Ids.jobId(), Ids.jobId()]
      yield* Rows.pending([{ id: later, waitMs: 4_000_000_000_000 }, { id: failing }, { id: done }])
      yield* Rows.claim([failing])
      yield* Rows.fail([failing], 600_000)
      yield* Rows.end([done], "completed")
      assert.deepStrictEqual(yield* said(store.promote(10)), [])
      assert.deepStrictEqual(yield* said(store.retry(later)), ["r"])
      assert.deepStrictEqual(yield* said(store.retry(failing)), ["r"])
      assert.deepStrictEqual(yield* said(store.retry(done)), [])
      const as = Ids.jobId()
      assert.deepStrictEqual(yield* said(store.resubmit(done, as)), ["r"])
      assert.deepStrictEqual(yield* said(store.resubmit(done, as)), [])
      yield* Rows.pending([{ id: Ids.jobId(), waitMs: 1 }, { id: Ids.jobId(), waitMs: 2 }])
      assert.deepStrictEqual(
        yield* said(Effect.tap(store.promote(10), ({ announced }) =>
          Effect.sync(() => {
            assert.isTrue(announced)
          }))),
        ["r"]
      )
    }))
})

it.layer(layerWith(false), { excludeTestServices: true, timeout: "2 minutes" })("JobStorePostgres, control", (it) => {
  it.effect("where somebody else wakes, the store says nothing", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const { id } = yield* Rows.freshClaim
      yield* Rows.pending([{ id: Ids.jobId(), waitMs: 1 }])
      assert.deepStrictEqual(
        yield* said(Effect.all([
          store.cancel(id),
          Effect.tap(store.promote(10), ({ announced, jobs }) =>
            Effect.sync(() => {
              assert.isFalse(announced)
              assert.lengthOf(jobs, 1)
            }))
        ])),
        []
      )
    }))

  it.effect("a job that somebody locks is answered in time, and is as it was", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const database = yield* DatabaseLanes.Database
      const claim = yield* Rows.freshClaim
      const waiting = Ids.jobId()
      yield* Rows.pending([{ id: waiting }])
      yield* Rows.end([(yield* Rows.freshClaim).id], "completed")
      const since = yield* Clock.currentTimeMillis
      const errors = yield* database.transaction("handler", (session) =>
        Effect.andThen(
          session.query(`SELECT id FROM deadman.job WHERE id IN ('${claim.id}', '${waiting}') FOR UPDATE`),
          Effect.all([
            Effect.flip(store.cancel(claim.id)),
            Effect.flip(store.cancel(waiting)),
            Effect.flip(store.retry(waiting))
          ], { concurrency: "unbounded" })
        ))
      assert.isBelow((yield* Clock.currentTimeMillis) - since, 5_000)
      for (const error of errors) {
        assert.strictEqual(error._tag, "JobStoreUnavailable")
      }
      const jobs = yield* store.get([claim.id, waiting])
      assert.sameMembers(jobs.map(({ state }) => state), ["running", "pending"])
      assert.isTrue(jobs.every(({ events }) => events.length === 0))
      const [lease] = yield* Rows.query(`SELECT revoked FROM deadman.lease WHERE id = $1::uuid`, [claim.lease])
      assert.isNull(lease?.["revoked"])
    }))

  it.effect("a cancel that finds the claim gone by then ends the job that is there now", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      for (let round = 0; round < 20; round++) {
        const claim = yield* Rows.freshClaim
        const record = (yield* store.look).leases.find(({ lease }) => lease === claim.lease)!
        const [, cancelled] = yield* Effect.all([
          store.reclaim([record], { counted: true, lossesMax: 5 }),
          store.cancel(claim.id)
        ], { concurrency: 2 })
        assert.strictEqual(cancelled._tag, "Cancelled")
        const [job] = yield* store.get([claim.id])
        assert.strictEqual(job?.state === "dead" ? job.reason : job?.state, "cancelled")
      }
      assert.deepStrictEqual(yield* Rows.untallied, [])
    }))

  it.effect("a cancel behind whose back the job was claimed anew cuts off the claim that is there then", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const database = yield* DatabaseLanes.Database
      const { id, lease } = yield* Rows.freshClaim
      const next = Ids.leaseId()
      yield* Rows.leases([next], 5_000, [id])
      const cancelling = yield* database.transaction("handler", (session) =>
        Effect.gen(function*() {
          // What a reclaim and the next claim leave behind, at once.
          yield* session.query(`DELETE FROM deadman.lease WHERE id = $1::uuid`, [lease])
          yield* session.query(
            `UPDATE deadman.job SET epoch = 2, deliveries = 2, lease = $2::uuid, lost_epochs = '{1}' WHERE id = $1::uuid`,
            [id, next]
          )
          const cancelling = yield* Effect.forkDetach(store.cancel(id))
          yield* eventually(
            "the cancel waits for the lease that it saw",
            Effect.map(
              database.query<{ readonly n: number }>(
                "read",
                `SELECT count(*)::int AS n FROM pg_stat_activity
                 WHERE wait_event_type = 'Lock' AND datname = current_database()`
              ),
              ([row]) => row?.n === 1
            )
          )
          return cancelling
        }))
      const cancelled = yield* Fiber.join(cancelling)
      assert.deepStrictEqual(cancelled._tag === "Cancelled" ? cancelled.cutOff : cancelled, { lease: next, epoch: 2 })
      assert.deepStrictEqual(
        yield* Rows.query(
          `SELECT revoked -> 0 ->> 'id' AS id, (revoked -> 0 -> 'epoch')::int AS epoch FROM deadman.lease
           WHERE id = $1::uuid`,
          [next]
        ),
        [{ id, epoch: 2 }]
      )
      assert.deepStrictEqual(yield* Rows.untallied, [])
    }))
})

it.live("an error of a store that is away says neither where it is nor what was asked", () =>
  Effect.gen(function*() {
    const store = yield* JobStore
    const id = Ids.jobId()
    const errors = yield* Effect.forEach(
      [
        store.get([id]),
        store.list({ limit: 1, offset: 0, tag: "secret-tag" }),
        store.counts,
        store.now,
        store.cancel(id),
        store.retry(id),
        store.resubmit(id, Ids.jobId()),
        store.promote(1),
        store.deadLetters(1),
        store.prune({ completedMs: 1, deadMs: 1, limit: 1 })
      ],
      (operation) => Effect.flip(operation as Effect.Effect<unknown, { readonly message: string }>)
    )
    for (const error of errors) {
      const text = `${String(error)} ${error.message} ${JSON.stringify(error)}`
      for (const secret of ["hunter2", "SELECT", "UPDATE", "secret-tag", id]) {
        assert.notInclude(text, secret)
      }
    }
  }).pipe(
    Effect.provide(Layer.provide(
      JobStorePostgres.layer({ wake: false, keyTtlMs: 1 }),
      DatabaseLanes.layer({ url: Redacted.make("postgres://deadman:hunter2@127.0.0.1:1/deadman") })
    ))
  ), 30_000)
