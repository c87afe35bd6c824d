/**
 * Whether everything that was loaded came to an end as promised, by counting rows.
 *
 * These statements walk whole tables. They are for a person who looks after a load, never for a running program.
 */
import { Effect } from "effect"
import { deadReasons } from "../../domain/JobState.ts"
import { Database } from "./Database.ts"
import type { DatabaseFailed } from "./DatabaseFailed.ts"

export interface Verification {
  readonly jobs: number
  /** Pending, running or failed: not at an end yet. */
  readonly outstanding: number
  readonly completed: number
  readonly dead: Readonly<Record<string, number>>
  /** Guarded side effects that were recorded. */
  readonly effects: number
  /** Jobs with more than one recorded effect. */
  readonly duplicates: number
  /** Completed `side-effect` jobs without their effect. */
  readonly missing: number
  /** Jobs that were delivered more than once: what the guard is for. */
  readonly redelivered: number
  readonly leaseLosses: number
  /** Writes that were refused as stale. */
  readonly staleWrites: number
}

const verify = `SELECT
    (SELECT count(*) FROM deadman.job)::float8                                             AS jobs,
    (SELECT count(*) FROM deadman.job WHERE state IN (0, 1, 2))::float8                    AS outstanding,
    (SELECT count(*) FROM deadman.job WHERE state = 3)::float8                             AS completed,
    (SELECT count(*) FROM deadman.job WHERE deliveries > 1)::float8                        AS redelivered,
    (SELECT coalesce(sum(losses), 0) FROM deadman.job)::float8                             AS "leaseLosses",
    (SELECT coalesce(sum(stale), 0) FROM deadman.job)::float8                              AS "staleWrites",
    (SELECT count(*) FROM deadman.effect)::float8                                          AS effects,
    (SELECT count(*) FROM (SELECT 1 FROM deadman.effect GROUP BY job HAVING count(*) > 1) d)::float8 AS duplicates,
    (SELECT count(*) FROM deadman.job j JOIN deadman.route r ON r.id = j.route AND r.type = 'side-effect'
     WHERE j.state = 3 AND NOT EXISTS (SELECT 1 FROM deadman.effect e WHERE e.job = j.id))::float8 AS missing`

const dead = `SELECT reason::int AS reason, count(*)::float8 AS n FROM deadman.job WHERE state = 4 GROUP BY reason`

const outstandingSql = `SELECT r.type, count(*)::float8 AS n
  FROM deadman.job j JOIN deadman.route r ON r.id = j.route
  WHERE j.id BETWEEN $1::text::uuid AND $2::text::uuid AND j.state IN (0, 1, 2) AND ($3::text IS NULL OR r.type = $3)
  GROUP BY r.type`

/** A few million rows take seconds. */
const deadlineMs = 120_000

/** Which jobs: those with ids from `first` to `last`, of one type or of all. */
export interface Among {
  readonly first: string
  readonly last: string
  readonly type: string | null
}

export const all: Among = {
  first: "00000000-0000-0000-0000-000000000000",
  last: "ffffffff-ffff-ffff-ffff-ffffffffffff",
  type: null
}

/** How many of them are not at an end yet, by type. */
export const outstanding = Effect.fnUntraced(function*(
  { first, last, type }: Among
): Effect.fn.Return<Readonly<Record<string, number>>, DatabaseFailed, Database> {
  const database = yield* Database
  const rows = yield* database.transaction("handler", (session) =>
    Effect.gen(function*() {
      yield* session.query(`SET LOCAL statement_timeout = ${deadlineMs}`)
      return yield* session.query<{ readonly type: string; readonly n: number }>(outstandingSql, [first, last, type])
    }), { deadlineMs: deadlineMs + 1_000 })
  return Object.fromEntries(rows.map(({ n, type }) => [type, n]))
})

export const read: Effect.Effect<Verification, DatabaseFailed, Database> = Effect.gen(function*() {
  const database = yield* Database
  return yield* database.transaction("handler", (session) =>
    Effect.gen(function*() {
      yield* session.query(`SET LOCAL statement_timeout = ${deadlineMs}`)
      const [figures] = yield* session.query<Omit<Verification, "dead">>(verify)
      const reasons = yield* session.query<{ readonly reason: number; readonly n: number }>(dead)
      return {
        ...figures!,
        dead: Object.fromEntries(reasons.map(({ n, reason }) => [deadReasons[reason] ?? String(reason), n]))
      }
    }), { deadlineMs: deadlineMs + 1_000 })
})
