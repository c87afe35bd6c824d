/** The statements of `SubmitLanes.ts`. */
import { lockTimeoutMs } from "../Database.ts"
import { dueSoonMs, type StoreOptions, tallies, wakes } from "./Rows.ts"
import * as Delays from "./SubmitDelays.ts"

export const lockMs = lockTimeoutMs

/** How long a part of a flush waits for a lock that the whole has already waited for. */
export const partLockMs = 25

/** Numbers count from 1, in the order of the parameters. */
export interface InsertedRow {
  readonly now: number
  /** Entries that were there before. */
  readonly there: ReadonlyArray<number> | null
  /** Entries whose route is not there yet: not stored. */
  readonly routeless: ReadonlyArray<number> | null
}

// The parameters: ids, types, queues, payloads, priorities, max_attempts, backoffs, timeouts, run_at_ms, tags,
// resubmitted_from, keys, fingerprints, and in careful forms the lock timeout.
const entries = (careful: boolean, delays: boolean) => {
  const timeout = careful ? `, set_config('lock_timeout', $14, true)` : ""
  const sent = "$9::float8[]"
  const due = delays ? "s.due" : sent
  const clock = delays ? Delays.clock(sent, timeout) : `s AS MATERIALIZED (
     SELECT deadman.now_ms() AS now${timeout}
   )`
  return `${clock},
   x AS MATERIALIZED (
     SELECT x.ord::int AS ord, x.id, x.payload, x.priority, x.max_attempts, x.backoff, x.timeout_ms, x.tags,
            x.resubmitted_from, x.key, x.fingerprint, r.id AS route, s.now,
            greatest(s.now, x.run_at_ms::bigint) AS run_at_ms,
            CASE WHEN x.run_at_ms IS NULL OR x.run_at_ms <= s.now THEN s.now - x.priority * r.step_ms END AS rank,
            CASE WHEN x.run_at_ms > s.now THEN x.run_at_ms::bigint END AS wait_ms
     FROM s
     CROSS JOIN unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::int[], $6::int[], $7::text[], $8::int[],
                       ${due}, $10::text[], $11::uuid[], $12::text[], $13::text[]) WITH ORDINALITY
       AS x(id, type, queue, payload, priority, max_attempts, backoff, timeout_ms, run_at_ms, tags, resubmitted_from,
            key, fingerprint, ord)
     LEFT JOIN deadman.route r ON r.type = x.type AND r.queue = x.queue
   )`
}

const body = (from: string, conflict: string) =>
  `b AS (
     INSERT INTO deadman.body (id, payload, created_at_ms, timeout_ms, max_attempts, backoff, tags, key,
                               resubmitted_from)
     SELECT x.id, x.payload::jsonb, x.now, x.timeout_ms, x.max_attempts, x.backoff::jsonb, x.tags::text[], x.key,
            x.resubmitted_from
     FROM ${from}
     ${conflict}
     RETURNING id
   )`

const job = (from: string) =>
  `j AS (
     INSERT INTO deadman.job (id, run_at_ms, rank, wait_ms, route, bytes, priority)
     SELECT x.id, x.run_at_ms, x.rank, x.wait_ms, x.route, octet_length(x.payload), x.priority
     FROM ${from}
     RETURNING id, route, rank, wait_ms
   )`

const ending = ({ queued = false, wake }: StoreOptions) =>
  `${tallies(`SELECT route, 0 AS state, count(*) AS n FROM j GROUP BY route`)},
   ${
    wakes(
      wake,
      `SELECT CASE WHEN j.rank IS NOT NULL THEN ${
        queued ? "NULL" : "'r'"
      } WHEN j.wait_ms <= s.now + ${dueSoonMs} THEN 'd' END AS kind
       FROM j CROSS JOIN s`
    )
  }`

const answer = (there: string) =>
  `SELECT s.now::float8 AS now, ${there} AS there,
          (SELECT array_agg(x.ord) FROM x WHERE x.route IS NULL) AS routeless,
          (SELECT count(*)::int FROM n) AS woken
   FROM s`

