/**
 * The first witness of a chaos run: triggers that keep every change of a job's state, epoch and lease, every renewal
 * and every side effect, in a schema of their own.
 *
 * The product keeps no history and knows nothing of this. A change and its note are one transaction, so what was rolled
 * back or lost in a crash is not there either.
 */
import { Effect } from "effect"
import { deadReasons } from "../../domain/JobState.ts"
import { Database } from "./Database.ts"
import type { DatabaseFailed } from "./DatabaseFailed.ts"

const statements = [
  `CREATE SCHEMA IF NOT EXISTS deadman_chaos`,
  `CREATE TABLE deadman_chaos.transition (
     seq          bigint GENERATED ALWAYS AS IDENTITY,
     job          uuid     NOT NULL,
     at_ms        bigint   NOT NULL,
     state_before smallint,
     state        smallint,
     epoch_before int,
     epoch        int      NOT NULL,
     lease_before uuid,
     lease        uuid,
     worker       text,
     attempts     smallint NOT NULL,
     losses       smallint NOT NULL,
     stale        smallint NOT NULL
   )`,
  `CREATE TABLE deadman_chaos.renewal (lease uuid NOT NULL, at_ms bigint NOT NULL)`,
  `CREATE TABLE deadman_chaos.effect (
     job        uuid   NOT NULL,
     epoch      int    NOT NULL,
     at_ms      bigint NOT NULL,
     seen_epoch int,
     seen_state smallint
   )`,
  `CREATE FUNCTION deadman_chaos.now_ms() RETURNS bigint LANGUAGE sql VOLATILE
   AS $$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$`,

  `CREATE FUNCTION deadman_chaos.note_job() RETURNS trigger LANGUAGE plpgsql AS $$
   BEGIN
     IF TG_OP = 'INSERT' THEN
       INSERT INTO deadman_chaos.transition (job, at_ms, state, epoch, lease, worker, attempts, losses, stale)
       VALUES (NEW.id, deadman_chaos.now_ms(), NEW.state, NEW.epoch, NEW.lease, NEW.worker, NEW.attempts, NEW.losses,
               NEW.stale);
     ELSIF TG_OP = 'DELETE' THEN
       INSERT INTO deadman_chaos.transition (job, at_ms, state_before, epoch_before, epoch, lease_before, worker,
                                             attempts, losses, stale)
       VALUES (OLD.id, deadman_chaos.now_ms(), OLD.state, OLD.epoch, OLD.epoch, OLD.lease, OLD.worker, OLD.attempts,
               OLD.losses, OLD.stale);
     ELSE
       INSERT INTO deadman_chaos.transition (job, at_ms, state_before, state, epoch_before, epoch, lease_before, lease,
                                             worker, attempts, losses, stale)
       VALUES (NEW.id, deadman_chaos.now_ms(), OLD.state, NEW.state, OLD.epoch, NEW.epoch, OLD.lease, NEW.lease,
               NEW.worker, NEW.attempts, NEW.losses, NEW.stale);
     END IF;
     RETURN NULL;
   END $$`,
  `CREATE TRIGGER deadman_chaos_added AFTER INSERT OR DELETE ON deadman.job
   FOR EACH ROW EXECUTE FUNCTION deadman_chaos.note_job()`,
  `CREATE TRIGGER deadman_chaos_changed AFTER UPDATE ON deadman.job
   FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state OR OLD.epoch IS DISTINCT FROM NEW.epoch
     OR OLD.lease IS DISTINCT FROM NEW.lease OR OLD.stale IS DISTINCT FROM NEW.stale)
   EXECUTE FUNCTION deadman_chaos.note_job()`,

  `CREATE FUNCTION deadman_chaos.note_renewal() RETURNS trigger LANGUAGE plpgsql AS $$
   BEGIN
     INSERT INTO deadman_chaos.renewal (lease, at_ms) VALUES (NEW.id, deadman_chaos.now_ms());
     RETURN NULL;
   END $$`,
  `CREATE TRIGGER deadman_chaos_renewed AFTER UPDATE ON deadman.lease
   FOR EACH ROW WHEN (OLD.token IS DISTINCT FROM NEW.token) EXECUTE FUNCTION deadman_chaos.note_renewal()`,

  `CREATE FUNCTION deadman_chaos.note_effect() RETURNS trigger LANGUAGE plpgsql AS $$
   BEGIN
     INSERT INTO deadman_chaos.effect (job, epoch, at_ms, seen_epoch, seen_state)
     VALUES (NEW.job, NEW.epoch, deadman_chaos.now_ms(), (SELECT epoch FROM deadman.job WHERE id = NEW.job),
             (SELECT state FROM deadman.job WHERE id = NEW.job));
     RETURN NULL;
   END $$`,
  `CREATE TRIGGER deadman_chaos_effect AFTER INSERT ON deadman.effect
   FOR EACH ROW EXECUTE FUNCTION deadman_chaos.note_effect()`
]

/** A few million rows take seconds. */
const deadlineMs = 120_000

/** Reads that walk whole tables, past the deadline of those that may not. */
const walk = <Row extends object>(text: string, params: ReadonlyArray<unknown> = []) =>
  Effect.flatMap(Database, (database) =>
    database.transaction("handler", (session) =>
      Effect.andThen(
        session.query(`SET LOCAL statement_timeout = ${deadlineMs}`),
        session.query<Row>(text, params)
      ), { deadlineMs: deadlineMs + 1_000 }))

