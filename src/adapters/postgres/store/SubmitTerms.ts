/**
 * The lane of jobs with terms: a time to start by, a retention of their own, or a place that only one may have.
 *
 * They are stored by the function that SQL users call, one after the other within one statement, so that the plain lanes
 * carry nothing for them. Places are taken in their order: two flushes with the same ones would else wait for each other.
 */
import { Effect } from "effect"
import type { NewJob } from "../../../domain/Job.ts"
import type { JobId } from "../../../domain/JobId.ts"
import type { Submitted } from "../../../ports/JobStore.ts"
import { longs, texts } from "../Database.ts"
import type { DatabaseFailed } from "../DatabaseFailed.ts"
import { dueSoonMs, type StoreOptions, tallies, wakes } from "./Rows.ts"

/** In one statement: whoever wants the same places waits for all of it. */
export const rowsMax = 100

export const isUnique = (job: NewJob): boolean => (job.unique ?? null) !== null

export const hasTerms = (job: NewJob): boolean =>
  isUnique(job) || (job.startByMs ?? null) !== null || (job.retainMs ?? null) !== null

/** What comes behind the parameters of the plain lanes: times to start by, retentions, places. */
export const termParameters = (jobs: ReadonlyArray<NewJob>): ReadonlyArray<unknown> => [
  longs(jobs.map((job) => job.startByMs ?? null)),
  longs(jobs.map((job) => job.retainMs ?? null)),
  texts(jobs.map((job) => job.unique === null || job.unique === undefined ? null : JSON.stringify(job.unique)))
]

/** $14 to $16 as above, $17 key TTL, $18 lock timeout. */
export const statement = ({ queued = false, wake }: StoreOptions): string =>
  `WITH s AS MATERIALIZED (SELECT set_config('lock_timeout', $18, true)),
   x AS MATERIALIZED (
     SELECT x.*, x.u::jsonb AS uniqueness,
            CASE WHEN x.u IS NOT NULL THEN deadman.unique_key(x.type, x.payload::jsonb, x.u::jsonb -> 'fields')
            END AS place
     FROM s CROSS JOIN unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::int[], $6::int[], $7::text[], $8::int[],
                              $9::float8[], $10::text[], $11::uuid[], $12::text[], $13::text[], $14::float8[],
                              $15::float8[], $16::text[]) WITH ORDINALITY
       AS x(id, type, queue, payload, priority, max_attempts, backoff, timeout_ms, run_at_ms, tags, resubmitted_from,
            key, fingerprint, start_by_ms, retain_ms, u, ord)
     ORDER BY x.key, place, x.ord
   ),
   a AS MATERIALIZED (
     SELECT x.ord::int AS ord, a.*
     FROM x CROSS JOIN LATERAL deadman.store_job(
       x.id, x.type, x.queue, x.payload::jsonb, octet_length(x.payload), x.priority, x.max_attempts, x.backoff::jsonb,
       x.timeout_ms, x.run_at_ms::bigint, x.tags::text[], x.resubmitted_from, x.key, x.fingerprint, $17::bigint,
       x.start_by_ms::bigint, x.retain_ms::bigint, x.uniqueness
     ) a
   ),
   ${tallies(`SELECT route, 0 AS state, count(*) AS n FROM a WHERE outcome = 0 AND route IS NOT NULL GROUP BY route`)},
   ${
    wakes(
      wake,
      `SELECT CASE WHEN a.due_in_ms <= 0 THEN ${queued ? "NULL" : "'r'"}
                   WHEN a.due_in_ms <= ${dueSoonMs} THEN 'd' END AS kind
       FROM a WHERE a.outcome = 0 AND a.route IS NOT NULL`
    )
  }
   SELECT a.ord, a.outcome, a.id, a.created_at_ms::float8 AS created_at_ms, a.run_at_ms::float8 AS run_at_ms,
          (SELECT count(*)::int FROM n) AS woken
   FROM a`

interface StoredRow {
  readonly ord: number
  readonly outcome: number
  readonly id: string
  readonly created_at_ms: number
  readonly run_at_ms: number
}

type Query = <Row extends object>(
  text: string,
  params: ReadonlyArray<unknown>
) => Effect.Effect<ReadonlyArray<Row>, DatabaseFailed>

const outcomes = ["Created", "Replayed", "KeyMismatch", "Skipped"] as const

const toSubmitted = (row: StoredRow): Submitted => {
  const id = row.id as JobId
  const outcome = outcomes[row.outcome] ?? "Created"
  return outcome === "Created"
    ? { _tag: "Created", id, createdAtMs: row.created_at_ms, runAtMs: row.run_at_ms }
    : { _tag: outcome, id }
}

/** Stores `jobs`, and says of each what became of it. */
export const store = Effect.fnUntraced(function*(
  query: Query,
  text: string,
  jobs: ReadonlyArray<NewJob>,
  params: ReadonlyArray<unknown>,
  answers: Map<NewJob, Submitted>
) {
  for (const row of yield* query<StoredRow>(text, params)) {
    const job = jobs[row.ord - 1]
    if (job !== undefined) answers.set(job, toSubmitted(row))
  }
})
