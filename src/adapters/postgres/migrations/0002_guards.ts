import { Effect } from "effect"
import { SqlClient } from "effect/sql"

const statements: ReadonlyArray<string> = [
  // The last write of a transaction that records what a run has done: it raises where the claim is not the current
  // one, and everything rolls back. From here on the job is locked, so whoever freezes before COMMIT is cut off soon.
  `CREATE FUNCTION deadman.fence(job_id uuid, job_epoch int, job_lease uuid) RETURNS void LANGUAGE plpgsql AS $$
   BEGIN
     PERFORM set_config('idle_in_transaction_session_timeout', '1000', true);
     UPDATE deadman.job j SET epoch = j.epoch
     WHERE j.id = job_id AND j.epoch = job_epoch AND j.lease = job_lease AND j.state = 1;
     IF NOT FOUND THEN
       RAISE EXCEPTION 'the claim is not current' USING ERRCODE = 'DM001';
     END IF;
   END $$`,

  // Whether the effect was recorded now. One statement, so that the fence and the commit are one round trip.
  `CREATE FUNCTION deadman.once(effect_key text, job_id uuid, job_epoch int, job_lease uuid, worker_name text)
   RETURNS boolean LANGUAGE plpgsql AS $$
   DECLARE
     fired boolean;
   BEGIN
     INSERT INTO deadman.effect (key, job, epoch, worker, at_ms)
     VALUES (effect_key, job_id, job_epoch, worker_name, deadman.now_ms())
     ON CONFLICT (key) DO NOTHING;
     fired := FOUND;
     PERFORM deadman.fence(job_id, job_epoch, job_lease);
     RETURN fired;
   END $$`,

  // Effects go with their job.
  `CREATE INDEX effect_job ON deadman.effect (job)`
]

export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  for (const statement of statements) {
    yield* sql.unsafe(statement)
  }
})
