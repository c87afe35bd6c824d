import { Effect } from "effect"
import { SqlClient } from "effect/sql"

const statements: ReadonlyArray<string> = [
  // A schedule that is not booked (paused, or over) is in no index, so that looking for what is due costs the same
  // however many there are.
  `CREATE TABLE deadman.schedule (
     name          text     PRIMARY KEY,
     -- Begins with the time: one that was removed and put again is not as somebody saw it before.
     revision      bigint   NOT NULL DEFAULT deadman.now_ms(),
     cron          text,
     zone          text,
     every_ms      bigint,
     next_fire_ms  bigint,
     last_fire_ms  bigint,
     last_job      uuid,
     created_at_ms bigint   NOT NULL DEFAULT deadman.now_ms(),
     updated_at_ms bigint   NOT NULL DEFAULT deadman.now_ms(),
     paused        boolean  NOT NULL DEFAULT false,
     overlap       text     NOT NULL DEFAULT 'allow' CHECK (overlap IN ('allow', 'skip', 'cancel')),
     missed        jsonb    NOT NULL DEFAULT '"latest"',
     type          text     NOT NULL CHECK (type ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$'),
     queue         text     NOT NULL DEFAULT 'default' CHECK (queue ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$'),
     payload       jsonb    NOT NULL DEFAULT 'null',
     bytes         int      GENERATED ALWAYS AS (octet_length(payload::text)) STORED,
     priority      smallint NOT NULL DEFAULT 0 CHECK (priority BETWEEN -1000 AND 1000),
     max_attempts  smallint NOT NULL DEFAULT 10 CHECK (max_attempts BETWEEN 1 AND 1000),
     timeout_ms    int      CHECK (timeout_ms > 0),
     retain_ms     bigint   CHECK (retain_ms BETWEEN 0 AND 3155760000000),
     backoff       jsonb,
     tags          text[],
     CONSTRAINT one_timing      CHECK ((cron IS NULL) = (every_ms IS NOT NULL) AND (cron IS NULL) = (zone IS NULL)),
     CONSTRAINT paused_unbooked CHECK (NOT paused OR next_fire_ms IS NULL)
   ) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05)`,
  `CREATE INDEX schedule_due ON deadman.schedule (next_fire_ms) WHERE next_fire_ms IS NOT NULL`,

  // Which tick of which schedule a job is; of one that was run by hand only the schedule. NULL on all others, which are
  // not in the index of step 0007 then.
  `ALTER TABLE deadman.body ADD COLUMN schedule text, ADD COLUMN tick_ms bigint`
]

export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  for (const statement of statements) {
    yield* sql.unsafe(statement)
  }
})
