import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import { pageBytesMax } from "../../../src/adapters/postgres/store/Reads.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import * as Ids from "../../support/Ids.ts"
import * as Pages from "../../support/Pages.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const layer = Layer.provideMerge(JobStorePostgres.layer({ wake: false, keyTtlMs: 60_000 }), Postgres.layer)

const walk = (limit: number) => Pages.walk({ limit }, { pagesMax: 99 })

const idsOf = (jobs: ReadonlyArray<{ readonly id: JobId }>) => jobs.map(({ id }) => id)

it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })("JobStorePostgres, pages of large jobs", (it) => {
  const large = Array.from({ length: 40 }, () => ({ id: Ids.jobId() }))

  it.effect("a page is bounded in bytes too, and misses nothing", () =>
    Effect.gen(function*() {
      yield* Rows.pending(large)
      const ids = idsOf(large).map((id) => `'${id}'`).join()
      yield* Rows.query(`UPDATE deadman.job SET bytes = 1000000 WHERE id IN (${ids})`)
      yield* Rows.query(
        `UPDATE deadman.body SET payload = to_jsonb(repeat('x', 999998)) WHERE id IN (${ids})`
      )
      const store = yield* JobStore
      const newest = idsOf(large).toReversed()
      const fit = Math.floor(pageBytesMax / 1_000_000)
      const page = yield* store.list({ limit: 500, offset: 0 })
      assert.deepStrictEqual(idsOf(page.jobs), newest.slice(0, fit))
      assert.strictEqual(page.next, newest[fit - 1])
      for (const limit of [fit - 1, fit, fit + 1, 500]) {
        assert.deepStrictEqual(idsOf((yield* walk(limit)).jobs), newest, `limit ${limit}`)
      }
      assert.deepStrictEqual(idsOf((yield* store.list({ limit: 500, offset: 30 })).jobs), newest.slice(30))
    }), 180_000)

  it.effect("what runs have left on a job counts, and one job is always shown", () =>
    Effect.gen(function*() {
      const [oldest, second] = idsOf(large)
      yield* Rows.query(
        `INSERT INTO deadman.journal (id, result) VALUES ('${second}', to_jsonb(repeat('y', ${
          pageBytesMax - 2_000_000
        })))`
      )
      yield* Rows.query(`UPDATE deadman.job SET bytes = ${2 * pageBytesMax} WHERE id = '${oldest}'`)
      const { jobs, pages } = yield* walk(500)
      assert.deepStrictEqual(idsOf(jobs), idsOf(large).toReversed())
      assert.strictEqual(pages, 5)
    }), 180_000)
})
