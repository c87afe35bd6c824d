/**
 * The statements of `Claim.ts`.
 *
 * Rows are found by comparing (route, rank) as a whole, never by `route = x`: without statistics Postgres takes the
 * equality for a handful of rows and sorts all that is ready for each claim.
 */
import { suspectLosses } from "../../../domain/Claim.ts"
import { stepDefaultMs } from "../../../domain/Rank.ts"
import { bodyOf, claimedColumns, type ClaimedRow, state, tallies } from "./Rows.ts"

// Parameters of both claims: $1 lease, $2 lease_ms, $3 worker, $4 types, $5 queues or null, $6 limit, $7 bytes,
// $8 the losses from which a job is not to be taken. `claim` adds $9 the lowest rank to look at and $10 ready_for_ms or
// null, `claimWithRooms` besides $11 queues with a limit and $12 the room of each, and `claimIds` $9 ids and $10 queues
// with a limit or null.

// Asked anew by each statement: after a failover a route's number may belong to another type.
const routes = `r AS MATERIALIZED (
    SELECT id, type, queue, step_ms FROM deadman.route
    WHERE type = ANY ($4::text[]) AND NOT paused AND ($5::text[] IS NULL OR queue = ANY ($5::text[]))
  )`

const routesWithRooms = `r AS MATERIALIZED (
    SELECT q.id, q.type, q.queue, q.step_ms, x.room
    FROM deadman.route q LEFT JOIN unnest($11::text[], $12::int[]) x(queue, room) ON x.queue = q.queue
    WHERE q.type = ANY ($4::text[]) AND NOT q.paused AND ($5::text[] IS NULL OR q.queue = ANY ($5::text[]))
      AND coalesce(x.room, 1) > 0
  )`

// What must keep its place in the order is not taken because a message about it has come.
const routesById = `r AS MATERIALIZED (
    SELECT id, type, queue, step_ms FROM deadman.route
    WHERE type = ANY ($4::text[]) AND NOT paused AND ($5::text[] IS NULL OR queue = ANY ($5::text[]))
      AND step_ms = ${stepDefaultMs} AND ($10::text[] IS NULL OR queue <> ALL ($10::text[]))
  )`

const readyFor = "AND ($10::bigint IS NULL OR q.run_at_ms <= deadman.statement_ms() - $10::bigint)"

/**
 * Whether it may still start, of a job `q`. Two instants are compared: to ask `deadman.statement_ms()` of each row makes a
 * walk past many whose time is over half as long again, and to ask it once costs every claim.
 */
export const inTime =
  "(q.expire_ms IS NULL OR q.epoch > 0 OR to_timestamp(q.expire_ms::float8 / 1000) > statement_timestamp())"

const head = (columns: string, route: string, limit: string, lock: string, only = readyFor) =>
  `SELECT ${columns} FROM deadman.job q
   WHERE (q.route, q.rank) >= (${route}, $9::bigint) AND (q.route, q.rank) <= (${route}, 9223372036854775807)
     AND q.rank IS NOT NULL
     AND q.losses < $8::int
     AND ${inTime}
     ${only}
   ORDER BY q.route, q.rank, q.id
   LIMIT ${limit} ${lock}`

const locked = "q.id, q.route, q.rank, q.state, q.bytes, q.losses"

// Of several routes, first count (without locks) how many rows of each belong to the head, then lock only so many.
const byRank = `h AS MATERIALIZED (
    SELECT f.route, f.rank FROM r
    CROSS JOIN LATERAL (${head("q.route, q.rank, q.id", "r.id", "$6::int", "")}) f
    WHERE (SELECT count(*) FROM r) > 1
    ORDER BY f.rank, f.id LIMIT $6::int
  ),
  k AS MATERIALIZED (
    SELECT id AS route, $6::bigint AS k FROM r WHERE (SELECT count(*) FROM r) = 1
    UNION ALL
    SELECT route, count(*) FROM h GROUP BY route
  ),
  c AS MATERIALIZED (
    SELECT f.* FROM k CROSS JOIN LATERAL (${head(locked, "k.route", "k.k", "FOR NO KEY UPDATE SKIP LOCKED")}) f
  )`

