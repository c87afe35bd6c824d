/**
 * What the statements of the store have in common: codes, fragments of SQL, and the row of a claimed job.
 *
 * Rows of the hot path are read as they come: the column lists stand beside the types, and a Schema would cost more
 * than the statement.
 */
import { Effect } from "effect"
import { type Backoff, defaults } from "../../../domain/Backoff.ts"
import type { ClaimedJob, JobType, Queue } from "../../../domain/Job.ts"
import type { JobId } from "../../../domain/JobId.ts"
import { JobStoreUnavailable } from "../../../ports/JobStore.ts"
import type { DatabaseFailed } from "../DatabaseFailed.ts"

/** What the store's statements are told by its configuration. */
export interface StoreOptions {
  /** Whether workers are woken by the statements themselves, because the transport is Postgres too. */
  readonly wake: boolean
  /** Whether what becomes ready in its turn is published by id, so that submits and promotions do not wake for it. */
  readonly queued?: boolean
  /** How long a key outlives the end of its job. */
  readonly keyTtlMs: number
}

/** `job.state`: the index in `domain/JobState.ts`. */
export const state = { pending: 0, running: 1, failed: 2, completed: 3, dead: 4 } as const

/** `job.mark`, which carries the index of what is off the happy path. */
export const mark = { failed: 1, dead: 2, deadUnannounced: 3 } as const

export const wakeChannel = "deadman_wake"

/** A job that is due sooner than this is worth a wake. */
export const dueSoonMs = 2_000

/** What the port says of any failure of the database that no entry is to blame for. */
export const unavailable = (operation: string) => (error: DatabaseFailed) =>
  new JobStoreUnavailable({ operation, cause: error })

export const orUnavailable =
  (operation: string) => <A>(effect: Effect.Effect<A, DatabaseFailed>): Effect.Effect<A, JobStoreUnavailable> =>
    Effect.mapError(effect, unavailable(operation))

/**
 * `n`: one notification per kind that `kinds` (a query of one column `kind`) has. It must be counted by the statement,
 * or Postgres leaves it out.
 */
export const wakes = (wake: boolean, kinds: string): string =>
  wake
    ? `n AS (SELECT pg_notify('${wakeChannel}', s.kind) FROM (SELECT DISTINCT kind FROM (${kinds}) k) s
             WHERE s.kind IS NOT NULL)`
    : `n AS (SELECT 1 WHERE false)`

/** `t`: adds to the tally what `moves` (a query of `route, state, n`) says, in the statement that moves the jobs. */
export const tallies = (moves: string): string =>
  `t AS (INSERT INTO deadman.tally (route, state, n) SELECT m.route, m.state, m.n FROM (${moves}) m)`

/** An epoch under which nothing can be settled any more: the newest fifty of them. */
export const lostEpochs = (job: string): string =>
  `(${job}.lost_epochs || ${job}.epoch)[greatest(1, coalesce(cardinality(${job}.lost_epochs), 0) - 48):]`

/** Appends to the journal what `entries` (a query of `id, result, error, event`) has; each id once. */
export const journals = (entries: string): string =>
  `g AS (
     INSERT INTO deadman.journal AS g (id, result, errors, errors_total, events, events_total)
     SELECT e.id, e.result,
            CASE WHEN e.error IS NULL THEN '[]' ELSE jsonb_build_array(e.error) END, (e.error IS NOT NULL)::int,
            CASE WHEN e.event IS NULL THEN '[]' ELSE jsonb_build_array(e.event) END, (e.event IS NOT NULL)::int
     FROM (${entries}) e
     ORDER BY e.id
     ON CONFLICT (id) DO UPDATE
     SET result       = coalesce(EXCLUDED.result, g.result),
         errors       = CASE WHEN EXCLUDED.errors_total > 0
                             THEN deadman.history(g.errors, EXCLUDED.errors -> 0) ELSE g.errors END,
         errors_total = g.errors_total + EXCLUDED.errors_total,
         events       = CASE WHEN EXCLUDED.events_total > 0
                             THEN deadman.history(g.events, EXCLUDED.events -> 0) ELSE g.events END,
         events_total = g.events_total + EXCLUDED.events_total
   )`

/** The columns of `ClaimedRow`, of a job `j`, its route `r` and its body `b`. */
export const claimedColumns =
  `j.id, j.epoch, r.type, r.queue, b.payload, j.attempts, b.max_attempts, b.backoff, b.timeout_ms, j.deliveries,
   j.losses, (j.started_at_ms - j.run_at_ms)::float8 AS waited_ms, b.key`

/** One row of `body`, found by its key whatever the planner believes about the size of the table. */
export const bodyOf = (job: string): string =>
  `LATERAL (SELECT payload, max_attempts, backoff, timeout_ms, key FROM deadman.body WHERE id = ${job}.id LIMIT 1) b`

export interface ClaimedRow {
  readonly id: string
  readonly epoch: number
  readonly type: string
  readonly queue: string
  readonly payload: unknown
  readonly attempts: number
  readonly max_attempts: number
  readonly backoff: unknown
  readonly timeout_ms: number | null
  readonly deliveries: number
  readonly losses: number
  readonly waited_ms: number
  readonly key: string | null
}

export const toClaimedJob = (row: ClaimedRow): ClaimedJob => ({
  id: row.id as JobId,
  epoch: row.epoch,
  type: row.type as JobType,
  queue: row.queue as Queue,
  payload: row.payload,
  attempts: row.attempts,
  maxAttempts: row.max_attempts,
  // The default is not stored.
  backoff: row.backoff === null ? defaults : row.backoff as Backoff,
  timeoutMs: row.timeout_ms,
  deliveries: row.deliveries,
  leaseLosses: row.losses,
  waitedMs: row.waited_ms,
  key: row.key
})
