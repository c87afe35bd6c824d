/** An index on a table that may be large by now. */
export interface Index {
  readonly name: string
  readonly unique?: boolean
  readonly on: "body" | "job"
  /** Columns and predicate. */
  readonly what: string
}

// The columns are of steps 0004 and 0005, NULL in all rows from before: an index over next to nothing, whose making reads
// the whole table nevertheless.
export default [
  { name: "job_expire", on: "job", what: `(expire_ms) WHERE expire_ms IS NOT NULL` },
  { name: "job_prune", on: "job", what: `(prune_ms, id) WHERE prune_ms IS NOT NULL` },
  // The second pair of eyes behind the lock on the schedule's row.
  {
    name: "body_tick",
    unique: true,
    on: "body",
    what: `(schedule, tick_ms) WHERE schedule IS NOT NULL AND tick_ms IS NOT NULL`
  }
] satisfies ReadonlyArray<Index>
