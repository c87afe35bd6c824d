/**
 * The statements of `Leases.ts`.
 *
 * Locks are taken in one order everywhere: rows of leases by id, then rows of jobs by id.
 */
import { lossBaseMs, lossCapMs } from "../../../domain/Backoff.ts"
import { deadReasons } from "../../../domain/JobState.ts"
import { journals, lostEpochs, mark, state, type StoreOptions, tallies, wakes } from "./Rows.ts"

export const endLeases = `DELETE FROM deadman.lease l
  WHERE l.id = ANY (ARRAY(
    SELECT q.id FROM deadman.lease q WHERE q.id = ANY ($1::uuid[]) ORDER BY q.id FOR UPDATE
  ))
    AND NOT EXISTS (
      SELECT 1 FROM unnest(l.job_ids) i(id)
      JOIN deadman.job j ON j.id = i.id AND j.lease = l.id AND j.state = ${state.running}
    )`

export interface VerifiedRow {
  readonly id: string
  readonly revoked: ReadonlyArray<{ readonly id: string; readonly epoch: number; readonly reason: string }> | null
  readonly ids: ReadonlyArray<string>
  readonly epochs: ReadonlyArray<number>
}

export const verify = `WITH o AS MATERIALIZED (
    SELECT q.id FROM deadman.lease q WHERE q.id = ANY ($1::uuid[]) ORDER BY q.id FOR NO KEY UPDATE
  ),
  l AS (
    UPDATE deadman.lease q SET token = q.token + 1, seen_at_ms = deadman.now_ms(), lapsed = false
    WHERE q.id = ANY (ARRAY(SELECT id FROM o))
    RETURNING q.id, q.revoked, q.job_ids
  )
  SELECT l.id, l.revoked, coalesce(a.ids, '{}') AS ids, coalesce(a.epochs, '{}') AS epochs
  FROM l CROSS JOIN LATERAL (
    SELECT array_agg(j.id ORDER BY j.id) AS ids, array_agg(j.epoch ORDER BY j.id) AS epochs
    FROM unnest(l.job_ids) i(id)
    JOIN deadman.job j ON j.id = i.id AND j.lease = l.id AND j.state = ${state.running}
  ) a`

export interface LookRow {
  readonly incarnation: string
  readonly id: string | null
  readonly lease_ms: number
  readonly token: string
  readonly worker: string
  readonly jobs: number
}

/** One row without a lease where there is none: the incarnation is wanted all the same. */
export const look = `SELECT s.incarnation, l.id, l.lease_ms, l.token::text AS token, l.worker,
         cardinality(l.job_ids) AS jobs
  FROM (
    SELECT concat_ws('/', m.incarnation, extract(epoch FROM pg_postmaster_start_time())) AS incarnation
    FROM deadman.meta m
  ) s
  LEFT JOIN deadman.lease l ON true`

/**
 * $1 leases, and `only` which of them. The claim stays on the row as the one that settled it: a late outcome under it
 * is a repeat.
 */
const abandon = (wake: boolean, only = "") =>
  `WITH l AS MATERIALIZED (
    SELECT q.id, q.job_ids FROM deadman.lease q WHERE q.id = ANY ($1::uuid[])${only} ORDER BY q.id FOR UPDATE
  ),
  i AS MATERIALIZED (
    SELECT i.id, l.id AS lease FROM l CROSS JOIN unnest(l.job_ids) i(id) ORDER BY i.id
  ),
  u AS (
    UPDATE deadman.job j
    SET state = ${state.pending},
        rank  = j.run_at_ms - j.priority * r.step_ms
    FROM i CROSS JOIN LATERAL (
      SELECT r.step_ms FROM deadman.job q JOIN deadman.route r ON r.id = q.route WHERE q.id = i.id LIMIT 1
    ) r
    WHERE j.id = i.id AND j.lease = i.lease AND j.state = ${state.running}
    RETURNING j.route
  ),
  d AS (DELETE FROM deadman.lease q WHERE q.id = ANY (ARRAY(SELECT l.id FROM l)) RETURNING q.id),
  ${
    tallies(
      `SELECT route, m.state, m.sign * count(*) AS n
       FROM u CROSS JOIN (VALUES (${state.running}, -1), (${state.pending}, 1)) m(state, sign)
       GROUP BY route, m.state, m.sign`
    )
  },
  ${wakes(wake, "SELECT 'r' AS kind FROM u")}
  SELECT (SELECT count(*)::int FROM d) AS ended, (SELECT count(*)::int FROM n) AS woken`

export interface ReclaimedRow {
  readonly lease: string
  readonly worker: string
  readonly ids: ReadonlyArray<string>
  readonly types: ReadonlyArray<string>
  readonly states: ReadonlyArray<number>
}

