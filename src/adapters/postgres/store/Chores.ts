/**
 * The keeper's chores: promote what is due, hand over dead letters, prune.
 *
 * Pruning has no index to go by, since a settle would have to maintain it: it
 * walks the jobs by id, a bounded number of rows a call, and remembers where it
 * was. Ids begin with the time at which they were drawn, so the walk ends where
 * nothing can be old enough; now and then it goes to the very end, for ids that
 * a wrong clock has drawn, and for jobs that run without a lease.
 */
import { Effect } from "effect"
import type { JobType, Queue } from "../../../domain/Job.ts"
import * as JobId from "../../../domain/JobId.ts"
import { deadReasons } from "../../../domain/JobState.ts"
import { type DeadLetter, type JobStore, keptLeastMs, type Promoted, type Upcoming } from "../../../ports/JobStore.ts"
import { type Database, long, uuids } from "../Database.ts"
import { mark, orUnavailable, state, type StoreOptions, tallies, wakes } from "./Rows.ts"
import * as Tally from "./Tally.ts"
import * as Unleased from "./Unleased.ts"

/** Rows that one call of `prune` looks at, of each table that it walks. */
const examineMax = 2_000

/** Every so manyth walk over the jobs goes to the end, the first one included. */
const fullWalkEvery = 16

/** How far the clock of a process that draws ids may be ahead of the database's. */
const skewMs = 60_000

const idMin = "00000000-0000-0000-0000-000000000000"

/** `d`: the jobs to promote, locked. What a reclaim delayed keeps its place: the rank is by `run_at_ms`. */
const promoteSql = (wake: boolean, due: string) =>
  `WITH d AS MATERIALIZED (${due}),
   u AS (
     UPDATE deadman.job j SET rank = j.run_at_ms - j.priority * r.step_ms, wait_ms = NULL
     FROM deadman.route r
     WHERE j.id = ANY (ARRAY(SELECT id FROM d)) AND r.id = j.route AND j.wait_ms IS NOT NULL
     RETURNING j.id, r.type, r.queue, j.priority <> 0 OR j.losses > 0 AS ordered
   ),
   ${wakes(wake, `SELECT 'r' AS kind FROM u`)}
   SELECT s.next_in_ms, (SELECT count(*)::int FROM n) AS woken, id, u.type, u.queue, u.ordered
   FROM (
     SELECT (SELECT min(wait_ms) FROM deadman.job WHERE wait_ms > deadman.statement_ms())::float8
              - deadman.now_ms()::float8 AS next_in_ms
   ) s
   LEFT JOIN (u JOIN d USING (id)) ON true
   ORDER BY d.wait_ms, id`

const dueSql =
  `SELECT id, wait_ms FROM deadman.job WHERE wait_ms <= deadman.statement_ms() ORDER BY wait_ms LIMIT $1::int
     FOR NO KEY UPDATE SKIP LOCKED`

const dueAmongSql =
  `SELECT id, wait_ms FROM deadman.job WHERE id = ANY ($1::uuid[]) AND wait_ms <= deadman.statement_ms() ORDER BY id
     FOR NO KEY UPDATE SKIP LOCKED`

interface PromotedRow {
  readonly next_in_ms: number | null
  readonly woken: number
  readonly id: string | null
  readonly type: string
  readonly queue: string
  readonly ordered: boolean
}

// $1 withinMs, $2 fromMs, $3 the limit.
const upcomingSql = `SELECT s.now::float8 AS now_ms, w.id, w.wait_ms::float8 AS wait_ms
   FROM (SELECT deadman.now_ms() AS now) s
   LEFT JOIN LATERAL (
     SELECT id, wait_ms FROM deadman.job
     WHERE wait_ms >= greatest(s.now, $2::float8::bigint) AND wait_ms <= s.now + $1::float8::bigint
     ORDER BY wait_ms LIMIT $3::int
   ) w ON true
   ORDER BY w.wait_ms`

interface UpcomingRow {
  readonly now_ms: number
  readonly id: string | null
  readonly wait_ms: number
}

