/**
 * The lane of jobs without a key and without terms, which is nearly all of them: one statement that does nothing else.
 *
 * It stores all of them or none: none if a route is missing, and then it says so. Routes are looked up once each, and
 * what a job does not have is not sent: the arrays of `unnest` are filled up with NULL. Nothing in it joins jobs with
 * jobs, so its kept plan does for any number of them.
 *
 * Where all are of one route and have nothing of their own but a payload, a statement without all that stores them: to
 * begin a statement costs more, the more there is in it, than to store a job.
 */
import { Effect } from "effect"
import { defaults } from "../../../domain/Backoff.ts"
import { attemptDefault, type NewJob } from "../../../domain/Job.ts"
import { type Database, ints, longs, texts, uuids } from "../Database.ts"
import type { DatabaseFailed } from "../DatabaseFailed.ts"
import { dueSoonMs, type StoreOptions, wakeChannel, wakes } from "./Rows.ts"
import * as Delays from "./SubmitDelays.ts"
import { hasTerms } from "./SubmitTerms.ts"

export const isPlain = (job: NewJob): boolean => job.key === null && !hasTerms(job)

export const tagLiteral = (tags: ReadonlyArray<string>): string | null =>
  tags.length === 0 ? null : `{${tags.map((tag) => `"${tag.replace(/["\\]/g, "\\$&")}"`).join(",")}}`

/** The default is not stored. */
export const backoffLiteral = ({ backoff }: NewJob): string | null =>
  backoff === defaults ||
    (backoff.kind === "exponential" && defaults.kind === "exponential" &&
      backoff.base_ms === defaults.base_ms && backoff.cap_ms === defaults.cap_ms)
    ? null
    : JSON.stringify(backoff)

interface StoredRow {
  readonly now: number
  /** Whether all routes are there. */
  readonly stored: boolean
}

const kinds = `SELECT CASE WHEN w.at_ms > s.now THEN CASE WHEN w.at_ms <= s.now + ${dueSoonMs} THEN 'd' END ELSE `

const times = "$14::float8[]"

/** `timed`: with times to run at, which decide about wakes too. `delays`: some of these are delays. */
const statement = ({ queued = false, wake }: StoreOptions, timed: boolean, delays = false): string => {
  const due = delays ? "s.due" : times
  return `WITH ${delays ? Delays.clock(times) : "s AS MATERIALIZED (SELECT deadman.now_ms() AS now)"},
   r AS MATERIALIZED (
     SELECT array_agg(r.id ORDER BY x.ord) AS ids, array_agg(r.step_ms ORDER BY x.ord) AS steps
     FROM unnest($4::text[], $5::text[]) WITH ORDINALITY x(type, queue, ord)
     JOIN deadman.route r ON r.type = x.type AND r.queue = x.queue
     HAVING count(*) = cardinality($4::text[])
   ),
   b AS (
     INSERT INTO deadman.body (id, payload, created_at_ms, max_attempts, timeout_ms, backoff, tags, resubmitted_from)
     SELECT x.id, x.payload::jsonb, s.now, coalesce(x.max_attempts, ${attemptDefault}), x.timeout_ms,
            x.backoff::jsonb, x.tags::text[], x.resubmitted_from
     FROM r CROSS JOIN s
     CROSS JOIN unnest($1::uuid[], $2::text[], $9::int[], $10::int[], $11::text[], $12::text[], $13::uuid[])
       AS x(id, payload, max_attempts, timeout_ms, backoff, tags, resubmitted_from)
   ),
   j AS (
     INSERT INTO deadman.job (id, run_at_ms, rank, wait_ms, route, bytes, priority)
     SELECT x.id, ${timed ? "greatest(s.now, x.run_at_ms::bigint)" : "s.now"},
            ${
    timed ? "CASE WHEN x.run_at_ms > s.now THEN NULL ELSE " : ""
  }s.now - coalesce(x.priority, 0) * r.steps[coalesce(x.route, 1)]${timed ? " END" : ""},
            ${timed ? "CASE WHEN x.run_at_ms > s.now THEN x.run_at_ms::bigint END" : "NULL"},
            r.ids[coalesce(x.route, 1)], x.bytes, coalesce(x.priority, 0)
     FROM r CROSS JOIN s
     CROSS JOIN unnest($1::uuid[], $3::int[], $7::int[], $8::int[]${timed ? `, ${due}` : ""})
       AS x(id, bytes, route, priority${timed ? ", run_at_ms" : ""})
   ),
   t AS (
     INSERT INTO deadman.tally (route, state, n)
     SELECT r.ids[x.ord::int], 0, x.n FROM r CROSS JOIN unnest($6::int[]) WITH ORDINALITY x(n, ord)
   ),
   ${
    timed
      ? wakes(
        wake,
        `${kinds}${queued ? "NULL" : "'r'"} END AS kind FROM r CROSS JOIN s CROSS JOIN unnest(${due}) w(at_ms)`
      )
      : wake && !queued
      ? `n AS (SELECT pg_notify('${wakeChannel}', 'r') FROM r)`
      : `n AS (SELECT 1 WHERE false)`
  }
   SELECT s.now::float8 AS now, EXISTS (SELECT 1 FROM r) AS stored, (SELECT count(*)::int FROM n) AS woken FROM s`
}

