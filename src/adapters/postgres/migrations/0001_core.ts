import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * States: 0 pending, 1 running, 2 failed, 3 completed, 4 dead. Instants: whole milliseconds since the epoch.
 *
 * Settles must be HOT updates. So no index and no predicate names state, lease or finished_at_ms; the two NULLs of
 * `rank` and `wait_ms` carry the partial indexes, and `mark` is NULL on the happy path.
 */
const statements: ReadonlyArray<string> = [
  `CREATE TABLE deadman.meta (
     only_row       boolean PRIMARY KEY DEFAULT true CHECK (only_row),
     schema_version int    NOT NULL,
     incarnation    uuid   NOT NULL DEFAULT gen_random_uuid(),
     created_at_ms  bigint NOT NULL
   )`,

  // Volatile on purpose: inside a caller's transaction now() is when that transaction began.
  `CREATE FUNCTION deadman.now_ms() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
   AS $$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$`,

  // The start of the statement: what may drive an index, where clock_timestamp() may not.
  `CREATE FUNCTION deadman.statement_ms() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
   AS $$ SELECT floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint $$`,

  // A list that keeps its first three and its newest twelve: domain/History.ts in SQL.
  `CREATE FUNCTION deadman.history(list jsonb, entry jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE
   AS $$ SELECT CASE WHEN jsonb_array_length(list) >= 15 THEN (list - 3) || entry ELSE list || entry END $$`,

  // One small integer per queue and type, so that the ready index leads with it.
  `CREATE TABLE deadman.route (
     id      int     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
     type    text    NOT NULL,
     queue   text    NOT NULL,
     paused  boolean NOT NULL DEFAULT false,
     step_ms bigint  NOT NULL DEFAULT 60000,
     UNIQUE (type, queue)
   )`,

  // What never changes. Wide, read once per claim and by readers.
  `CREATE TABLE deadman.body (
     id               uuid     PRIMARY KEY,
     payload          jsonb    NOT NULL,
     created_at_ms    bigint   NOT NULL,
     timeout_ms       int,
     format           smallint NOT NULL DEFAULT 1,
     max_attempts     smallint NOT NULL,
     backoff          jsonb,
     tags             text[],
     key              text,
     resubmitted_from uuid
   ) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.2,
           autovacuum_analyze_scale_factor = 0.1)`,

  // What changes. Narrow; three quarters of each page are room for the two updates of a run. At 40, with a name of a
  // worker as they are, only half of the settles were HOT; the table has the same size in the end.
  `CREATE TABLE deadman.job (
     id             uuid     PRIMARY KEY,
     run_at_ms      bigint   NOT NULL,
     rank           bigint,
     wait_ms        bigint,
     started_at_ms  bigint,
     finished_at_ms bigint,
     lease          uuid,
     settled_lease  uuid,
     settled_epoch  int,
     route          int      NOT NULL,
     epoch          int      NOT NULL DEFAULT 0,
     deliveries     int      NOT NULL DEFAULT 0,
     bytes          int      NOT NULL,
     state          smallint NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 4),
     priority       smallint NOT NULL DEFAULT 0,
     attempts       smallint NOT NULL DEFAULT 0,
     losses         smallint NOT NULL DEFAULT 0,
     losses_counted smallint NOT NULL DEFAULT 0,
     stale          smallint NOT NULL DEFAULT 0,
     mark           smallint,
     reason         smallint,
     lost_epochs    int[],
     worker         text,
     CONSTRAINT running_has_lease    CHECK (state <> 1 OR lease IS NOT NULL),
     CONSTRAINT final_has_end        CHECK ((state IN (3, 4)) = (finished_at_ms IS NOT NULL)),
     CONSTRAINT only_waiting_ranked  CHECK ((rank IS NULL AND wait_ms IS NULL) OR state IN (0, 2)),
     CONSTRAINT dead_has_reason      CHECK ((state = 4) = (reason IS NOT NULL))
   ) WITH (fillfactor = 25, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
           autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.1)`,
  `CREATE INDEX job_ready ON deadman.job (route, rank, id) WHERE rank IS NOT NULL`,
  `CREATE INDEX job_wait ON deadman.job (wait_ms) WHERE wait_ms IS NOT NULL`,
  // 1 failed, 2 dead, 3 dead and not yet announced.
  `CREATE INDEX job_mark ON deadman.job (mark, id) WHERE mark IS NOT NULL`,

  // What is off the happy path, bounded.
  `CREATE TABLE deadman.journal (
     id             uuid  PRIMARY KEY,
     result         jsonb,
     errors         jsonb NOT NULL DEFAULT '[]',
     errors_total   int   NOT NULL DEFAULT 0,
     events         jsonb NOT NULL DEFAULT '[]',
     events_total   int   NOT NULL DEFAULT 0,
     resubmitted_as uuid
   )`,

  `CREATE TABLE deadman.key (
     key         text PRIMARY KEY,
     job         uuid NOT NULL,
     fingerprint text NOT NULL
   )`,
  `CREATE INDEX key_job ON deadman.key (job)`,

  `CREATE TABLE deadman.lease (
     id            uuid     PRIMARY KEY,
     token         bigint   NOT NULL DEFAULT 0,
     claimed_at_ms bigint   NOT NULL,
     seen_at_ms    bigint   NOT NULL,
     lease_ms      int      NOT NULL,
     format        smallint NOT NULL DEFAULT 1,
     lapsed        boolean  NOT NULL DEFAULT false,
     worker        text     NOT NULL,
     job_ids       uuid[]   NOT NULL,
     revoked       jsonb
   ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200,
           autovacuum_vacuum_cost_delay = 0)`,

  // How many jobs of a route are in a state: each statement that moves jobs adds its difference, a chore sums it up.
  `CREATE TABLE deadman.tally (
     route int      NOT NULL,
     state smallint NOT NULL,
     n     bigint   NOT NULL
   ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0)`,

  `CREATE TABLE deadman.effect (
     key    text   PRIMARY KEY,
     job    uuid   NOT NULL,
     epoch  int    NOT NULL,
     worker text   NOT NULL,
     at_ms  bigint NOT NULL
   )`,

  `CREATE TABLE deadman.session (
     name          text    PRIMARY KEY,
     started_at_ms bigint  NOT NULL,
     seen_at_ms    bigint  NOT NULL,
     gone          boolean NOT NULL DEFAULT false,
     detail        jsonb   NOT NULL,
     counters      jsonb   NOT NULL
   ) WITH (fillfactor = 50)`,

  // For people with psql.
  `CREATE VIEW deadman.jobs AS
   SELECT j.id, r.queue, r.type,
          (ARRAY['pending','running','failed','completed','dead'])[j.state + 1] AS state,
          (ARRAY['attempts_exhausted','rejected','cancelled','crash_loop','expired'])[j.reason + 1] AS reason,
          j.priority, j.attempts, b.max_attempts, j.epoch, j.deliveries, j.losses AS lease_losses,
          j.stale AS stale_writes, j.worker,
          to_timestamp(b.created_at_ms / 1000.0)  AS created_at,
          to_timestamp(j.run_at_ms / 1000.0)      AS run_at,
          to_timestamp(j.started_at_ms / 1000.0)  AS started_at,
          to_timestamp(j.finished_at_ms / 1000.0) AS finished_at,
          b.payload, b.tags, b.key AS idempotency_key, g.result, g.errors, g.events
   FROM deadman.job j
   JOIN deadman.route r ON r.id = j.route
   JOIN deadman.body b ON b.id = j.id
   LEFT JOIN deadman.journal g ON g.id = j.id`
]

export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  for (const statement of statements) {
    yield* sql.unsafe(statement)
  }
})
