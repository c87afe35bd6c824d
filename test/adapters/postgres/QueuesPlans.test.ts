/** What claims cost where queues are paused or have a limit: what they may not take must cost them nothing. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as Sql from "../../../src/adapters/postgres/store/ClaimSql.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Plans from "../../support/Plans.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

type Rooms = ReadonlyArray<readonly [queue: string, room: number]>

/** Runs the statement that a claim sends, and takes it back. */
const explain = Effect.fnUntraced(function*(types: ReadonlyArray<string>, limit: number, rooms: Rooms | null) {
  const database = yield* Database.Database
  const lease = yield* Jobs.freshLease
  return yield* Effect.flip(database.transaction("hot", (session) =>
    Effect.gen(function*() {
      const plan = yield* Plans.explain(session.query, rooms === null ? Sql.claim : Sql.claimWithRooms, [
        lease,
        5_000,
        "ada",
        Database.texts(types),
        null,
        limit,
        Database.long(1e9),
        32_768,
        "-9223372036854775808",
        null,
        ...(rooms === null
          ? []
          : [Database.texts(rooms.map(([queue]) => queue)), Database.ints(rooms.map(([, room]) => room))])
      ])
      return yield* Effect.fail({ buffers: Plans.buffersOf(plan), rows: plan["Actual Rows"] })
    }))).pipe(
      Effect.flatMap((found) => "buffers" in found ? Effect.succeed(found) : Effect.die(found))
    )
})

const many = Effect.fnUntraced(function*(type: string, queue: string, count: number) {
  const database = yield* Database.Database
  const route = yield* Rows.route(type, queue)
  yield* database.query(
    "read",
    `WITH x AS MATERIALIZED (
       SELECT gen_random_uuid() AS id, deadman.statement_ms() + n AS due FROM generate_series(1, $2::int) n
     ), b AS (
       INSERT INTO deadman.body (id, payload, created_at_ms, max_attempts) SELECT id, '1', due, 10 FROM x
     )
     INSERT INTO deadman.job (id, run_at_ms, rank, route, bytes) SELECT id, due, due, $1::int, 1 FROM x`,
    [route, count],
    { deadlineMs: 30_000 }
  )
})

const others: Rooms = Array.from({ length: 499 }, (_, n) => [`other-${n}`, 1] as const)

it.layer(Postgres.layer, { excludeTestServices: true, timeout: "2 minutes" })("claims past queues", (it) => {
  it.effect(
    "an empty claim reads at most 50 buffers past 100,000 jobs of a paused and of a full queue",
    () =>
      Effect.gen(function*() {
        yield* Rows.query(`ALTER TABLE deadman.job SET (autovacuum_enabled = false)`)
        for (let part = 0; part < 2; part++) {
          yield* many("a", "paused", 25_000)
          yield* many("a", "full", 25_000)
          yield* many("b", "full", 25_000)
        }
        yield* Rows.query(`UPDATE deadman.route SET paused = true WHERE queue = 'paused'`)
        for (const statistics of ["none", "analyzed"]) {
          if (statistics === "analyzed") {
            yield* Rows.query(`ANALYZE deadman.job`)
          }
          const past = yield* explain(["a", "b"], 500, [["full", 0], ...others])
          assert.deepInclude(past, { rows: 0 })
          assert.isAtMost(past.buffers, 50, `${statistics}: past a paused and a full queue`)
          const few = yield* explain(["a", "b"], 500, [["full", 3], ...others])
          assert.strictEqual(few.rows, 3)
          assert.isAtMost(few.buffers, 300, `${statistics}: three of 100,000`)
          // So that the counts above are of what they say.
          const plain = yield* explain(["a", "b"], 500, null)
          assert.strictEqual(plain.rows, 500)
        }
      }),
    180_000
  )
})
