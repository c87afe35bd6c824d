/** The other sessions of a test's own database, as its server shows them. */
import { Effect } from "effect"
import { Database } from "../../src/adapters/postgres/Database.ts"

/** How many there are of which `condition` is so, in SQL over `pg_stat_activity`. */
export const counted = (condition: string) =>
  Effect.flatMap(Database, (database) =>
    Effect.map(
      // A lane that no test fills.
      database.query<{ readonly n: number }>(
        "vital",
        `SELECT count(*)::int AS n FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid() AND ${condition}`
      ),
      ([row]) => row?.n ?? 0
    ))
