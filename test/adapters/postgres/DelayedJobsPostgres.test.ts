import { Effect, Layer } from "effect"
import { longs, uuids } from "../../../src/adapters/postgres/Database.ts"
import * as DelayedJobsPostgres from "../../../src/adapters/postgres/DelayedJobsPostgres.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import * as DelayedJobsContract from "../../contracts/DelayedJobsContract.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const schedule = Effect.fnUntraced(function*(
  jobs: ReadonlyArray<{ readonly id: JobId; readonly runAtMs: number }>
) {
  const [ids, times] = [uuids(jobs.map(({ id }) => id)), longs(jobs.map(({ runAtMs }) => runAtMs))]
  const known = yield* Rows.query(
    `UPDATE deadman.job j SET wait_ms = x.ms::bigint, run_at_ms = x.ms::bigint
     FROM unnest($1::uuid[], $2::float8[]) x(id, ms) WHERE j.id = x.id RETURNING j.id`,
    [ids, times]
  )
  const old = new Set(known.map((row) => row["id"]))
  yield* Rows.pending(jobs.filter(({ id }) => !old.has(id)).map(({ id, runAtMs }) => ({ id, waitMs: runAtMs })))
})

const promote = (ids: ReadonlyArray<JobId>) =>
  Rows.query(`UPDATE deadman.job SET rank = run_at_ms, wait_ms = NULL WHERE id = ANY($1::uuid[])`, [uuids(ids)])

DelayedJobsContract.suite("postgres", Layer.provideMerge(DelayedJobsPostgres.layer, Postgres.layer), {
  record: { schedule, promote: (ids) => Effect.asVoid(promote(ids)) }
})
