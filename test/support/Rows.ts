/**
 * Rows as the store's statements would have written them, for tests of what
 * reads them and of the ports that share them.
 */
import { Effect } from "effect"
import { Database, long, longs, uuids } from "../../src/adapters/postgres/Database.ts"
import type { LeaseId } from "../../src/domain/Claim.ts"
import { type Claim, Epoch } from "../../src/domain/Claim.ts"
import type { JobId } from "../../src/domain/JobId.ts"
import * as Ids from "./Ids.ts"

const sql = (text: string, params: ReadonlyArray<unknown> = []) =>
  Effect.flatMap(Database, (database) => database.query<Record<string, unknown>>("read", text, params))

export const query = sql

/** The route of a type in a queue, made where there is none. */
export const route = (type = "noop", queue = "default") =>
  Effect.map(
    sql(
      `WITH i AS (
         INSERT INTO deadman.route (type, queue) VALUES ($1::text, $2::text)
         ON CONFLICT (type, queue) DO UPDATE SET type = EXCLUDED.type RETURNING id
       ) SELECT id FROM i`,
      [type, queue]
    ),
    (rows) => Number(rows[0]!["id"])
  )

export interface NewRow {
  readonly id: JobId
  readonly waitMs?: number
}

/** Pending jobs, ready unless they wait for a time. */
export const pending = Effect.fnUntraced(function*(jobs: ReadonlyArray<NewRow>, type = "noop", queue = "default") {
  const at = yield* route(type, queue)
  yield* sql(
    `WITH x AS (
       SELECT id, wait_ms::bigint AS wait_ms FROM unnest($1::uuid[], $2::float8[]) x(id, wait_ms)
     ), b AS (
       INSERT INTO deadman.body (id, payload, created_at_ms, max_attempts)
       SELECT id, '{"n":1}', deadman.now_ms(), 10 FROM x
     ), t AS (
       INSERT INTO deadman.tally SELECT $3::int, 0, count(*) FROM x
     )
     INSERT INTO deadman.job (id, run_at_ms, rank, wait_ms, route, bytes)
     SELECT id, coalesce(wait_ms, deadman.now_ms()), CASE WHEN wait_ms IS NULL THEN deadman.now_ms() END, wait_ms,
            $3::int, 7
     FROM x`,
    [uuids(jobs.map(({ id }) => id)), longs(jobs.map(({ waitMs }) => waitMs ?? null)), at]
  )
})

/** A great many jobs of a type, due one after the other from now on: ready, or waiting for a time that does not come. */
export const many = Effect.fnUntraced(function*(
  count: number,
  { queue, type, waiting = false }: { readonly type: string; readonly queue?: string; readonly waiting?: boolean }
) {
  const at = yield* route(type, queue)
  const database = yield* Database
  yield* database.query(
    "read",
    `WITH x AS MATERIALIZED (
       SELECT gen_random_uuid() AS id, deadman.statement_ms() + n AS due FROM generate_series(1, $2::int) n
     ), b AS (
       INSERT INTO deadman.body (id, payload, created_at_ms, max_attempts) SELECT id, '1', due, 10 FROM x
     )
     INSERT INTO deadman.job (id, run_at_ms, rank, wait_ms, route, bytes)
     SELECT id, due, CASE WHEN NOT $3::boolean THEN due END, CASE WHEN $3::boolean THEN due + 1e12::bigint END,
            $1::int, 1
     FROM x`,
    [at, count, waiting],
    { deadlineMs: 30_000 }
  )
})

/** Lease rows without jobs. */
export const leases = (ids: ReadonlyArray<LeaseId>, leaseMs: number, jobs: ReadonlyArray<JobId> = []) =>
  sql(
    `INSERT INTO deadman.lease (id, claimed_at_ms, seen_at_ms, lease_ms, worker, job_ids)
     SELECT id, deadman.now_ms(), deadman.now_ms(), $2::int, 'ada', $3::uuid[] FROM unnest($1::uuid[]) x(id)`,
    [uuids(ids), leaseMs, uuids(jobs)]
  )