const lettersSql = `SELECT j.id, r.type, r.queue, j.reason, j.attempts, j.finished_at_ms::float8
  FROM (
    SELECT id FROM deadman.job
    WHERE (mark, id) >= (${mark.deadUnannounced}::smallint, '${idMin}'::uuid) AND mark IS NOT NULL
    ORDER BY mark, id LIMIT $1::int
  ) m
  JOIN deadman.job j ON j.id = m.id
  JOIN deadman.route r ON r.id = j.route
  WHERE j.mark = ${mark.deadUnannounced}
  ORDER BY j.id`

interface LetterRow {
  readonly id: string
  readonly type: string
  readonly queue: string
  readonly reason: number
  readonly attempts: number
  readonly finished_at_ms: number
}

const announcedSql = `UPDATE deadman.job SET mark = ${mark.dead}
  WHERE id = ANY (ARRAY(
    SELECT id FROM deadman.job WHERE id = ANY ($1::uuid[]) AND mark = ${mark.deadUnannounced} ORDER BY id
    FOR NO KEY UPDATE
  ))`

// $1 the last id looked at, $2 rows to look at, $3 jobs to delete, $4 keyTtlMs, $5 completedMs, $6 deadMs. The walk has
// one bound: with two, a planner without statistics expects so few rows that it reads the whole table and sorts. A job
// keeps its key for the key's time: a repeat of its request must find it.
export const pruneJobsSql = pruneSql({
  walk: `SELECT id, state, mark, finished_at_ms, prune_ms, lease, id::text AS place FROM deadman.job WHERE id > $1::uuid
         ORDER BY id LIMIT $2::int`,
  besides: `, ${Unleased.unleased} AS unleased`,
  over: `w.prune_ms IS NULL
     AND ((w.state = ${state.completed} AND w.finished_at_ms <= s.now - $5::float8::bigint) OR
          (w.state = ${state.dead} AND w.mark = ${mark.dead} AND w.finished_at_ms <= s.now - $6::float8::bigint))`
})

// $1 the last place looked at, `prune_ms/id`, $5 leastMs, the other parameters as above. Jobs with a retention of their
// own, by when they may go at the earliest.
const pruneRetainedSql = pruneSql({
  walk:
    `SELECT id, state, mark, finished_at_ms, retain_ms, prune_ms, concat(prune_ms, '/', id) AS place FROM deadman.job
         WHERE (prune_ms, id) > (split_part($1::text, '/', 1)::bigint, split_part($1::text, '/', 2)::uuid)
           AND prune_ms IS NOT NULL
         ORDER BY prune_ms, id LIMIT $2::int`,
  over: `w.prune_ms <= s.now
     AND (w.state = ${state.completed} OR (w.state = ${state.dead} AND w.mark = ${mark.dead}))
     AND w.finished_at_ms <= s.now - greatest(w.retain_ms, $5::float8::bigint)`
})

