import { PgConnection } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Layer } from "effect"
import * as GuardedEffectsPostgres from "../../../src/adapters/postgres/GuardedEffectsPostgres.ts"
import type { Claim } from "../../../src/domain/Claim.ts"
import { GuardedEffects } from "../../../src/ports/GuardedEffects.ts"
import * as GuardedEffectsContract from "../../contracts/GuardedEffectsContract.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Ids from "../../support/Ids.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const layer = Layer.provideMerge(GuardedEffectsPostgres.layer, Postgres.layer)

GuardedEffectsContract.suite("postgres", layer, {
  claim: Rows.freshClaim,
  end: ({ id }) => Rows.end([id], "completed"),
  lose: Rows.lose
})

it.layer(layer, { excludeTestServices: true, timeout: "30 seconds" })("GuardedEffectsPostgres", (it) => {
  const rowsOf = (key: string) =>
    Rows.query(`SELECT job, epoch, worker FROM deadman.effect WHERE key = $1::text`, [key])

  it.effect("another lease with the same epoch, as after a failover, records nothing", () =>
    Effect.gen(function*() {
      const effects = yield* GuardedEffects
      const claim = yield* Rows.freshClaim
      const error = yield* Effect.flip(effects.once({ ...claim, lease: Ids.leaseId() }, "failover", "ada"))
      assert.strictEqual(error._tag, "ClaimNotCurrent")
      assert.deepStrictEqual(yield* rowsOf("failover"), [])
    }))

  it.effect("a stale claim leaves no row behind, and the guard names who fired", () =>
    Effect.gen(function*() {
      const effects = yield* GuardedEffects
      const stale = yield* Rows.freshClaim
      yield* Rows.lose(stale)
      yield* Effect.flip(effects.once(stale, "named", "ada"))
      assert.deepStrictEqual(yield* rowsOf("named"), [])
      const claim = yield* Rows.freshClaim
      yield* effects.once(claim, "named", "bob")
      assert.deepStrictEqual(yield* rowsOf("named"), [{ job: claim.id, epoch: claim.epoch, worker: "bob" }])
    }))

  const reclaim = (claim: Claim) => Effect.exit(Rows.lose(claim))

  it.effect("whoever freezes between the fence and the commit holds up a reclaim for a second or so", () =>
    Effect.gen(function*() {
      const claim = yield* Rows.freshClaim
      const connection = yield* PgConnection.make({ url: yield* Postgres.Url })
      yield* connection.query("BEGIN")
      yield* connection.query(
        "SELECT deadman.once($1::text, $2::uuid, $3::int, $4::uuid, 'frozen')",
        ["frozen", claim.id, claim.epoch, claim.lease]
      )
      const since = yield* Clock.currentTimeMillis
      // Nothing more is ever sent on that connection.
      yield* eventually("the reclaim goes through", Effect.map(reclaim(claim), (exit) => exit._tag === "Success"))
      const tookMs = (yield* Clock.currentTimeMillis) - since
      assert.isAbove(tookMs, 500)
      assert.isBelow(tookMs, 2_500)
      assert.deepStrictEqual(yield* rowsOf("frozen"), [])
    }).pipe(Effect.scoped))

  it.effect("while a handler works no job is locked: the fence comes last", () =>
    Effect.gen(function*() {
      const claim = yield* Rows.freshClaim
      const effects = yield* GuardedEffects
      assert.strictEqual(yield* effects.once(claim, "unlocked", "ada"), "fired")
      const free = yield* Rows.query(
        `SELECT id FROM deadman.job WHERE id = $1::uuid FOR UPDATE SKIP LOCKED`,
        [claim.id]
      )
      assert.lengthOf(free, 1)
    }))
})
