import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import json from "./0004_json.ts"
import submit from "./0004_submit.ts"

const tables: ReadonlyArray<string> = [
  // The newest job of those that must be unique together, and until when it is kept for that.
  `CREATE TABLE deadman.uniqueness (
     key      text PRIMARY KEY,
     job      uuid NOT NULL,
     until_ms bigint
   )`,
  `CREATE INDEX uniqueness_job ON deadman.uniqueness (job)`
]

// Last in the transaction, since each of them locks out everybody until it commits.
const columns: ReadonlyArray<string> = [
  // As submitted, for readers: a claim forgets `job.expire_ms`.
  `ALTER TABLE deadman.body ADD COLUMN start_by_ms bigint, ADD COLUMN uniqueness jsonb`,

  // None of these is changed by a settle, so no index on them (step 0007) costs it anything. `prune_ms` is the earliest
  // instant at which a job with a retention of its own may go. A process of before leaves `expire_ms` where it is when it
  // claims, so that time counts for jobs of epoch 0 only, and no constraint may stand in that process's way.
  `ALTER TABLE deadman.job ADD COLUMN expire_ms bigint, ADD COLUMN retain_ms bigint, ADD COLUMN prune_ms bigint`
]

export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  for (const statement of [...tables, ...json, ...submit, ...columns]) {
    yield* sql.unsafe(statement)
  }
})