/** Claims ready rows as the claim statement would. */
export const claim = Effect.fnUntraced(function*(ids: ReadonlyArray<JobId>, lease: LeaseId = Ids.leaseId()) {
  yield* leases([lease], 5_000, ids)
  const rows = yield* sql(
    `WITH o AS (SELECT id, route, state FROM deadman.job WHERE id = ANY($1::uuid[]) AND state IN (0, 2)),
     t AS (
       INSERT INTO deadman.tally
       SELECT route, state, -count(*) FROM o GROUP BY 1, 2 UNION ALL SELECT route, 1, count(*) FROM o GROUP BY 1
     )
     UPDATE deadman.job j
     SET state = 1, rank = NULL, wait_ms = NULL, mark = NULL, epoch = j.epoch + 1, deliveries = j.deliveries + 1,
         started_at_ms = deadman.now_ms(), worker = 'ada', lease = $2::uuid
     FROM o WHERE j.id = o.id
     RETURNING j.id, j.epoch`,
    [uuids(ids), lease]
  )
  return rows.map((row): Claim => ({ id: row["id"] as JobId, epoch: Epoch.make(Number(row["epoch"])), lease }))
})

export const freshClaim = Effect.gen(function*() {
  const id = Ids.jobId()
  yield* pending([{ id }])
  return (yield* claim([id]))[0]!
})

/**
 * Ends running or pending rows: `completed` or `dead`, so long ago, and announced unless it says otherwise.
 */
export const end = (ids: ReadonlyArray<JobId>, state: "completed" | "dead", agoMs = 0, unannounced = false) =>
  sql(
    `WITH o AS (SELECT id, route, state FROM deadman.job WHERE id = ANY($1::uuid[])),
     t AS (
       INSERT INTO deadman.tally
       SELECT route, state, -count(*) FROM o GROUP BY 1, 2
       UNION ALL SELECT route, $2::int, count(*) FROM o GROUP BY 1
     )
     UPDATE deadman.job j
     SET state = $2::int, rank = NULL, wait_ms = NULL, finished_at_ms = deadman.now_ms() - $3::float8::bigint,
         reason = CASE WHEN $2::int = 4 THEN 1 END, mark = CASE WHEN $2::int = 4 THEN $4::int END
     FROM o WHERE j.id = o.id`,
    [uuids(ids), state === "completed" ? 3 : 4, long(agoMs), unannounced ? 3 : 2]
  )

/** Fails running rows: they wait for so long. */
export const fail = (ids: ReadonlyArray<JobId>, waitMs: number) =>
  sql(
    `WITH o AS (SELECT id, route, state FROM deadman.job WHERE id = ANY($1::uuid[])),
     t AS (
       INSERT INTO deadman.tally
       SELECT route, state, -count(*) FROM o GROUP BY 1, 2 UNION ALL SELECT route, 2, count(*) FROM o GROUP BY 1
     )
     UPDATE deadman.job j
     SET state = 2, mark = 1, attempts = attempts + 1, rank = NULL, wait_ms = deadman.now_ms() + $2::int,
         run_at_ms = deadman.now_ms() + $2::int
     FROM o WHERE j.id = o.id`,
    [uuids(ids), waitMs]
  )

/** Takes a claim's job from it, as a reclaim does. */
export const lose = ({ id, lease }: Claim) =>
  sql(
    `WITH d AS (DELETE FROM deadman.lease WHERE id = $2::uuid),
     u AS (
       UPDATE deadman.job
       SET state = 0, lease = NULL, losses = losses + 1, wait_ms = deadman.now_ms(), lost_epochs = lost_epochs || epoch
       WHERE id = $1::uuid AND lease = $2::uuid AND state = 1
       RETURNING route
     )
     INSERT INTO deadman.tally SELECT u.route, m.state, m.n FROM u CROSS JOIN (VALUES (1, -1), (0, 1)) m(state, n)`,
    [id, lease]
  )

/** Where the tally does not say what is so. */
export const untallied = sql(
  `SELECT coalesce(a.route, b.route) AS route, coalesce(a.state, b.state) AS state,
            coalesce(a.n, 0)::float8 AS told, coalesce(b.n, 0)::float8 AS true
     FROM (SELECT route, state, sum(n) AS n FROM deadman.tally GROUP BY 1, 2) a
     FULL JOIN (SELECT route, state::smallint AS state, count(*) AS n FROM deadman.job GROUP BY 1, 2) b
       ON a.route = b.route AND a.state = b.state
     WHERE coalesce(a.n, 0) <> coalesce(b.n, 0)`
)