// The same where queues have a limit: of each of them, over all of its routes, so many as there is room for.
const byRankWithRooms = `h AS MATERIALIZED (
    SELECT f.route, f.rank, f.n = f.room AS last FROM (
      SELECT f.*, r.room, row_number() OVER (PARTITION BY r.queue ORDER BY f.rank, f.id) AS n
      FROM r CROSS JOIN LATERAL (${head("q.route, q.rank, q.id", "r.id", "least($6::int, r.room)", "")}) f
    ) f
    WHERE f.room IS NULL OR f.n <= f.room
    ORDER BY f.rank, f.id LIMIT $6::int
  ),
  k AS MATERIALIZED (SELECT route, count(*) AS k FROM h GROUP BY route),
  c AS MATERIALIZED (
    SELECT f.* FROM k CROSS JOIN LATERAL (${head(locked, "k.route", "k.k", "FOR NO KEY UPDATE SKIP LOCKED")}) f
  )`

const byId = `i AS MATERIALIZED (
    SELECT q.id, q.route, q.rank, q.state, q.bytes, q.losses, q.run_at_ms, q.priority FROM deadman.job q
    WHERE q.id = ANY ($9::uuid[]) AND (q.rank IS NOT NULL OR q.wait_ms <= deadman.statement_ms()) AND q.priority = 0
      AND ${inTime}
    ORDER BY q.id FOR NO KEY UPDATE SKIP LOCKED
  ),
  c AS MATERIALIZED (
    SELECT i.id, i.route, coalesce(i.rank, i.run_at_ms - i.priority * r.step_ms) AS rank, i.state, i.bytes, i.losses
    FROM i JOIN r ON r.id = i.route
    WHERE i.losses < $8::int
  )`

/** `l`, the lease, and `u`, the jobs of `e` under it: none where the lease is there. */
const writing = (returned: string) =>
  `s AS MATERIALIZED (SELECT deadman.now_ms() AS now),
  l AS (
    INSERT INTO deadman.lease (id, claimed_at_ms, seen_at_ms, lease_ms, worker, job_ids)
    SELECT $1::uuid, s.now, s.now, $2::int, $3::text, ARRAY(SELECT id FROM e)
    FROM s WHERE EXISTS (SELECT 1 FROM e)
    ON CONFLICT (id) DO NOTHING
    RETURNING id
  ),
  u AS (
    UPDATE deadman.job j
    SET state         = ${state.running},
        rank          = NULL,
        wait_ms       = NULL,
        expire_ms     = NULL,
        mark          = NULL,
        epoch         = j.epoch + 1,
        deliveries    = j.deliveries + 1,
        started_at_ms = (SELECT now FROM s),
        worker        = $3::text,
        lease         = $1::uuid,
        settled_epoch = CASE WHEN j.lease IS NULL THEN j.settled_epoch ELSE j.epoch END,
        settled_lease = coalesce(j.lease, j.settled_lease)
    WHERE j.id = ANY (ARRAY(SELECT id FROM e)) AND EXISTS (SELECT 1 FROM l)
    RETURNING j.id, j.epoch, j.route, j.attempts, j.deliveries, j.losses, j.started_at_ms, ${returned}
  )`

// What is taken of what was locked: a suspect alone, if it is the first; else no suspect, and as many as there is room
// for. A claim that was sent twice takes nothing the second time, since the lease is there.
const taking = `o AS MATERIALIZED (
    SELECT c.*, row_number() OVER w AS n, first_value(c.losses) OVER w AS first_losses,
           count(*) FILTER (WHERE c.losses < ${suspectLosses}) OVER w AS m,
           sum(c.bytes) FILTER (WHERE c.losses < ${suspectLosses}) OVER w AS total
    FROM c WINDOW w AS (ORDER BY c.rank, c.id)
  ),
  e AS MATERIALIZED (
    SELECT o.* FROM o
    WHERE CASE WHEN o.first_losses >= ${suspectLosses} THEN o.n = 1
               ELSE o.losses < ${suspectLosses} AND (o.m = 1 OR (o.total <= $7::float8 AND o.m <= $6::int)) END
  ),
  ${writing("j.run_at_ms")},
  ${
  tallies(
    `SELECT route, state, -count(*) AS n FROM e WHERE EXISTS (SELECT 1 FROM l) GROUP BY route, state
     UNION ALL
     SELECT route, ${state.running}, count(*) FROM u GROUP BY route`
  )
}`

