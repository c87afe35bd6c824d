/**
 * `DelayedJobs` read from the jobs themselves: nothing to schedule, nothing to forget.
 *
 * A submit makes a job wait by `wait_ms`, and its promotion clears it.
 */
import { Effect, Layer } from "effect"
import type { JobId } from "../../domain/JobId.ts"
import { DelayedJobs, DelayedJobsUnavailable } from "../../ports/DelayedJobs.ts"
import { Database, long } from "./Database.ts"

const dueSql = `
  SELECT n.next_ms, d.id
  FROM (SELECT min(wait_ms)::float8 AS next_ms FROM deadman.job WHERE wait_ms > $1::float8::bigint) n
  LEFT JOIN (
    SELECT id, wait_ms FROM deadman.job WHERE wait_ms <= $1::float8::bigint ORDER BY wait_ms LIMIT $2::int
  ) d ON true
  ORDER BY d.wait_ms`

const make = Effect.gen(function*() {
  const database = yield* Database

  const due: DelayedJobs["Service"]["due"] = Effect.fn("DelayedJobsPostgres.due")(function*(nowMs, limit) {
    const rows = yield* database.query<{ next_ms: number | null; id: string | null }>(
      "read",
      dueSql,
      [long(nowMs), limit]
    ).pipe(Effect.mapError((cause) => new DelayedJobsUnavailable({ operation: "due", cause })))
    return {
      ids: rows.flatMap(({ id }) => id === null ? [] : [id as JobId]),
      nextMs: rows[0]?.next_ms ?? null,
      wantsFill: false
    }
  })

  const nothing = () => Effect.void
  return DelayedJobs.of({ horizonMs: null, schedule: nothing, due, filled: nothing, forget: nothing })
})

export const layer: Layer.Layer<DelayedJobs, never, Database> = Layer.effect(DelayedJobs, make)
