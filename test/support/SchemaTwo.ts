/**
 * A database as the first processes made it, with schema 2, and what they send: they go on beside newer ones.
 *
 * The text of their claim is kept as it was; it must run on every schema that comes.
 */
import { PgClient } from "@effect/sql-pg"
import { Effect, type Redacted } from "effect"
import { SqlClient } from "effect/sql"
import core from "../../src/adapters/postgres/migrations/0001_core.ts"
import guards from "../../src/adapters/postgres/migrations/0002_guards.ts"

/** Statements on a connection of their own, one after the other; the rows of the last. */
export const on = (url: Redacted.Redacted, ...statements: ReadonlyArray<string>) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      Effect.forEach(statements, (statement) => sql.unsafe<Record<string, unknown>>(statement)),
      (all) => all.at(-1) ?? []
    )).pipe(Effect.provide(PgClient.layer({ url, maxConnections: 1, applicationName: "deadman-tests" })))

/** Takes the place of whatever schema is there, with so many jobs that have ended. */
export const make = (url: Redacted.Redacted, jobs: number) =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    yield* sql.unsafe("DROP SCHEMA IF EXISTS deadman CASCADE")
    yield* sql.unsafe("CREATE SCHEMA deadman")
    yield* core
    yield* guards
    yield* sql.unsafe("INSERT INTO deadman.meta (schema_version, created_at_ms) VALUES (2, deadman.now_ms())")
    yield* sql.unsafe("INSERT INTO deadman.route (type, queue) VALUES ('noop', 'default')")
    yield* sql.unsafe(
      `WITH x AS MATERIALIZED (SELECT gen_random_uuid() AS id FROM generate_series(1, ${jobs})),
       b AS (INSERT INTO deadman.body (id, payload, created_at_ms, max_attempts) SELECT id, '{"n":1}', 1, 10 FROM x)
       INSERT INTO deadman.job (id, run_at_ms, finished_at_ms, route, bytes, state) SELECT id, 1, 1, 1, 7, 3 FROM x`
    )
  }).pipe(Effect.provide(PgClient.layer({ url, maxConnections: 1, applicationName: "deadman-tests" })))

/** $1 the id of a job that is ready. */
export const submit = `WITH b AS (
    INSERT INTO deadman.body (id, payload, created_at_ms, max_attempts) VALUES ($1::uuid, '{"n":1}', deadman.now_ms(), 10)
  ), t AS (
    INSERT INTO deadman.tally (route, state, n) SELECT id, 0, 1 FROM deadman.route WHERE type = 'noop'
  )
  INSERT INTO deadman.job (id, run_at_ms, rank, route, bytes)
  SELECT $1::uuid, deadman.now_ms(), deadman.now_ms(), r.id, 7 FROM deadman.route r WHERE r.type = 'noop'`

/** $1 ids, $2 epochs, $3 leases of jobs that are completed. */
export const settle = `UPDATE deadman.job j SET state = 3, finished_at_ms = deadman.now_ms()
  FROM unnest($1::uuid[], $2::int[], $3::uuid[]) x(id, epoch, lease)
  WHERE j.id = x.id AND j.epoch = x.epoch AND j.lease = x.lease AND j.state = 1 RETURNING j.id`

/** For `claim`: as a worker of one type asks for ten. */
export const claimParams = (lease: string, type = "noop"): Array<unknown> => [
  lease,
  30_000,
  "ada",
  [type],
  null,
  10,
  1e7,
  100,
  "0",
  null
]

