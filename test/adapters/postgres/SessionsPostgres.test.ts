import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as SessionsPostgres from "../../../src/adapters/postgres/SessionsPostgres.ts"
import { type Session, Sessions } from "../../../src/ports/Sessions.ts"
import * as SessionsContract from "../../contracts/SessionsContract.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

SessionsContract.suite("postgres", Layer.provide(SessionsPostgres.layer, Postgres.layer))

const session = (name: string, n: number): Session => ({
  name,
  role: "worker",
  version: "0.1.0",
  handlers: [],
  slots: 1,
  running: 0,
  runaways: 0,
  draining: false,
  counters: { claimed: n }
})

it.layer(
  Layer.provideMerge(SessionsPostgres.layerWith({ foldAfterMs: 60_000, foldEveryMs: 0 }), Postgres.layer),
  { excludeTestServices: true }
)("SessionsPostgres", (it) => {
  it.effect("processes that are silent for very long become one row, and the totals stay", () =>
    Effect.gen(function*() {
      const sessions = yield* Sessions
      for (let n = 1; n <= 5; n++) {
        yield* sessions.report(session(`old-${n}`, n))
      }
      const age = Rows.query(`UPDATE deadman.session SET seen_at_ms = seen_at_ms - 120000 WHERE name LIKE 'old-%'`)
      yield* age
      yield* sessions.report(session("new", 100))
      assert.deepStrictEqual(yield* sessions.totals, { claimed: 115 })
      assert.deepStrictEqual(
        (yield* Rows.query(`SELECT name FROM deadman.session ORDER BY name`)).map((row) => row["name"]),
        ["", "new"]
      )
      // Later ones are added to the earlier.
      yield* sessions.report(session("old-6", 6))
      yield* age
      yield* sessions.report(session("new", 101))
      assert.deepStrictEqual(yield* sessions.totals, { claimed: 122 })
      assert.deepStrictEqual((yield* sessions.list(600_000)).map(({ name }) => name), ["new"])
    }))
})

it.layer(
  Layer.provideMerge(SessionsPostgres.layerWith({ foldAfterMs: 60_000 }), Postgres.layer),
  { excludeTestServices: true }
)("SessionsPostgres, many that are gone", (it) => {
  it.effect("become one row with the next few reports, however many they are, also those that counted nothing", () =>
    Effect.gen(function*() {
      const sessions = yield* Sessions
      yield* Rows.query(
        `INSERT INTO deadman.session (name, started_at_ms, seen_at_ms, detail, counters)
         SELECT 'http:' || n, 0, 1, '{}', CASE WHEN n % 2 = 0 THEN '{"claimed":1}'::jsonb ELSE '{}' END
         FROM generate_series(1, 2500) n`
      )
      for (let n = 0; n < 3; n++) {
        yield* sessions.report(session("new", 100))
      }
      assert.deepStrictEqual(
        (yield* Rows.query(`SELECT name FROM deadman.session ORDER BY name`)).map((row) => row["name"]),
        ["", "new"]
      )
      assert.deepStrictEqual(yield* sessions.totals, { claimed: 1_350 })
    }))
})