// What must be unique is kept for its window, as a key is: whoever is skipped for it must find it.
function pruneSql(
  { besides = "", over, walk }: { readonly walk: string; readonly over: string; readonly besides?: string }
): string {
  return `WITH s AS MATERIALIZED (SELECT deadman.now_ms() AS now),
   w AS MATERIALIZED (SELECT x.*, row_number() OVER () AS n FROM (${walk}) x),
   c AS MATERIALIZED (
     SELECT w.id, w.place, w.n FROM w CROSS JOIN s
     WHERE ${over}
       AND (w.finished_at_ms <= s.now - $4::float8::bigint
            OR NOT EXISTS (SELECT 1 FROM deadman.key k WHERE k.job = w.id))
       AND NOT EXISTS (SELECT 1 FROM deadman.uniqueness q WHERE q.job = w.id AND q.until_ms > s.now)
     ORDER BY w.n LIMIT $3::int
   ),
   o AS MATERIALIZED (
     SELECT id FROM deadman.job
     WHERE id = ANY (ARRAY(SELECT id FROM c)) AND state IN (${state.completed}, ${state.dead})
     ORDER BY id FOR UPDATE SKIP LOCKED
   ),
   d AS (DELETE FROM deadman.job WHERE id = ANY (ARRAY(SELECT id FROM o)) RETURNING id, route, state),
   db AS (DELETE FROM deadman.body WHERE id = ANY (ARRAY(SELECT id FROM d))),
   dg AS (DELETE FROM deadman.journal WHERE id = ANY (ARRAY(SELECT id FROM d))),
   de AS (DELETE FROM deadman.effect WHERE job = ANY (ARRAY(SELECT id FROM d))),
   dk AS (DELETE FROM deadman.key WHERE job = ANY (ARRAY(SELECT id FROM d)) RETURNING key),
   -- One that somebody takes over at the moment is left to him.
   du AS (DELETE FROM deadman.uniqueness WHERE key = ANY (ARRAY(
     SELECT q.key FROM deadman.uniqueness q WHERE q.job = ANY (ARRAY(SELECT id FROM d)) FOR UPDATE SKIP LOCKED
   ))),
   ${tallies(`SELECT route, state, -count(*) AS n FROM d GROUP BY route, state`)}
   SELECT (SELECT count(*)::int FROM d) AS jobs, (SELECT count(*)::int FROM dk) AS keys,
          (SELECT count(*)::int FROM w) AS looked, (SELECT count(*)::int FROM c) AS found,
          (SELECT place FROM w ORDER BY n DESC LIMIT 1) AS last_looked,
          (SELECT place FROM c ORDER BY n DESC LIMIT 1) AS last_found, (SELECT now FROM s)::float8 AS now${besides}`
}

interface PrunedRow {
  readonly jobs: number
  readonly keys: number
  readonly looked: number
  readonly found: number
  readonly last_looked: string | null
  readonly last_found: string | null
  /** Of walks over jobs. */
  readonly now?: number
  readonly unleased?: ReadonlyArray<string>
}

// $1 the last key looked at, $2 rows to look at, $3 keys to delete, $4 keyTtlMs. Keys whose job is no more are orphans.
const pruneKeysSql = `WITH w AS MATERIALIZED (
     SELECT key, job FROM deadman.key WHERE key > $1::text ORDER BY key LIMIT $2::int
   ),
   c AS MATERIALIZED (
     SELECT w.key, w.job FROM w
     LEFT JOIN LATERAL (SELECT state, finished_at_ms FROM deadman.job WHERE id = w.job LIMIT 1) j ON true
     WHERE j.state IS NULL OR (j.state IN (${state.completed}, ${state.dead})
                               AND j.finished_at_ms <= deadman.now_ms() - $4::float8::bigint)
     ORDER BY w.key LIMIT $3::int
   ),
   o AS MATERIALIZED (
     SELECT k.key FROM c CROSS JOIN LATERAL (
       SELECT q.key FROM deadman.key q WHERE q.key = c.key AND q.job = c.job LIMIT 1 FOR UPDATE SKIP LOCKED
     ) k
   ),
   d AS (DELETE FROM deadman.key WHERE key = ANY (ARRAY(SELECT key FROM o)) RETURNING key)
   SELECT 0 AS jobs, (SELECT count(*)::int FROM d) AS keys, (SELECT count(*)::int FROM w) AS looked,
          (SELECT count(*)::int FROM c) AS found, (SELECT key FROM w ORDER BY key DESC LIMIT 1) AS last_looked,
          (SELECT key FROM c ORDER BY key DESC LIMIT 1) AS last_found`

