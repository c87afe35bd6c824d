/**
 * Summing up the tally.
 *
 * Statements that move jobs add a row each, so that no two of them wait for one
 * counter; whoever reads the sums leaves few rows behind. Rows that another
 * process sums up at the moment are left to it.
 */
import { Effect } from "effect"
import type { Database } from "../Database.ts"

/** Fewer rows are not worth a write. */
const compactAbove = 200

/** In one statement. A process that is asked every five seconds keeps up with ten thousand statements a second. */
const compactMax = 50_000

const countSql = `SELECT count(*)::int AS n FROM (SELECT 1 FROM deadman.tally LIMIT ${compactAbove + 1}) x`

const compactSql = `WITH d AS (
    DELETE FROM deadman.tally
    WHERE ctid = ANY (ARRAY(SELECT ctid FROM deadman.tally LIMIT ${compactMax} FOR UPDATE SKIP LOCKED))
    RETURNING route, state, n
  )
  INSERT INTO deadman.tally (route, state, n)
  SELECT route, state, sum(n) FROM d GROUP BY 1, 2 HAVING sum(n) <> 0`

/** Never fails: what is not summed up now will be the next time, and the sums are right either way. */
export const compact = (db: Database["Service"]): Effect.Effect<void> =>
  db.query<{ n: number }>("read", countSql).pipe(
    Effect.flatMap(([row]) =>
      row !== undefined && row.n > compactAbove ? Effect.asVoid(db.query("read", compactSql)) : Effect.void
    ),
    Effect.ignore
  )