export const install: Effect.Effect<void, DatabaseFailed, Database> = Effect.flatMap(
  Database,
  (database) =>
    database.transaction(
      "handler",
      (session) => Effect.forEach(statements, (statement) => session.query(statement), { discard: true }),
      { deadlineMs: 30_000 }
    )
)

export interface Counts {
  readonly submitted: number
  readonly outstanding: number
  readonly running: number
  readonly completed: number
}

export const counts: Effect.Effect<Counts, DatabaseFailed, Database> = Effect.flatMap(
  Database,
  (database) =>
    Effect.map(
      database.query<Counts>(
        "read",
        `SELECT count(*)::float8 AS submitted, (count(*) FILTER (WHERE state IN (0, 1, 2)))::float8 AS outstanding,
              (count(*) FILTER (WHERE state = 1))::float8 AS running,
              (count(*) FILTER (WHERE state = 3))::float8 AS completed
       FROM deadman.job`,
        [],
        { deadlineMs: 5_000 }
      ),
      ([row]) => row ?? { submitted: 0, outstanding: 0, running: 0, completed: 0 }
    )
)

/** So that a page of jobs finds its rows. Made once nothing is written any more. */
export const index: Effect.Effect<void, DatabaseFailed, Database> = Effect.asVoid(
  walk(`CREATE INDEX IF NOT EXISTS transition_job ON deadman_chaos.transition (job, seq)`)
).pipe(
  Effect.andThen(walk(`CREATE INDEX IF NOT EXISTS effect_job ON deadman_chaos.effect (job)`)),
  Effect.andThen(walk(`ANALYZE deadman_chaos.transition, deadman_chaos.effect`)),
  Effect.asVoid
)

export const renewals = Effect.suspend(() =>
  walk<{ readonly lease: string; readonly atMs: number }>(
    `SELECT lease, at_ms::float8 AS "atMs" FROM deadman_chaos.renewal ORDER BY at_ms`
  )
)

type Code = 0 | 1 | 2 | 3 | 4

export interface JobRow {
  readonly id: string
  readonly type: string
  readonly key: string | null
  readonly state: Code
  readonly reason: string | null
  readonly attempts: number
  readonly maxAttempts: number
  readonly epoch: number
  readonly deliveries: number
  readonly losses: number
  readonly lossesCounted: number
  readonly stale: number
  readonly staleEpochs: ReadonlyArray<number>
}

/** Jobs behind `after`, by id; `null` begins. */
export const jobs = (after: string | null, limit: number) =>
  Effect.map(
    walk<Omit<JobRow, "reason"> & { readonly reason: number | null }>(
      `SELECT j.id, r.type, b.key, j.state::int AS state, j.reason::int AS reason, j.attempts::int AS attempts,
              b.max_attempts::int AS "maxAttempts", j.epoch, j.deliveries, j.losses::int AS losses,
              j.losses_counted::int AS "lossesCounted", j.stale::int AS stale,
              ARRAY(SELECT (e.value ->> 'epoch')::int FROM jsonb_array_elements(g.events) e
                    WHERE e.value ->> 'kind' = 'stale_write') AS "staleEpochs"
       FROM deadman.job j
       JOIN deadman.route r ON r.id = j.route
       JOIN deadman.body b ON b.id = j.id
       LEFT JOIN deadman.journal g ON g.id = j.id
       WHERE $1::uuid IS NULL OR j.id > $1::uuid
       ORDER BY j.id LIMIT $2::int`,
      [after, limit]
    ),
    (rows) =>
      rows.map((row): JobRow => ({
        ...row,
        reason: row.reason === null ? null : deadReasons[row.reason] ?? String(row.reason)
      }))
  )

export interface TransitionRow {
  readonly job: string
  readonly seq: number
  readonly atMs: number
  readonly from: Code | null
  readonly to: Code | null
  readonly epochBefore: number | null
  readonly epoch: number
  readonly leaseBefore: string | null
  readonly lease: string | null
  readonly worker: string | null
  readonly attempts: number
  readonly losses: number
  readonly stale: number
}

/** Of the jobs from `first` to `last`, by job and in order. */
export const transitions = (first: string, last: string) =>
  walk<TransitionRow>(
    `SELECT job, seq::float8 AS seq, at_ms::float8 AS "atMs", state_before::int AS "from", state::int AS "to",
            epoch_before AS "epochBefore", epoch, lease_before AS "leaseBefore", lease, worker,
            attempts::int AS attempts, losses::int AS losses, stale::int AS stale
     FROM deadman_chaos.transition WHERE job >= $1::uuid AND job <= $2::uuid ORDER BY job, seq`,
    [first, last]
  )

export interface EffectRow {
  readonly job: string
  readonly epoch: number
  readonly atMs: number
  readonly seenEpoch: number | null
  readonly seenState: Code | null
}

export const effects = (first: string, last: string) =>
  walk<EffectRow>(
    `SELECT job, epoch, at_ms::float8 AS "atMs", seen_epoch AS "seenEpoch", seen_state::int AS "seenState"
     FROM deadman_chaos.effect WHERE job >= $1::uuid AND job <= $2::uuid ORDER BY job, at_ms`,
    [first, last]
  )

/** Jobs that were deleted have transitions and no row. */
export const vanished = Effect.suspend(() =>
  walk<{ readonly job: string }>(
    `SELECT DISTINCT t.job FROM deadman_chaos.transition t
     WHERE NOT EXISTS (SELECT 1 FROM deadman.job j WHERE j.id = t.job) LIMIT 100`
  )
)
