/**
 * Running jobs whose lease has no row: somebody deleted it, or put back some of the tables and not others.
 *
 * No statement of ours leaves one behind, so nobody looks for them but the walk of `prune`. What two walks have seen is
 * taken back as from a dead worker, without counting the loss. A worker that holds it has asked for its lease meanwhile,
 * and stopped; what it reports all the same is stale.
 */
import { Effect } from "effect"
import { type Database, uuids } from "../Database.ts"
import type { DatabaseFailed } from "../DatabaseFailed.ts"
import { journals, lostEpochs, state, tallies, wakes } from "./Rows.ts"

/** What a walk `w` over jobs has seen of them, as `id/lease`. */
export const unleased = `ARRAY(
     SELECT concat(w.id, '/', w.lease) FROM w
     WHERE w.state = ${state.running} AND NOT EXISTS (SELECT 1 FROM deadman.lease l WHERE l.id = w.lease)
   )`

// $1 ids, $2 the lease of each.
const takeBack = (wake: boolean) =>
  `WITH s AS MATERIALIZED (SELECT deadman.now_ms() AS now),
   o AS MATERIALIZED (
     SELECT q.id FROM deadman.job q WHERE q.id = ANY ($1::uuid[]) AND q.state = ${state.running} ORDER BY q.id
     FOR NO KEY UPDATE SKIP LOCKED
   ),
   u AS (
     UPDATE deadman.job j
     SET lease       = NULL,
         losses      = least(j.losses + 1, 32767),
         lost_epochs = ${lostEpochs("j")},
         state       = ${state.pending},
         wait_ms     = s.now
     FROM s CROSS JOIN unnest($1::uuid[], $2::uuid[]) x(id, lease)
     WHERE j.id = ANY (ARRAY(SELECT o.id FROM o)) AND j.id = x.id AND j.lease = x.lease AND j.state = ${state.running}
       AND NOT EXISTS (SELECT 1 FROM deadman.lease l WHERE l.id = x.lease)
     RETURNING j.id, j.route, j.epoch, j.worker, j.started_at_ms, s.now
   ),
   ${
    journals(
      `SELECT u.id, NULL::jsonb AS result, NULL::jsonb AS error,
              jsonb_build_object('kind', 'lease_lost', 'epoch', u.epoch, 'worker', u.worker, 'at_ms', u.now,
                'claimed_at_ms', u.started_at_ms, 'last_seen_ms', u.started_at_ms, 'counted', false) AS event
       FROM u`
    )
  },
   ${
    tallies(
      `SELECT u.route, m.state, m.sign * count(*) AS n
       FROM u CROSS JOIN (VALUES (${state.running}, -1), (${state.pending}, 1)) m(state, sign)
       GROUP BY u.route, m.state, m.sign`
    )
  },
   ${wakes(wake, "SELECT 'd' AS kind FROM u")}
   SELECT (SELECT count(*)::int FROM u) AS taken, (SELECT count(*)::int FROM n) AS woken`

/** What is remembered between two walks, at most. */
const seenMax = 10_000

export interface Unleased {
  /** Something was seen once: the next walk has to go as far. */
  readonly waits: () => boolean
  /** What the walk of this number has seen. */
  readonly found: (seen: ReadonlyArray<string>, walk: number) => Effect.Effect<void, DatabaseFailed>
}

export const make = (db: Database["Service"], wake: boolean): Unleased => {
  const sql = takeBack(wake)
  /** The walk that has seen it first. */
  const before = new Map<string, number>()
  return {
    waits: () => before.size > 0,
    found: Effect.fnUntraced(function*(seen, walk) {
      for (const [one, at] of before) {
        // It has ended, or somebody's lease has come back, since the walk before this one did not see it.
        if (at < walk - 1) before.delete(one)
      }
      const again = seen.filter((one) => (before.get(one) ?? walk) < walk)
      for (const one of seen) {
        if (before.size < seenMax && !before.has(one)) before.set(one, walk)
      }
      if (again.length === 0) return
      const parts = again.map((one) => one.split("/"))
      const [row] = yield* db.query<{ readonly taken: number }>("read", sql, [
        uuids(parts.map(([id]) => id ?? null)),
        uuids(parts.map(([, lease]) => lease ?? null))
      ])
      for (const one of again) before.delete(one)
      if (row !== undefined && row.taken > 0) {
        yield* Effect.logWarning(
          `${row.taken} running ${row.taken === 1 ? "job" : "jobs"} had no lease any more and ` +
            `${row.taken === 1 ? "goes" : "go"} to others: were rows of deadman.lease deleted?`
        )
      }
    })
  }
}