const missing = `(SELECT array_agg(x.ord) FROM x WHERE x.route IS NOT NULL AND x.id <> ALL (ARRAY(SELECT id FROM j)))`

/** `delays`: for a flush with jobs that have one. */
export const make = (options: StoreOptions, delays: boolean) => ({
  careful: `WITH ${entries(true, delays)},
    ${body(`x WHERE x.route IS NOT NULL ORDER BY x.id`, "ON CONFLICT (id) DO NOTHING")},
    ${job(`x JOIN b ON b.id = x.id`)},
    ${ending(options)}
    ${answer(missing)}`,

  keyed: keyed(options, false, delays),
  keyedCareful: keyed(options, true, delays)
})

/** The job only where the key was inserted. */
function keyed(options: StoreOptions, careful: boolean, delays: boolean): string {
  return `WITH ${entries(careful, delays)},
    k AS (
      INSERT INTO deadman.key (key, job, fingerprint)
      SELECT x.key, x.id, x.fingerprint FROM x WHERE x.route IS NOT NULL
      ORDER BY x.key
      ON CONFLICT (key) DO NOTHING
      RETURNING job
    ),
    ${body(`x JOIN k ON k.job = x.id`, "")},
    ${job(`x JOIN k ON k.job = x.id`)},
    ${ending(options)}
    ${answer(missing)}`
}

export const addRoutes = `INSERT INTO deadman.route (type, queue)
  SELECT x.type, x.queue FROM unnest($1::text[], $2::text[]) x(type, queue)
  WHERE NOT EXISTS (SELECT 1 FROM deadman.route r WHERE r.type = x.type AND r.queue = x.queue)
  ORDER BY x.type, x.queue
  ON CONFLICT (type, queue) DO NOTHING`

/** The same, for a flush that has waited before: $3 is how long a lock is waited for. */
export const addRoutesSoon = `WITH s AS MATERIALIZED (SELECT set_config('lock_timeout', $3, true))
  INSERT INTO deadman.route (type, queue)
  SELECT x.type, x.queue FROM s CROSS JOIN unnest($1::text[], $2::text[]) x(type, queue)
  WHERE NOT EXISTS (SELECT 1 FROM deadman.route r WHERE r.type = x.type AND r.queue = x.queue)
  ORDER BY x.type, x.queue
  ON CONFLICT (type, queue) DO NOTHING`

/** Those of the given routes that are there, by their numbers. */
export const knownRoutes = `SELECT x.ord::int AS n
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY x(type, queue, ord)
  JOIN deadman.route r ON r.type = x.type AND r.queue = x.queue`

export interface StoredRow {
  readonly id: string
  readonly created_at_ms: number
  readonly run_at_ms: number
}

export const stored = `SELECT b.id, b.created_at_ms::float8 AS created_at_ms, j.run_at_ms::float8 AS run_at_ms
  FROM deadman.body b JOIN deadman.job j ON j.id = b.id
  WHERE b.id = ANY ($1::uuid[])`

export interface KeyRow {
  readonly key: string
  readonly job: string
  readonly fingerprint: string
  readonly expired: boolean
  readonly created_at_ms: number
  readonly run_at_ms: number
}

/** A key lives until its job is final plus its time; the key of a job that was pruned is over. */
const over = `(j.id IS NULL OR j.finished_at_ms < deadman.now_ms() - `

export const keys = `SELECT k.key, k.job, k.fingerprint, coalesce(${over} $2::bigint), false) AS expired,
         b.created_at_ms::float8 AS created_at_ms, j.run_at_ms::float8 AS run_at_ms
  FROM deadman.key k
  LEFT JOIN deadman.job j ON j.id = k.job
  LEFT JOIN deadman.body b ON b.id = k.job
  WHERE k.key = ANY ($1::text[])`

export const dropExpired = `DELETE FROM deadman.key k
  USING unnest($1::text[], $2::uuid[]) x(key, job)
  LEFT JOIN deadman.job j ON j.id = x.job
  WHERE k.key = x.key AND k.job = x.job AND ${over} $3::bigint)`