// What was claimed once has no such time any more: a process of before schema 4 leaves it there, and this takes it away.
const expireSql = `WITH s AS MATERIALIZED (SELECT deadman.now_ms() AS now),
   o AS MATERIALIZED (
     SELECT id, state, route, epoch = 0 AND state IN (${state.pending}, ${state.failed}) AS unstarted FROM deadman.job
     WHERE expire_ms <= deadman.statement_ms()
     ORDER BY expire_ms LIMIT $1::int
     FOR NO KEY UPDATE SKIP LOCKED
   ),
   u AS (
     UPDATE deadman.job j
     SET state = ${state.dead}, reason = ${deadReasons.indexOf("expired")}, mark = ${mark.deadUnannounced},
         finished_at_ms = s.now, rank = NULL, wait_ms = NULL, expire_ms = NULL
     FROM s
     WHERE j.id = ANY (ARRAY(SELECT id FROM o WHERE unstarted)) AND j.state IN (${state.pending}, ${state.failed})
     RETURNING j.id
   ),
   c AS (
     UPDATE deadman.job j SET expire_ms = NULL WHERE j.id = ANY (ARRAY(SELECT id FROM o WHERE NOT unstarted))
   ),
   ${
  tallies(
    `SELECT o.route, m.state, m.sign * count(*) AS n
     FROM o JOIN u USING (id) CROSS JOIN LATERAL (VALUES (o.state, -1), (${state.dead}::smallint, 1)) m(state, sign)
     GROUP BY o.route, m.state, m.sign`
  )
}
   SELECT (SELECT count(*)::int FROM u) AS jobs,
          (SELECT min(expire_ms) FROM deadman.job WHERE expire_ms > deadman.statement_ms())::float8 - s.now::float8
            AS next_in_ms
   FROM s`

interface ExpiredRow {
  readonly jobs: number
  readonly next_in_ms: number | null
}

type Chore = "promote" | "promoteIds" | "upcoming" | "expire" | "deadLetters" | "announced" | "prune"
type Chores = Pick<JobStore["Service"], Chore>