export interface RankedRow extends ClaimedRow {
  readonly rank: number
}

export interface RoomedRow extends RankedRow {
  /** Of a head that was cut some were others' when they were to be locked: there may be more behind it. */
  readonly more: boolean
}

const taken = `SELECT ${claimedColumns}, e.rank::float8 AS rank
  FROM u j JOIN e ON e.id = j.id JOIN r ON r.id = j.route CROSS JOIN ${bodyOf("j")}
  ORDER BY e.rank, e.id`

// The one row that there always is has no `id` where nothing was taken. `claim` is told by `claimAll`, and does without.
const takenWithRooms = `SELECT m.more, f.*
  FROM (
    SELECT (n.h >= $6::int OR n.last) AND (SELECT count(*) FROM c) < n.h AS more
    FROM (SELECT count(*) AS h, coalesce(bool_or(last), false) AS last FROM h) n
  ) m
  LEFT JOIN (${taken}) f ON true
  ORDER BY f.rank, f.id`

export interface GlancedRow {
  readonly ready: boolean
}

/** $1 types, $2 queues or null. Past entries that are dead but not cleaned, and nothing else. */
export const glance = `SELECT EXISTS (
    SELECT 1 FROM deadman.route r
    CROSS JOIN LATERAL (
      SELECT 1 FROM deadman.job q
      WHERE (q.route, q.rank) >= (r.id, -9223372036854775808) AND (q.route, q.rank) <= (r.id, 9223372036854775807)
        AND q.rank IS NOT NULL
      ORDER BY q.route, q.rank, q.id
      LIMIT 1
    ) f
    WHERE r.type = ANY ($1::text[]) AND NOT r.paused AND ($2::text[] IS NULL OR r.queue = ANY ($2::text[]))
  ) AS ready`

export const claim = `WITH ${routes}, ${byRank}, ${taking} ${taken}`

export const claimWithRooms = `WITH ${routesWithRooms}, ${byRankWithRooms}, ${taking} ${takenWithRooms}`

export interface AllRow extends ClaimedRow {
  /** Whether all that was found was taken; if not, none of it. */
  readonly whole: boolean
  /** Whether there is more than one route. */
  readonly several: boolean
  /** By which jobs start. */
  readonly rank: number
}

/**
 * All that is ready, where that is few and takes no thought: none of it a suspect, and together no more than was asked
 * for. Then nothing needs to be put into order beforehand, which is a quarter of what `claim` costs. The one row that
 * there always is has no `id` where nothing was taken. $1 to $9 as in `claim`.
 *
 * What is locked and not taken would be passed over by others who were woken for it. So of several routes it first counts
 * without locks, and the form that does not know of several takes nothing where there are.
 */