export const claim = `WITH r AS MATERIALIZED (
    SELECT id, type, queue, step_ms FROM deadman.route
    WHERE type = ANY ($4::text[]) AND NOT paused AND ($5::text[] IS NULL OR queue = ANY ($5::text[]))
  ), h AS MATERIALIZED (
    SELECT f.route, f.rank FROM r
    CROSS JOIN LATERAL (SELECT q.route, q.rank, q.id FROM deadman.job q
   WHERE (q.route, q.rank) >= (r.id, $9::bigint) AND (q.route, q.rank) <= (r.id, 9223372036854775807)
     AND q.rank IS NOT NULL
     AND q.losses < $8::int
     AND ($10::bigint IS NULL OR q.run_at_ms <= deadman.statement_ms() - $10::bigint)
   ORDER BY q.route, q.rank, q.id
   LIMIT $6::int ) f
    WHERE (SELECT count(*) FROM r) > 1
    ORDER BY f.rank, f.id LIMIT $6::int
  ),
  k AS MATERIALIZED (
    SELECT id AS route, $6::bigint AS k FROM r WHERE (SELECT count(*) FROM r) = 1
    UNION ALL
    SELECT route, count(*) FROM h GROUP BY route
  ),
  c AS MATERIALIZED (
    SELECT f.* FROM k CROSS JOIN LATERAL (SELECT q.id, q.route, q.rank, q.state, q.bytes, q.losses FROM deadman.job q
   WHERE (q.route, q.rank) >= (k.route, $9::bigint) AND (q.route, q.rank) <= (k.route, 9223372036854775807)
     AND q.rank IS NOT NULL
     AND q.losses < $8::int
     AND ($10::bigint IS NULL OR q.run_at_ms <= deadman.statement_ms() - $10::bigint)
   ORDER BY q.route, q.rank, q.id
   LIMIT k.k FOR NO KEY UPDATE SKIP LOCKED) f
  ), o AS MATERIALIZED (
    SELECT c.*, row_number() OVER w AS n, first_value(c.losses) OVER w AS first_losses,
           count(*) FILTER (WHERE c.losses < 2) OVER w AS m,
           sum(c.bytes) FILTER (WHERE c.losses < 2) OVER w AS total
    FROM c WINDOW w AS (ORDER BY c.rank, c.id)
  ),
  e AS MATERIALIZED (
    SELECT o.* FROM o
    WHERE CASE WHEN o.first_losses >= 2 THEN o.n = 1
               ELSE o.losses < 2 AND (o.m = 1 OR (o.total <= $7::float8 AND o.m <= $6::int)) END
  ),
  s AS MATERIALIZED (SELECT deadman.now_ms() AS now),
  l AS (
    INSERT INTO deadman.lease (id, claimed_at_ms, seen_at_ms, lease_ms, worker, job_ids)
    SELECT $1::uuid, s.now, s.now, $2::int, $3::text, ARRAY(SELECT id FROM e)
    FROM s WHERE EXISTS (SELECT 1 FROM e)
    ON CONFLICT (id) DO NOTHING
    RETURNING id
  ),
  u AS (
    UPDATE deadman.job j
    SET state         = 1,
        rank          = NULL,
        wait_ms       = NULL,
        mark          = NULL,
        epoch         = j.epoch + 1,
        deliveries    = j.deliveries + 1,
        started_at_ms = (SELECT now FROM s),
        worker        = $3::text,
        lease         = $1::uuid,
        settled_epoch = CASE WHEN j.lease IS NULL THEN j.settled_epoch ELSE j.epoch END,
        settled_lease = coalesce(j.lease, j.settled_lease)
    WHERE j.id = ANY (ARRAY(SELECT id FROM e)) AND EXISTS (SELECT 1 FROM l)
    RETURNING j.id, j.epoch, j.route, j.attempts, j.deliveries, j.losses, j.started_at_ms, j.run_at_ms
  ),
  t AS (INSERT INTO deadman.tally (route, state, n) SELECT m.route, m.state, m.n FROM (SELECT route, state, -count(*) AS n FROM e WHERE EXISTS (SELECT 1 FROM l) GROUP BY route, state
     UNION ALL
     SELECT route, 1, count(*) FROM u GROUP BY route) m) SELECT j.id, j.epoch, r.type, r.queue, b.payload, j.attempts, b.max_attempts, b.backoff, b.timeout_ms, j.deliveries,
   j.losses, (j.started_at_ms - j.run_at_ms)::float8 AS waited_ms, b.key, e.rank::float8 AS rank
  FROM u j JOIN e ON e.id = j.id JOIN r ON r.id = j.route CROSS JOIN LATERAL (SELECT payload, max_attempts, backoff, timeout_ms, key FROM deadman.body WHERE id = j.id LIMIT 1) b
  ORDER BY e.rank, e.id`
