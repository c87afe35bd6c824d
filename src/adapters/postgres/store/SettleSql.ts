/** The statements of `Settle.ts`. */
import { deadReasons } from "../../../domain/JobState.ts"
import type { Settlement } from "../../../domain/Outcome.ts"
import { dueSoonMs, journals, mark, state, type StoreOptions, tallies, wakes } from "./Rows.ts"

/** What a step is called in the statements. */
export const stepCode = { complete: 0, fail: 1, die: 2, release: 3, again: 4 } as const satisfies Record<
  Settlement["step"],
  number
>

export const reasonCode = (reason: Settlement["reason"]): number | null =>
  reason === null ? null : deadReasons.indexOf(reason)

/**
 * `few`: its plan is kept, so that the rows must be found by their ids whatever the planner believed about the size of
 * the table.
 */
export type Size = "few" | "many"

/** The places, from 1, of the settlements that found no claim of theirs. */
export interface MissedRow {
  readonly missed: ReadonlyArray<number> | null
}

// Rows are locked in the order of their ids, so that two settles cannot wait for each other. The careful form takes
// only rows that nobody has locked.
const claims = (columns: string, careful: boolean) =>
  `s AS MATERIALIZED (SELECT deadman.now_ms() AS now),
   x AS MATERIALIZED (SELECT x.*, s.now FROM s CROSS JOIN ${columns} ORDER BY x.id)${
    careful
      ? `,
   c AS MATERIALIZED (
     SELECT q.id FROM deadman.job q WHERE q.id = ANY (ARRAY(SELECT x.id FROM x)) ORDER BY q.id
     FOR NO KEY UPDATE SKIP LOCKED
   )`
      : ""
  }`

const fence = (size: Size, careful: boolean) =>
  `WHERE j.id = x.id AND j.epoch = x.epoch AND j.lease = x.lease AND j.state = ${state.running}${
    careful
      ? " AND j.id = ANY (ARRAY(SELECT c.id FROM c))"
      : size === "few"
      ? " AND j.id = ANY (ARRAY(SELECT q.id FROM x q))"
      : ""
  }`

// Nearly always none, and then it costs two counts.
const missed = `SELECT CASE WHEN (SELECT count(*) FROM u) < (SELECT count(*) FROM x)
                            THEN ARRAY(SELECT x.ord::int FROM x EXCEPT SELECT u.ord::int FROM u) END AS missed,
                       (SELECT count(*)::int FROM n) AS woken`

/** Nothing but completions without a result: one column changes besides the state. $1 ids, $2 epochs, $3 leases. */
const completed = (size: Size, careful: boolean) =>
  `WITH ${claims("unnest($1::uuid[], $2::int[], $3::uuid[]) WITH ORDINALITY AS x(id, epoch, lease, ord)", careful)},
   u AS (
     UPDATE deadman.job j SET state = ${state.completed}, finished_at_ms = x.now
     FROM x ${fence(size, careful)}
     RETURNING x.ord, j.route
   ),
   ${
    tallies(
      `SELECT a.route, m.state, m.sign * a.n AS n
       FROM (SELECT route, count(*) AS n FROM u GROUP BY route) a
       CROSS JOIN (VALUES (${state.running}, -1), (${state.completed}, 1)) m(state, sign)`
    )
  },
   ${wakes(false, "")}
   ${missed}`

