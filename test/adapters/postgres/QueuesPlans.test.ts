/** What claims cost where queues are paused or have a limit: what they may not take must cost them nothing. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Plans from "../../support/Plans.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const others: Plans.Rooms = Array.from({ length: 499 }, (_, n) => [`other-${n}`, 1] as const)

it.layer(Postgres.layer, { excludeTestServices: true, timeout: "2 minutes" })("claims past queues", (it) => {
  it.effect(
    "an empty claim reads at most 50 buffers past 100,000 jobs of a paused and of a full queue",
    () =>
      Effect.gen(function*() {
        yield* Rows.query(`ALTER TABLE deadman.job SET (autovacuum_enabled = false)`)
        for (let part = 0; part < 2; part++) {
          yield* Rows.many(25_000, { type: "a", queue: "paused" })
          yield* Rows.many(25_000, { type: "a", queue: "full" })
          yield* Rows.many(25_000, { type: "b", queue: "full" })
        }
        yield* Rows.query(`UPDATE deadman.route SET paused = true WHERE queue = 'paused'`)
        for (const statistics of ["none", "analyzed"]) {
          if (statistics === "analyzed") {
            yield* Rows.query(`ANALYZE deadman.job`)
          }
          const past = yield* Plans.ofClaim(["a", "b"], 500, [["full", 0], ...others])
          assert.strictEqual(Plans.takenBy(past), 0)
          assert.isAtMost(Plans.buffersOf(past), 50, `${statistics}: past a paused and a full queue`)
          const few = yield* Plans.ofClaim(["a", "b"], 500, [["full", 3], ...others])
          assert.strictEqual(Plans.takenBy(few), 3)
          assert.isAtMost(Plans.buffersOf(few), 300, `${statistics}: three of 100,000`)
          // So that the counts above are of what they say.
          const plain = yield* Plans.ofClaim(["a", "b"], 500)
          assert.strictEqual(Plans.takenBy(plain), 500)
        }
      }),
    180_000
  )
})
