/** Which of its statements a claim sends, and when. */
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Layer } from "effect"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import * as ClaimSql from "../../../src/adapters/postgres/store/ClaimSql.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Plans from "../../support/Plans.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const forms = new Map([[ClaimSql.claim, "longer"], [ClaimSql.claimAll(false), "shorter"]])
const sent: Array<string> = []

const recording = Layer.effect(
  Database.Database,
  Effect.map(Database.Database, (database) =>
    Database.Database.of({
      ...database,
      query: (lane, text, ...rest) => {
        sent.push(forms.get(text) ?? "another")
        return database.query(lane, text, ...rest)
      }
    }))
).pipe(Layer.provide(Postgres.layer))

it.layer(Layer.provide(JobStorePostgres.layer({ wake: false, keyTtlMs: 60_000 }), recording), {
  excludeTestServices: true
})("JobStorePostgres: the statements of a claim", (it) => {
  it.effect("where not all that is ready may be taken, the shorter one is tried again after a second, and not before", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const type = yield* Jobs.freshType
      yield* store.submit(yield* Jobs.jobs(2, { type }), { atomic: false })
      const claim = Effect.gen(function*() {
        const lease = yield* Jobs.freshLease
        sent.length = 0
        // Two are too many bytes; one may always be taken.
        const { length } = yield* store.claim({
          lease,
          leaseMs: 5_000,
          worker: "ada",
          types: [type],
          limit: 2,
          freeSlots: 2,
          bytes: 1
        })
        return { length, sent: [...sent] }
      })
      const fromNanos = yield* Clock.monotonicTimeNanos
      assert.deepStrictEqual(yield* claim, { length: 1, sent: ["shorter", "longer"] })
      // Neither came back full: the next one begins at the start again, where the shorter one would be tried.
      assert.deepStrictEqual(yield* claim, { length: 1, sent: ["longer"] })
      yield* eventually(
        "the shorter one is tried again",
        Effect.map(claim, ({ sent }) => sent.length === 1 && sent[0] === "shorter")
      )
      assert.isAtLeast(Number((yield* Clock.monotonicTimeNanos) - fromNanos) / 1e6, 1_000)
    }))
})

it.layer(Postgres.layer, { excludeTestServices: true })("JobStorePostgres: what a claim asks of each job", (it) => {
  it.effect("a job may start up to the millisecond that it says, told without asking the clock for each", () =>
    Effect.gen(function*() {
      const wrong = yield* Rows.query(
        `SELECT q.expire_ms - deadman.statement_ms() AS off FROM (
           SELECT 0 AS epoch, deadman.statement_ms() + n AS expire_ms FROM generate_series(-2000, 2000) n
           UNION ALL SELECT 0, at FROM unnest('{0, 253402300799999}'::bigint[]) at
           -- Claimed once, by a process of before schema 4, which left the time there.
           UNION ALL SELECT 1, at FROM unnest('{0, 253402300799999}'::bigint[]) at
         ) q WHERE ${ClaimSql.inTime} <> (q.epoch = 1 OR q.expire_ms > deadman.statement_ms())`
      )
      assert.deepStrictEqual(wrong, [])
      yield* Rows.many(1, { type: "late" })
      const filters = Plans.nodesOf(yield* Plans.ofClaim(["late"], 10)).flatMap(({ Filter = "" }) =>
        Filter.includes("expire_ms") ? [Filter] : []
      )
      assert.isNotEmpty(filters)
      for (const filter of filters) {
        assert.notInclude(filter, "EXTRACT")
      }
    }))
})
