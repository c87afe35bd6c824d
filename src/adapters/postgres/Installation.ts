/**
 * What tells this installation from another one's, for a Redis or a Kafka that several may share: processes with the same
 * database are one. A copy of a database is another, though it has the incarnation of the first.
 */
import { Effect } from "effect"
import { Database } from "./Database.ts"

const sql = `
  SELECT left(md5(m.incarnation::text || d.oid::text), 8) AS id
  FROM deadman.meta m, pg_catalog.pg_database d WHERE d.datname = current_database()`

/** Eight hexadecimal digits; `null` where Postgres does not say. Nothing depends on it but a warning. */
export const read: Effect.Effect<string | null, never, Database> = Effect.flatMap(
  Database,
  (database) => database.query<{ readonly id: string }>("read", sql)
).pipe(
  Effect.map(([row]) => row?.id ?? null),
  Effect.orElseSucceed(() => null)
)
