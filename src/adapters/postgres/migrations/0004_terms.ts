import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import json from "./0004_json.ts"
import submit from "./0004_submit.ts"

const statements: ReadonlyArray<string> = [
  // As submitted, for readers: a claim forgets `job.expire_ms`.
  `ALTER TABLE deadman.body ADD COLUMN start_by_ms bigint, ADD COLUMN uniqueness jsonb`,

  // None of these is changed by a settle, so no index on them costs it anything. `prune_ms` is the earliest instant at
  // which a job with a retention of its own may go.
  `ALTER TABLE deadman.job ADD COLUMN expire_ms bigint, ADD COLUMN retain_ms bigint, ADD COLUMN prune_ms bigint`,
  `CREATE INDEX job_expire ON deadman.job (expire_ms) WHERE expire_ms IS NOT NULL`,
  `CREATE INDEX job_prune ON deadman.job (prune_ms, id) WHERE prune_ms IS NOT NULL`,
  // Rows from before have no such time.
  `ALTER TABLE deadman.job ADD CONSTRAINT only_unstarted_expire
     CHECK (expire_ms IS NULL OR state IN (0, 2)) NOT VALID`,

  // The newest job of those that must be unique together, and until when it is kept for that.
  `CREATE TABLE deadman.uniqueness (
     key      text PRIMARY KEY,
     job      uuid NOT NULL,
     until_ms bigint
   )`,
  `CREATE INDEX uniqueness_job ON deadman.uniqueness (job)`
]

export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  for (const statement of [...statements, ...json, ...submit]) {
    yield* sql.unsafe(statement)
  }
})
