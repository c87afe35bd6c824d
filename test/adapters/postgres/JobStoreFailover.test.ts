/**
 * A failover that forgot the newest commits, as the workers of before it see it.
 *
 * Simulated: the tables are copied at some instant and put back later, under connections that stay.
 */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import { Epoch } from "../../../src/domain/Claim.ts"
import type { NewJob } from "../../../src/domain/Job.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import {
  claimOf,
  idsOf,
  repeated,
  request,
  settlement,
  submittedAll,
  written
} from "../../contracts/JobStoreContractSteps.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const tables = ["route", "body", "job", "key", "lease", "journal", "tally"]

const remember = Effect.forEach(tables, (table) =>
  Effect.andThen(
    Rows.query(`DROP TABLE IF EXISTS public.old_${table}`),
    Rows.query(`CREATE TABLE public.old_${table} AS TABLE deadman.${table}`)
  ), { discard: true })

/** Everything since `remember` never happened. */
const failOver = Effect.flatMap(
  Database.Database,
  (database) =>
    database.transaction("read", (session) =>
      Effect.forEach(tables, (table) =>
        Effect.andThen(
          session.query(`DELETE FROM deadman.${table}`),
          session.query(
            `INSERT INTO deadman.${table} ${
              table === "route" ? "OVERRIDING SYSTEM VALUE" : ""
            } TABLE public.old_${table}`
          )
        ), { discard: true }))
)

const claimed = Effect.fnUntraced(function*(jobs: ReadonlyArray<NewJob>) {
  const store = yield* JobStore
  const asked = yield* request(jobs[0]!)
  const taken = yield* store.claim(asked)
  assert.deepStrictEqual(idsOf(taken).toSorted(), jobs.map(({ id }) => id).toSorted())
  return { lease: asked.lease, claims: taken.map((job) => claimOf(asked.lease, job)) }
})

const completed = (claims: ReadonlyArray<ReturnType<typeof claimOf>>) =>
  Effect.flatMap(
    JobStore,
    (store) => store.settle(claims.map((claim) => settlement(claim, "complete", { result: null })))
  )

const states = (jobs: ReadonlyArray<NewJob>) =>
  Effect.map(
    Rows.query(`SELECT state::int AS state FROM deadman.job WHERE id = ANY ($1::uuid[]) ORDER BY id`, [
      Database.uuids(jobs.map(({ id }) => id))
    ]),
    (rows) => rows.map((row) => row["state"])
  )

const layer = Layer.provideMerge(JobStorePostgres.layer({ wake: false, keyTtlMs: 60_000 }), Postgres.layer)

it.layer(layer, { excludeTestServices: true })("JobStorePostgres: failover", (it) => {
  it.effect("a settlement that was forgotten is written when it is sent again, and before that the job still runs", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const { claims, lease } = yield* claimed(yield* submittedAll(3))
      yield* remember
      assert.deepStrictEqual(yield* completed(claims), claims.map(() => written))
      yield* store.endLeases([lease])
      yield* failOver
      const [verified] = yield* store.verify([lease])
      assert.deepStrictEqual(
        verified?._tag === "Stands" ? verified.running : verified,
        claims.map(({ epoch, id }) => ({ id, epoch })).toSorted((a, b) => a.id < b.id ? -1 : 1)
      )
      assert.deepStrictEqual(yield* completed(claims), claims.map(() => written))
      assert.deepStrictEqual(yield* completed(claims), claims.map(() => repeated))
    }))

  it.effect("a claim that was forgotten can settle nothing, and its lease is gone", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* submittedAll(3)
      yield* remember
      const { claims, lease } = yield* claimed(jobs)
      yield* failOver
      assert.deepStrictEqual(yield* store.verify([lease]), [{ _tag: "Gone", lease }])
      assert.deepStrictEqual(yield* completed(claims), claims.map(() => ({ _tag: "Stale", currentEpoch: 0 })))
      assert.deepStrictEqual(yield* states(jobs), [0, 0, 0])
    }))

  it.effect("an epoch that is handed out again is fenced by the lease", () =>
    Effect.gen(function*() {
      const jobs = yield* submittedAll(3)
      yield* remember
      const before = yield* claimed(jobs)
      yield* failOver
      const after = yield* claimed(jobs)
      assert.deepStrictEqual(after.claims.map(({ epoch }) => epoch), before.claims.map(({ epoch }) => epoch))
      assert.deepStrictEqual(
        yield* completed(before.claims),
        before.claims.map(() => ({ _tag: "Stale", currentEpoch: 1 }))
      )
      assert.deepStrictEqual(yield* states(jobs), [1, 1, 1])
      // The other form of the statement too.
      const store = yield* JobStore
      assert.deepStrictEqual(
        yield* store.settle([settlement(before.claims[0]!, "die")]),
        [{ _tag: "Stale", currentEpoch: 1 }]
      )
      assert.deepStrictEqual(yield* completed(after.claims), after.claims.map(() => written))
      // Settled under another lease: the old claim stays refused, and the new one is a repeat.
      assert.deepStrictEqual(
        yield* completed([before.claims[0]!, after.claims[0]!]),
        [{ _tag: "Stale", currentEpoch: 1 }, repeated]
      )
      const [row] = yield* Rows.query(
        `SELECT j.stale::int AS stale, g.events_total FROM deadman.job j JOIN deadman.journal g ON g.id = j.id
         WHERE j.id = $1::uuid`,
        [before.claims[0]!.id]
      )
      assert.deepStrictEqual(row, { stale: 3, events_total: 3 })
    }))

  it.effect("of several late outcomes of one job each is counted, and that of the newest claim is shown", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const { claims: [claim] } = yield* claimed(yield* submittedAll(1))
      const [lease, other] = [yield* Jobs.freshLease, yield* Jobs.freshLease]
      yield* store.settle([
        settlement({ ...claim!, lease, epoch: Epoch.make(3) }, "die"),
        settlement({ ...claim!, lease: other }, "complete")
      ])
      const [job] = yield* store.get([claim!.id])
      assert.strictEqual(job?.staleWrites, 2)
      const event = job?.events.find(({ kind }) => kind === "stale_write")
      assert.include(event, { epoch: 3, outcome: "die", currentEpoch: 1 })
    }))

  it.effect("a submit that was forgotten is stored when it is sent again, with a route that was forgotten too", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const key = yield* Jobs.freshKey
      yield* remember
      const type = yield* Jobs.freshType
      const batch = [yield* Jobs.job({ type }), yield* Jobs.job({ type, key: { key, fingerprint: "same" } })]
      assert.deepStrictEqual((yield* store.submit(batch, { atomic: false })).answers.map(({ _tag }) => _tag), [
        "Created",
        "Created"
      ])
      yield* failOver
      // The number that the type's route had belongs to another type now.
      yield* submittedAll(2)
      const again = yield* store.submit(batch, { atomic: false })
      assert.deepStrictEqual(again.answers.map(({ _tag }) => _tag), ["Created", "Created"])
      yield* claimed(batch)
    }))
})