export const claimAll = (several: boolean): string => {
  const isFew = several ? "(SELECT few FROM n)" : "(SELECT count(*) < 2 FROM r)"
  return `WITH ${routes},
  ${
    several
      ? `n AS MATERIALIZED (
    SELECT count(*) <= $6::int AS few FROM (
      SELECT 1 FROM r CROSS JOIN LATERAL (${head("1", "r.id", "$6::int", "", "")}) f LIMIT $6::int + 1
    ) f
  ),`
      : ""
  }
  c AS MATERIALIZED (
    SELECT f.* FROM r CROSS JOIN LATERAL (${head(locked, "r.id", "$6::int", "FOR NO KEY UPDATE SKIP LOCKED", "")}) f
    WHERE ${isFew}
  ),
  a AS MATERIALIZED (
    SELECT ${isFew} AND coalesce(
      max(losses) < ${suspectLosses} AND count(*) <= $6::int AND (count(*) = 1 OR sum(bytes) <= $7::float8), true
    ) AS whole FROM c
  ),
  e AS MATERIALIZED (SELECT c.id, c.route, c.state FROM c CROSS JOIN a WHERE a.whole),
  ${writing("j.run_at_ms, j.priority")},
  ${
    tallies(
      `SELECT e.route, m.state, m.sign * e.n AS n
     FROM (SELECT route, state, count(*) AS n FROM e WHERE EXISTS (SELECT 1 FROM l) GROUP BY route, state) e
     CROSS JOIN LATERAL (VALUES (e.state, -1), (${state.running}::smallint, 1)) m(state, sign)`
    )
  }
  SELECT a.whole, (SELECT count(*) > 1 FROM r) AS several, f.*
  FROM a LEFT JOIN (
    SELECT ${claimedColumns}, (j.run_at_ms - j.priority * r.step_ms)::float8 AS rank
    FROM u j JOIN r ON r.id = j.route CROSS JOIN ${bodyOf("j")}
  ) f ON true`
}

export const claimIds = `WITH ${routesById}, ${byId}, ${taking} ${taken}`

/**
 * $1 a worker's name. What its claims count must not change until one of them has committed, so they come one after the
 * other, each in a statement of its own behind this one: it sees what was committed before.
 */
export const nameLock = `SELECT pg_advisory_xact_lock(hashtextextended('deadman.worker ' || $1::text, 0))`

export interface RoomRow {
  readonly queue: string
  readonly room: number
}

/** $1 a worker's name: what the limits leave beside what runs under its leases. */
export const roomsOf = `SELECT q.name AS queue, greatest(0, q.concurrency - coalesce(h.n, 0))::int AS room
  FROM deadman.queue q
  LEFT JOIN (
    SELECT r.queue, count(*) AS n
    FROM deadman.lease l
    CROSS JOIN unnest(l.job_ids) i(id)
    JOIN deadman.job j ON j.id = i.id AND j.lease = l.id AND j.state = ${state.running}
    JOIN deadman.route r ON r.id = j.route
    WHERE l.worker = $1::text
    GROUP BY 1
  ) h ON h.queue = q.name
  WHERE q.concurrency IS NOT NULL`

export interface LeftRow {
  readonly id: string
  /** `null` where it is ready. */
  readonly wait_ms: number | null
  /** `null` where it need not be claimed in order. */
  readonly in_order: string | null
}

/** Of ids that a claim has left: those that wait for a time, and those that are ready. $2 types, $3 limited queues. */
export const left = `SELECT q.id, q.wait_ms::float8 AS wait_ms,
         CASE WHEN q.rank IS NOT NULL AND (q.priority <> 0 OR r.step_ms <> ${stepDefaultMs} OR r.queue = ANY ($3::text[]))
              THEN r.queue END AS in_order
  FROM deadman.job q JOIN deadman.route r ON r.id = q.route
  WHERE q.id = ANY ($1::uuid[])
    AND (q.wait_ms > deadman.now_ms() OR (q.rank IS NOT NULL AND NOT r.paused AND r.type = ANY ($2::text[])))`

export interface RecalledRow extends ClaimedRow {
  readonly token: string
}

/** $1 lease. The token moves, so that a reaper that watched it begins anew. */
export const recall = `WITH l AS (
    UPDATE deadman.lease SET token = token + 1, seen_at_ms = deadman.now_ms()
    WHERE id = $1::uuid AND NOT lapsed
    RETURNING id, job_ids, token
  )
  SELECT ${claimedColumns}, l.token::text AS token
  FROM l CROSS JOIN unnest(l.job_ids) i(id)
  JOIN deadman.job j ON j.id = i.id AND j.lease = l.id AND j.state = ${state.running}
  JOIN deadman.route r ON r.id = j.route
  CROSS JOIN ${bodyOf("j")}
  ORDER BY j.run_at_ms - j.priority * r.step_ms, j.id`
