import { Effect } from "effect"
import { SqlClient } from "effect/sql"

const statements: ReadonlyArray<string> = [
  // What was said about a queue. Claims do not read it: what they need stands on the routes too.
  `CREATE TABLE deadman.queue (
     name          text    PRIMARY KEY,
     paused        boolean NOT NULL DEFAULT false,
     concurrency   int     CHECK (concurrency > 0),
     step_ms       bigint  NOT NULL DEFAULT 60000 CHECK (step_ms >= 0),
     created_at_ms bigint  NOT NULL,
     stepped_at_ms bigint
   ) WITH (fillfactor = 50)`,

  // Whoever pauses a queue holds this alone, whoever adds a route to it shares it: else a route that is added beside a
  // pause would not know of it, and not be known to it.
  `CREATE FUNCTION deadman.queue_lock(name text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
   AS $$ SELECT hashtextextended('deadman.queue ' || name, 0) $$`,

  // Each statement of it sees what was committed when it began, so the second one sees what the lock has waited for. It
  // runs with its owner's rights: a process of before, with the rights that it had, must be able to add routes.
  `CREATE FUNCTION deadman.route_of_queue() RETURNS trigger LANGUAGE plpgsql
   SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
   DECLARE
     q deadman.queue;
   BEGIN
     PERFORM pg_advisory_xact_lock_shared(deadman.queue_lock(NEW.queue));
     SELECT * INTO q FROM deadman.queue WHERE name = NEW.queue;
     IF FOUND THEN
       NEW.paused := q.paused;
       NEW.step_ms := q.step_ms;
     END IF;
     RETURN NEW;
   END $$`,
  `CREATE TRIGGER route_of_queue BEFORE INSERT ON deadman.route
   FOR EACH ROW EXECUTE FUNCTION deadman.route_of_queue()`,

  // Routes were paused by hand before there was this.
  `INSERT INTO deadman.queue (name, paused, created_at_ms)
   SELECT queue, true, deadman.now_ms() FROM deadman.route GROUP BY queue HAVING bool_and(paused)`
]

export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  for (const statement of statements) {
    yield* sql.unsafe(statement)
  }
})