// $4 steps, $5 reasons, $6 delay_ms, $7 results, $8 names and $9 messages of failures, $10 recorded.
const any = (size: Size, careful: boolean, wake: boolean) =>
  `WITH ${
    claims(
      `unnest($1::uuid[], $2::int[], $3::uuid[], $4::int[], $5::int[], $6::float8[], $7::text[], $8::text[],
              $9::text[], $10::boolean[]) WITH ORDINALITY
         AS x(id, epoch, lease, step, reason, delay_ms, result, name, message, recorded, ord)`,
      careful
    )
  },
   v AS MATERIALIZED (
     SELECT x.*, x.now + x.delay_ms::bigint AS due_ms,
            CASE x.step WHEN ${stepCode.complete} THEN ${state.completed} WHEN ${stepCode.fail} THEN ${state.failed}
                        WHEN ${stepCode.die} THEN ${state.dead} ELSE ${state.pending} END AS state
     FROM x
     ORDER BY x.id
   ),
   u AS (
     UPDATE deadman.job j
     SET state          = x.state,
         finished_at_ms = CASE WHEN x.step IN (${stepCode.complete}, ${stepCode.die}) THEN x.now END,
         attempts       = j.attempts + (x.step IN (${stepCode.fail}, ${stepCode.die}))::int,
         reason         = x.reason,
         mark           = CASE x.step WHEN ${stepCode.fail} THEN ${mark.failed}
                                      WHEN ${stepCode.die} THEN ${mark.deadUnannounced} END,
         run_at_ms      = CASE WHEN x.step IN (${stepCode.fail}, ${stepCode.again}) THEN x.due_ms ELSE j.run_at_ms END,
         wait_ms        = CASE WHEN x.step IN (${stepCode.fail}, ${stepCode.again}) AND x.delay_ms > 0 THEN x.due_ms END,
         rank           = CASE WHEN x.step = ${stepCode.release} THEN j.run_at_ms - j.priority * r.step_ms
                               WHEN x.step IN (${stepCode.fail}, ${stepCode.again}) AND x.delay_ms <= 0
                               THEN x.due_ms - j.priority * r.step_ms END
     FROM v x CROSS JOIN LATERAL (
       SELECT r.step_ms FROM deadman.job q JOIN deadman.route r ON r.id = q.route WHERE q.id = x.id LIMIT 1
     ) r
     ${fence(size, careful)}
     RETURNING x.ord, j.id, j.route, j.state, j.attempts, j.epoch, j.worker, j.started_at_ms, x.step, x.now, x.due_ms,
               x.result, x.name, x.message, x.recorded
   ),
   ${
    journals(
      `SELECT u.id, u.result::jsonb AS result,
              CASE WHEN u.name IS NOT NULL THEN jsonb_build_object(
                'attempt', u.attempts, 'epoch', u.epoch, 'worker', u.worker, 'claimed_at_ms', u.started_at_ms,
                'at_ms', u.now, 'name', u.name, 'message', u.message) END AS error,
              CASE WHEN u.recorded THEN jsonb_build_object(
                'kind', 'released', 'epoch', u.epoch, 'worker', u.worker, 'at_ms', u.now) END AS event
       FROM u
       WHERE u.result IS NOT NULL OR u.name IS NOT NULL OR u.recorded`
    )
  },
   ${
    tallies(
      `SELECT route, ${state.running} AS state, -count(*) AS n FROM u GROUP BY route
       UNION ALL
       SELECT route, u.state, count(*) FROM u GROUP BY route, u.state`
    )
  },
   ${
    wakes(
      wake,
      `SELECT CASE WHEN u.state NOT IN (${state.pending}, ${state.failed}) THEN NULL
                   WHEN u.step = ${stepCode.release} OR u.due_ms <= u.now THEN 'r'
                   WHEN u.due_ms <= u.now + ${dueSoonMs} THEN 'd' END AS kind FROM u`
    )
  }
   ${missed}`

const ofSize = (size: Size, { wake }: StoreOptions) => ({
  completed: completed(size, false),
  completedCareful: completed(size, true),
  any: any(size, false, wake),
  anyCareful: any(size, true, wake)
})

export const make = (options: StoreOptions) => ({ few: ofSize("few", options), many: ofSize("many", options) })

export interface FoundRow {
  readonly ord: number
  readonly current: number
  readonly running: boolean
  readonly ours: boolean
  readonly settled_epoch: number | null
  readonly settled_ours: boolean
  readonly lost: boolean
}

/** What is on record about a claim that the settle did not find. No row: the job was pruned. */
export const find = `SELECT x.ord::int AS ord, j.epoch AS current, j.state = ${state.running} AS running,
         coalesce(j.lease = x.lease, false) AS ours, j.settled_epoch,
         coalesce(j.settled_lease = x.lease, false) AS settled_ours,
         coalesce(x.epoch = ANY (j.lost_epochs), false) AS lost
  FROM unnest($1::uuid[], $2::int[], $3::uuid[]) WITH ORDINALITY AS x(id, epoch, lease, ord)
  JOIN deadman.job j ON j.id = x.id`

/** Counts refused writes and shows the last of each job: $1 ids, $2 epochs, $3 leases, $4 outcomes. */
export const recordStale = `WITH x AS MATERIALIZED (
    SELECT x.id, max(x.epoch) AS epoch, (array_agg(x.lease ORDER BY x.epoch DESC))[1] AS lease,
           (array_agg(x.outcome ORDER BY x.epoch DESC))[1] AS outcome, count(*)::int AS n
    FROM unnest($1::uuid[], $2::int[], $3::uuid[], $4::text[]) x(id, epoch, lease, outcome)
    GROUP BY x.id
    ORDER BY x.id
  ),
  u AS (
    UPDATE deadman.job j SET stale = least(j.stale + x.n, 32767)
    FROM x WHERE j.id = x.id
    RETURNING j.id, j.epoch AS current, x.epoch, x.lease, x.outcome
  ),
  ${
  journals(
    `SELECT u.id, NULL::jsonb AS result, NULL::jsonb AS error,
            jsonb_build_object('kind', 'stale_write', 'epoch', u.epoch,
              'worker', coalesce(
                (SELECT l.worker FROM deadman.lease l WHERE l.id = u.lease),
                (SELECT t.e ->> 'worker' FROM deadman.journal g CROSS JOIN jsonb_array_elements(g.events) t(e)
                 WHERE g.id = u.id AND (t.e ->> 'epoch')::int = u.epoch AND t.e ->> 'kind' <> 'stale_write' LIMIT 1)
              ), 'at_ms', deadman.now_ms(),
              'outcome', u.outcome, 'current_epoch', u.current) AS event
     FROM u`
  )
}
  SELECT count(*)::int AS recorded FROM u`
