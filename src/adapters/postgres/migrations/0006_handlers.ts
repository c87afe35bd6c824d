import { Effect } from "effect"
import { SqlClient } from "effect/sql"

const statements: ReadonlyArray<string> = [
  // The newest fifty lines of each attempt, and the newest hundred of all: domain/Notes.ts in SQL.
  `CREATE FUNCTION deadman.lines(list jsonb, added jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE
   AS $$
     SELECT coalesce(jsonb_agg(k.e ORDER BY k.n), '[]')
     FROM (
       SELECT a.e, a.n
       FROM (
         SELECT x.e, x.n, row_number() OVER (PARTITION BY x.e ->> 'attempt' ORDER BY x.n DESC) AS of_attempt
         FROM jsonb_array_elements(coalesce(list, '[]') || added) WITH ORDINALITY x(e, n)
       ) a
       WHERE a.of_attempt <= 50
       ORDER BY a.n DESC
       LIMIT 100
     ) k
   $$`,

  // Ends a job inside the transaction of whoever runs it: the completing form of deadman.fence. Its row is locked from
  // here on, so this belongs at the end of the transaction; deadman.pledge_completion puts it there.
  `CREATE FUNCTION deadman.complete(job_id uuid, job_epoch int, job_lease uuid, job_result jsonb DEFAULT NULL)
   RETURNS void LANGUAGE plpgsql AS $$
   DECLARE
     job_route int;
   BEGIN
     PERFORM set_config('idle_in_transaction_session_timeout', '1000', true);
     UPDATE deadman.job j SET state = 3, finished_at_ms = deadman.now_ms()
     WHERE j.id = job_id AND j.epoch = job_epoch AND j.lease = job_lease AND j.state = 1
     RETURNING j.route INTO job_route;
     IF NOT FOUND THEN
       RAISE EXCEPTION 'the claim is not current' USING ERRCODE = 'DM001';
     END IF;
     IF job_result IS NOT NULL THEN
       INSERT INTO deadman.journal (id, result) VALUES (job_id, job_result)
       ON CONFLICT (id) DO UPDATE SET result = EXCLUDED.result;
     END IF;
     INSERT INTO deadman.tally (route, state, n) VALUES (job_route, 1, -1), (job_route, 3, 1);
   END $$`,

  // A promise that a transaction makes about its end, kept by a deferred trigger: no row outlives its transaction. So
  // the fence runs within COMMIT, with any client, and there is no moment at which one that freezes has a job locked.
  `CREATE UNLOGGED TABLE deadman.pledge (
     id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
     job        uuid NOT NULL,
     epoch      int  NOT NULL,
     lease      uuid NOT NULL,
     worker     text NOT NULL,
     effect_key text,
     result     jsonb
   ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0)`,

  // Of an effect the fence comes first: the guard's row must not be waited for by whoever has the job by now.
  `CREATE FUNCTION deadman.redeem() RETURNS trigger LANGUAGE plpgsql AS $$
   BEGIN
     IF current_setting('lock_timeout') = '0' THEN
       PERFORM set_config('lock_timeout', '2000', true);
     END IF;
     DELETE FROM deadman.pledge p WHERE p.id = NEW.id;
     IF NEW.effect_key IS NULL THEN
       PERFORM deadman.complete(NEW.job, NEW.epoch, NEW.lease, NEW.result);
       RETURN NULL;
     END IF;
     PERFORM deadman.fence(NEW.job, NEW.epoch, NEW.lease);
     INSERT INTO deadman.effect (key, job, epoch, worker, at_ms)
     VALUES (NEW.effect_key, NEW.job, NEW.epoch, NEW.worker, deadman.now_ms())
     ON CONFLICT (key) DO NOTHING;
     IF NOT FOUND THEN
       RAISE EXCEPTION 'the effect is recorded already' USING ERRCODE = 'DM002';
     END IF;
     RETURN NULL;
   END $$`,
  `CREATE CONSTRAINT TRIGGER redeem AFTER INSERT ON deadman.pledge DEFERRABLE INITIALLY DEFERRED
   FOR EACH ROW EXECUTE FUNCTION deadman.redeem()`,

  // Where a transaction of a handler begins: a claim that is lost already is not worth the work. It locks nothing; and a
  // client that goes silent in the middle is cut off, so that its own locks do not stand in the way of the next run.
  `CREATE FUNCTION deadman.begin_run(job_id uuid, job_epoch int, job_lease uuid) RETURNS void LANGUAGE plpgsql AS $$
   BEGIN
     IF current_setting('idle_in_transaction_session_timeout') = '0' THEN
       PERFORM set_config('idle_in_transaction_session_timeout', '10000', true);
     END IF;
     IF NOT EXISTS (
       SELECT 1 FROM deadman.job j
       WHERE j.id = job_id AND j.epoch = job_epoch AND j.lease = job_lease AND j.state = 1
     ) THEN
       RAISE EXCEPTION 'the claim is not current' USING ERRCODE = 'DM001';
     END IF;
   END $$`,

  // The same for an effect under a guard: whether there is anything to do.
  `CREATE FUNCTION deadman.pledge_effect(
     effect_key text, job_id uuid, job_epoch int, job_lease uuid, worker_name text
   ) RETURNS boolean LANGUAGE plpgsql AS $$
   BEGIN
     PERFORM deadman.begin_run(job_id, job_epoch, job_lease);
     IF EXISTS (SELECT 1 FROM deadman.effect e WHERE e.key = pledge_effect.effect_key) THEN
       RETURN false;
     END IF;
     INSERT INTO deadman.pledge (job, epoch, lease, worker, effect_key)
     VALUES (job_id, job_epoch, job_lease, worker_name, effect_key);
     RETURN true;
   END $$`,

  // The last statement of a transaction that ends its job.
  `CREATE FUNCTION deadman.pledge_completion(
     job_id uuid, job_epoch int, job_lease uuid, worker_name text, job_result jsonb DEFAULT NULL
   ) RETURNS void LANGUAGE sql AS $$
     INSERT INTO deadman.pledge (job, epoch, lease, worker, result)
     VALUES (job_id, job_epoch, job_lease, worker_name, job_result)
   $$`,

  // What handlers note down. NULL where they note nothing, as most do. Last, since it locks out everybody until the commit.
  `ALTER TABLE deadman.journal
     ADD COLUMN progress   jsonb,
     ADD COLUMN logs       jsonb,
     ADD COLUMN logs_total int NOT NULL DEFAULT 0`
]

export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  for (const statement of statements) {
    yield* sql.unsafe(statement)
  }
})