export const make = (db: Database["Service"], options: StoreOptions): Chores => {
  const statements = {
    promote: promoteSql(options.wake && options.queued !== true, dueSql),
    promoteIds: promoteSql(options.wake && options.queued !== true, dueAmongSql)
  }
  /** Where the walks are; `null` at their beginning. */
  let jobsFrom: string | null = null
  let jobsTo: string = idMin
  let retainedFrom: string | null = null
  let keysFrom: string | null = null
  let walks = 0
  const unleased = Unleased.make(db, options.wake)

  const toPromoted = (rows: ReadonlyArray<PromotedRow>, limit: number): Promoted => {
    const jobs = rows.flatMap(({ id, ordered, queue, type }) =>
      id === null ? [] : [{ id: id as JobId.JobId, type: type as JobType, queue: queue as Queue, ordered }]
    )
    const nextInMs = rows[0]?.next_in_ms ?? null
    return {
      jobs,
      // A full batch says nothing about what else is due.
      nextInMs: jobs.length >= limit ? 0 : nextInMs === null ? null : Math.max(0, nextInMs),
      announced: (rows[0]?.woken ?? 0) > 0
    }
  }

  const promote: Chores["promote"] = (limit) =>
    db.query<PromotedRow>("read", statements.promote, [limit]).pipe(
      orUnavailable("promote"),
      Effect.map((rows) => toPromoted(rows, limit))
    )

  const promoteIds: Chores["promoteIds"] = (ids) =>
    db.query<PromotedRow>("read", statements.promoteIds, [uuids(ids)]).pipe(
      orUnavailable("promoteIds"),
      Effect.map((rows) => toPromoted(rows, Infinity))
    )

  const upcoming: Chores["upcoming"] = (withinMs, fromMs, limit) =>
    db.query<UpcomingRow>("read", upcomingSql, [long(withinMs), long(fromMs ?? 0), limit]).pipe(
      orUnavailable("upcoming"),
      Effect.map((rows): Upcoming => ({
        nowMs: rows[0]?.now_ms ?? 0,
        jobs: rows.flatMap(({ id, wait_ms }) => id === null ? [] : [{ id: id as JobId.JobId, runAtMs: wait_ms }])
      }))
    )

  const expire: Chores["expire"] = (limit) =>
    db.query<ExpiredRow>("read", expireSql, [limit]).pipe(
      orUnavailable("expire"),
      Effect.map(([row]) => ({
        jobs: row?.jobs ?? 0,
        nextInMs: row === undefined || row.next_in_ms === null ? null : Math.max(0, row.next_in_ms)
      }))
    )

  const deadLetters: Chores["deadLetters"] = (limit) =>
    db.query<LetterRow>("read", lettersSql, [limit]).pipe(
      orUnavailable("deadLetters"),
      Effect.map((rows) =>
        rows.map((row): DeadLetter => ({
          id: row.id as JobId.JobId,
          type: row.type as JobType,
          queue: row.queue as Queue,
          reason: deadReasons[row.reason] ?? "rejected",
          attempts: row.attempts,
          diedAtMs: row.finished_at_ms
        }))
      )
    )

  const announced: Chores["announced"] = (ids) =>
    ids.length === 0 ? Effect.void : db.query("read", announcedSql, [uuids(ids)]).pipe(
      orUnavailable("announced"),
      Effect.asVoid
    )

  const pruneJobs = Effect.fnUntraced(function*(completedMs: number, deadMs: number, limit: number) {
    if (jobsFrom === null) {
      const [clock] = yield* db.query<{ ms: number }>("read", `SELECT deadman.now_ms()::float8 AS ms`)
      const oldEnough = (clock?.ms ?? 0) - Math.min(completedMs, deadMs) + skewMs
      jobsTo = walks % fullWalkEvery === 0 || unleased.waits()
        ? "ffffffff-ffff-ffff-ffff-ffffffffffff"
        : JobId.make(oldEnough, zeros)
      jobsFrom = idMin
      walks += 1
    }
    const [row] = yield* db.query<PrunedRow>("read", pruneJobsSql, [
      jobsFrom,
      examineMax,
      limit,
      long(options.keyTtlMs),
      long(completedMs),
      long(deadMs)
    ])
    jobsFrom = onward(row, limit, jobsTo)
    yield* unleased.found(row?.unleased ?? [], walks)
    return row
  })

  const pruneRetained = Effect.fnUntraced(function*(leastMs: number, limit: number) {
    const [row] = yield* db.query<PrunedRow>("read", pruneRetainedSql, [
      retainedFrom ?? `0/${idMin}`,
      examineMax,
      limit,
      long(options.keyTtlMs),
      long(leastMs)
    ])
    const next = onward(row, limit, null)
    // Nothing behind this may go yet.
    retainedFrom = next !== null && Number.parseInt(next, 10) > (row?.now ?? 0) ? null : next
    return row
  })

  const pruneKeys = Effect.fnUntraced(function*(limit: number) {
    const [row] = yield* db.query<PrunedRow>("read", pruneKeysSql, [
      keysFrom ?? "",
      examineMax,
      limit,
      long(options.keyTtlMs)
    ])
    keysFrom = onward(row, limit, null)
    return row
  })

  // Jobs first: what they leave of keys is for the second walk. A walk that has not come to its end has more to do.
  const prune: Chores["prune"] = Effect.fn("JobStorePostgres.prune")(function*(
    { completedMs, deadMs, leastMs = keptLeastMs, limit }
  ) {
    const jobs = yield* orUnavailable("prune")(pruneJobs(completedMs, deadMs, limit))
    const retained = yield* orUnavailable("prune")(pruneRetained(leastMs, limit))
    const keys = yield* orUnavailable("prune")(pruneKeys(limit))
    yield* Tally.compact(db)
    return {
      jobs: (jobs?.jobs ?? 0) + (retained?.jobs ?? 0),
      keys: (jobs?.keys ?? 0) + (retained?.keys ?? 0) + (keys?.keys ?? 0),
      more: jobsFrom !== null || retainedFrom !== null || keysFrom !== null
    }
  })

  return { promote, promoteIds, upcoming, expire, deadLetters, announced, prune }
}

const zeros = new Uint8Array(10)

/** Where a walk goes on: behind what was deleted if that was all it may, else behind what it has looked at. */
const onward = (row: PrunedRow | undefined, limit: number, end: string | null): string | null => {
  if (row === undefined) {
    return null
  }
  if (row.found >= limit) {
    return row.last_found
  }
  const ended = row.looked < examineMax || row.last_looked === null || (end !== null && row.last_looked >= end)
  return ended ? null : row.last_looked
}