// $1 leases, $2 tokens, $3 whether the losses count, $4 how many of those a job may have. A row goes only if its token
// is the one that was watched, and with it, in this statement, every job that runs under it. Where somebody has one of
// these locked the lease is passed over, without a wait: one that is locked must not hold up the others.
const reclaim = (wake: boolean) =>
  `WITH o AS MATERIALIZED (
    SELECT l.id, l.job_ids FROM deadman.lease l JOIN unnest($1::uuid[], $2::text[]) x(id, token)
      ON l.id = x.id AND l.token = x.token::bigint
    ORDER BY l.id FOR UPDATE OF l
  ),
  h AS MATERIALIZED (
    SELECT i.id, o.id AS lease FROM o CROSS JOIN unnest(o.job_ids) i(id) ORDER BY i.id
  ),
  b AS MATERIALIZED (
    SELECT h.lease FROM h
    LEFT JOIN LATERAL (
      SELECT true AS ours FROM deadman.job q WHERE q.id = h.id AND q.lease = h.lease AND q.state = ${state.running}
      FOR NO KEY UPDATE SKIP LOCKED
    ) k ON true
    CROSS JOIN LATERAL (
      SELECT FROM deadman.job q WHERE q.id = h.id AND q.lease = h.lease AND q.state = ${state.running} LIMIT 1
    ) q
    WHERE k.ours IS NULL
  ),
  d AS (
    DELETE FROM deadman.lease l USING unnest($1::uuid[], $2::text[]) x(id, token)
    WHERE l.id = x.id AND l.token = x.token::bigint
      AND l.id = ANY (ARRAY(SELECT o.id FROM o WHERE o.id <> ALL (ARRAY(SELECT b.lease FROM b))))
    RETURNING l.id, l.worker, l.claimed_at_ms, l.seen_at_ms, l.job_ids
  ),
  s AS MATERIALIZED (SELECT deadman.now_ms() AS now),
  i AS MATERIALIZED (
    SELECT i.id, d.id AS lease, d.worker, d.claimed_at_ms, d.seen_at_ms, s.now
    FROM d CROSS JOIN unnest(d.job_ids) i(id) CROSS JOIN s
    ORDER BY i.id
  ),
  u AS (
    UPDATE deadman.job j
    SET lease          = NULL,
        losses         = least(j.losses + 1, 32767),
        losses_counted = least(j.losses_counted + $3::boolean::int, 32767),
        lost_epochs    = ${lostEpochs("j")},
        state          = CASE WHEN c.crashed THEN ${state.dead} ELSE ${state.pending} END,
        reason         = CASE WHEN c.crashed THEN ${deadReasons.indexOf("crash_loop")} END,
        mark           = CASE WHEN c.crashed THEN ${mark.deadUnannounced} END,
        finished_at_ms = CASE WHEN c.crashed THEN i.now END,
        wait_ms        = CASE WHEN NOT c.crashed THEN
                           i.now + floor(random() * least(${lossCapMs}, ${lossBaseMs} * 2 ^ least(j.losses, 32)))::bigint
                         END
    FROM i CROSS JOIN LATERAL (
      SELECT $3::boolean AND q.losses_counted + 1 >= $4::int AS crashed FROM deadman.job q WHERE q.id = i.id LIMIT 1
    ) c
    WHERE j.id = i.id AND j.lease = i.lease AND j.state = ${state.running}
    RETURNING j.id, j.route, j.state, j.epoch, i.lease, i.worker, i.claimed_at_ms, i.seen_at_ms, i.now
  ),
  ${
    journals(
      `SELECT u.id, NULL::jsonb AS result, NULL::jsonb AS error,
              jsonb_build_object('kind', 'lease_lost', 'epoch', u.epoch, 'worker', u.worker, 'at_ms', u.now,
                'claimed_at_ms', u.claimed_at_ms, 'last_seen_ms', u.seen_at_ms, 'counted', $3::boolean) AS event
       FROM u`
    )
  },
  ${
    tallies(
      `SELECT route, ${state.running} AS state, -count(*) AS n FROM u GROUP BY route
       UNION ALL
       SELECT route, u.state, count(*) FROM u GROUP BY route, u.state`
    )
  },
  ${wakes(wake, `SELECT 'd' AS kind FROM u WHERE u.state = ${state.pending}`)}
  SELECT d.id AS lease, d.worker, coalesce(a.ids, '{}') AS ids, coalesce(a.types, '{}') AS types,
         coalesce(a.states, '{}') AS states, (SELECT count(*)::int FROM n) AS woken
  FROM d LEFT JOIN (
    SELECT u.lease, array_agg(u.id) AS ids, array_agg(r.type) AS types, array_agg(u.state::int) AS states
    FROM u JOIN deadman.route r ON r.id = u.route
    GROUP BY u.lease
  ) a ON a.lease = d.id`

export const standing = `SELECT id, token::text AS token FROM deadman.lease WHERE id = ANY ($1::uuid[])`

export const make = (options: StoreOptions) => ({
  abandon: abandon(options.wake),
  // $2 the token. Where a recall has the row locked this waits, and looks at what that has left.
  handBack: abandon(options.wake, " AND q.token = $2::text::bigint"),
  reclaim: reclaim(options.wake)
})
