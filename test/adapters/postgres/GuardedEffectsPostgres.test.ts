import { PgConnection } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Exit, Layer } from "effect"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as GuardedEffectsPostgres from "../../../src/adapters/postgres/GuardedEffectsPostgres.ts"
import { type Claim, Epoch } from "../../../src/domain/Claim.ts"
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

it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })("GuardedEffectsPostgres", (it) => {
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

  it.effect("what is asked for at once shares statements, and only who is to blame is refused", () =>
    Effect.gen(function*() {
      const database = yield* Database.Database
      let statements = 0
      const counting = Layer.succeed(
        Database.Database,
        {
          ...database,
          query: (...query: Parameters<typeof database.query>) => {
            statements += 1
            return database.query(...query)
          }
        } as typeof database
      )
      yield* Effect.gen(function*() {
        const effects = yield* GuardedEffects
        const claims = yield* Effect.forEach(Array.from({ length: 40 }), () => Rows.freshClaim)
        yield* Rows.lose(claims[7]!)
        const all = (prefix: string, keyOf: (n: number) => string = (n) => `${prefix}-${n}`) =>
          Effect.forEach(claims, (claim, n) => Effect.exit(effects.once(claim, keyOf(n), "ada")), {
            concurrency: "unbounded"
          })
        const outcomes = yield* all("shared")
        assert.isAtMost(statements, 2)
        const refused = (exits: typeof outcomes) => exits.flatMap((exit, n) => Exit.isFailure(exit) ? [n] : [])
        assert.deepStrictEqual(refused(outcomes), [7])
        assert.isTrue(outcomes.every((exit) => Exit.isFailure(exit) || exit.value === "fired"))
        const again = yield* all("shared")
        assert.isTrue(again.every((exit) => Exit.isFailure(exit) || exit.value === "already"))
        // A key that Postgres cannot hold.
        assert.deepStrictEqual(refused(yield* all("bad", (n) => n === 3 ? "bad\u0000" : `bad-${n}`)), [3, 7])
        const rows = yield* Rows.query(`SELECT key FROM deadman.effect WHERE key LIKE 'shared-%' OR key LIKE 'bad-%'`)
        assert.lengthOf(rows, 39 + 38)
      }).pipe(Effect.provide(GuardedEffectsPostgres.layer.pipe(Layer.provide(counting))))
    }))

  const reclaim = (claim: Claim) => Effect.exit(Rows.lose(claim))

  it.effect("whoever freezes between the fence and the commit holds up a reclaim for a second or so", () =>
    Effect.gen(function*() {
      const claim = yield* Rows.freshClaim
      const connection = yield* PgConnection.make({ url: yield* Postgres.Url })
      yield* connection.query("BEGIN")
      // Before the fence: it may have stood for a while when its answer is here.
      const since = yield* Clock.currentTimeMillis
      yield* connection.query(
        "SELECT deadman.once($1::text, $2::uuid, $3::int, $4::uuid, 'frozen')",
        ["frozen", claim.id, claim.epoch, claim.lease]
      )
      // Nothing more is ever sent on that connection.
      yield* eventually("the reclaim goes through", Effect.map(reclaim(claim), (exit) => exit._tag === "Success"))
      const tookMs = (yield* Clock.currentTimeMillis) - since
      assert.isAbove(tookMs, 500)
      assert.isBelow(tookMs, 2_500)
      assert.deepStrictEqual(yield* rowsOf("frozen"), [])
    }).pipe(Effect.scoped))

  for (const fence of ["begin_run", "fence", "complete"]) {
    it.effect(`deadman.${fence} lets the current claim pass, and none that differs from it or has ended`, () =>
      Effect.gen(function*() {
        const ask = ({ epoch, id, lease }: Claim) =>
          Rows.query(`SELECT deadman.${fence}($1::uuid, $2::int, $3::uuid)`, [id, epoch, lease])
        const claim = yield* Rows.freshClaim
        const ended = yield* Rows.freshClaim
        yield* Rows.end([ended.id], "completed")
        const others: ReadonlyArray<Claim> = [
          { ...claim, id: Ids.jobId() },
          { ...claim, epoch: Epoch.make(claim.epoch + 1) },
          // As after a failover, which may hand one epoch out twice.
          { ...claim, lease: Ids.leaseId() },
          ended
        ]
        for (const other of others) {
          assert.strictEqual((yield* Effect.flip(ask(other))).code, "DM001")
        }
        yield* ask(claim)
        const [job] = yield* Rows.query(`SELECT state::int AS state FROM deadman.job WHERE id = $1::uuid`, [claim.id])
        assert.strictEqual(job?.["state"], fence === "complete" ? 3 : 1)
      }))
  }

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