/** Of one route, with all defaults. $1 ids, $2 payloads, $3 bytes, $4 type, $5 queue, $6 how many. */
const alikeStatement = ({ queued = false, wake }: StoreOptions): string =>
  `WITH s AS MATERIALIZED (SELECT deadman.now_ms() AS now),
   r AS MATERIALIZED (SELECT id FROM deadman.route WHERE type = $4::text AND queue = $5::text),
   b AS (
     INSERT INTO deadman.body (id, payload, created_at_ms, max_attempts)
     SELECT x.id, x.payload::jsonb, s.now, ${attemptDefault}
     FROM r CROSS JOIN s CROSS JOIN unnest($1::uuid[], $2::text[]) x(id, payload)
   ),
   j AS (
     INSERT INTO deadman.job (id, run_at_ms, rank, route, bytes)
     SELECT x.id, s.now, s.now, r.id, x.bytes FROM r CROSS JOIN s CROSS JOIN unnest($1::uuid[], $3::int[]) x(id, bytes)
   ),
   t AS (INSERT INTO deadman.tally (route, state, n) SELECT r.id, 0, $6::int FROM r)
   SELECT s.now::float8 AS now, true AS stored${
    wake && !queued ? `, pg_notify('${wakeChannel}', 'r')` : ""
  } FROM s CROSS JOIN r`

const none = { ints: ints([]), texts: texts([]), uuids: uuids([]) }

/** A column of what most jobs do not have. */
const rare = <A extends number | string, P>(
  jobs: ReadonlyArray<NewJob>,
  of: (job: NewJob) => A | null,
  absent: A | null,
  encode: (values: ReadonlyArray<A | null>) => P,
  empty: P
): P => jobs.every((job) => of(job) === absent) ? empty : encode(jobs.map(of))

const routesOf = (jobs: ReadonlyArray<NewJob>) => {
  const byQueue = new Map<string, Map<string, number>>()
  const types: Array<string> = []
  const queues: Array<string> = []
  const counts: Array<number> = []
  const which = jobs.map(({ queue, type }) => {
    let byType = byQueue.get(queue)
    if (byType === undefined) byQueue.set(queue, byType = new Map())
    let at = byType.get(type)
    if (at === undefined) {
      byType.set(type, at = types.length)
      types.push(type)
      queues.push(queue)
      counts.push(0)
    }
    counts[at]! += 1
    return at + 1
  })
  return { types, queues, counts, which: types.length === 1 ? none.ints : ints(which) }
}

const isBare = (job: NewJob): boolean =>
  job.priority === 0 && job.maxAttempts === attemptDefault && job.timeoutMs === null && job.runAtMs === null &&
  !Delays.hasDelay(job) && job.tags.length === 0 && job.resubmittedFrom === null && backoffLiteral(job) === null

const areAlike = (jobs: ReadonlyArray<NewJob>): boolean => {
  const [first] = jobs
  return jobs.every((job) => job.type === first!.type && job.queue === first!.queue && isBare(job))
}

const alikeParameters = (jobs: ReadonlyArray<NewJob>): ReadonlyArray<unknown> => [
  uuids(jobs.map((job) => job.id)),
  texts(jobs.map((job) => job.payload)),
  ints(jobs.map((job) => Buffer.byteLength(job.payload))),
  jobs[0]!.type,
  jobs[0]!.queue,
  jobs.length
]

const parameters = (jobs: ReadonlyArray<NewJob>, timed: boolean): ReadonlyArray<unknown> => {
  const { counts, queues, types, which } = routesOf(jobs)
  return [
    uuids(jobs.map((job) => job.id)),
    texts(jobs.map((job) => job.payload)),
    ints(jobs.map((job) => Buffer.byteLength(job.payload))),
    texts(types),
    texts(queues),
    ints(counts),
    which,
    rare(jobs, (job) => job.priority, 0, ints, none.ints),
    rare(jobs, (job) => job.maxAttempts, attemptDefault, ints, none.ints),
    rare(jobs, (job) => job.timeoutMs, null, ints, none.ints),
    rare(jobs, backoffLiteral, null, texts, none.texts),
    rare(jobs, (job) => tagLiteral(job.tags), null, texts, none.texts),
    rare(jobs, (job) => job.resubmittedFrom, null, uuids, none.uuids),
    ...(timed ? [longs(jobs.map(Delays.whenOf))] : [])
  ]
}

/** The store's clock when all of `jobs` were stored, or `null`: a route is missing, and none of them is there. */
export const make = (db: Database["Service"], options: StoreOptions) => {
  const alike = alikeStatement(options)
  const untimed = statement(options, false)
  const timed = statement(options, true)
  const delayed = statement(options, true, true)
  const store = (jobs: ReadonlyArray<NewJob>) => {
    if (areAlike(jobs)) return db.query<StoredRow>("quick", alike, alikeParameters(jobs))
    if (jobs.some(Delays.hasDelay)) return db.query<StoredRow>("quick", delayed, parameters(jobs, true))
    const withTimes = jobs.some((job) => job.runAtMs !== null)
    return db.query<StoredRow>("quick", withTimes ? timed : untimed, parameters(jobs, withTimes))
  }
  return (jobs: ReadonlyArray<NewJob>): Effect.Effect<number | null, DatabaseFailed> =>
    Effect.map(store(jobs), ([row]) => row?.stored === true ? row.now : null)
}
