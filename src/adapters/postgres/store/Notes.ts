/**
 * Keeping what handlers note down: one statement for all of it.
 *
 * It locks no job. A note belongs to the claim it was made under, and counts also after the run has ended: the claim
 * that settled a job is named on its row until the next one has done so too.
 */
import { Effect } from "effect"
import type { Note } from "../../../domain/Notes.ts"
import type { JobStore } from "../../../ports/JobStore.ts"
import { type Database, ints, texts, uuids } from "../Database.ts"
import type { DatabaseFailed } from "../DatabaseFailed.ts"
import { orUnavailable } from "./Rows.ts"

/** $1 ids, $2 epochs, $3 leases, $4 attempts, $5 progress, $6 lines as `[{"ago": ms, "line"}]`. */
const noteSql = `WITH s AS MATERIALIZED (SELECT deadman.now_ms() AS now),
  x AS MATERIALIZED (
    SELECT x.id, x.attempt, x.lines::jsonb AS lines,
           CASE WHEN j.epoch = x.epoch THEN x.progress::jsonb END AS progress
    FROM unnest($1::uuid[], $2::int[], $3::uuid[], $4::int[], $5::text[], $6::text[])
           AS x(id, epoch, lease, attempt, progress, lines)
    CROSS JOIN LATERAL (
      SELECT q.epoch FROM deadman.job q
      WHERE q.id = x.id
        AND ((q.epoch = x.epoch AND q.lease = x.lease) OR (q.settled_epoch = x.epoch AND q.settled_lease = x.lease))
      LIMIT 1
    ) j
  )
  INSERT INTO deadman.journal AS g (id, progress, logs, logs_total)
  SELECT x.id, x.progress, CASE WHEN jsonb_array_length(x.lines) > 0 THEN deadman.lines(NULL, l.lines) END,
         jsonb_array_length(x.lines)
  FROM x CROSS JOIN s CROSS JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_object(
             'attempt', x.attempt, 'at_ms', s.now - (t.e ->> 'ago')::bigint, 'line', t.e ->> 'line') ORDER BY t.n) AS lines
    FROM jsonb_array_elements(x.lines) WITH ORDINALITY t(e, n)
  ) l
  ORDER BY x.id
  ON CONFLICT (id) DO UPDATE
  SET progress   = coalesce(EXCLUDED.progress, g.progress),
      logs       = CASE WHEN EXCLUDED.logs IS NULL THEN g.logs ELSE deadman.lines(g.logs, EXCLUDED.logs) END,
      logs_total = g.logs_total + EXCLUDED.logs_total`

/** A row of the journal is written once in a statement: notes about one job go one after the other. */
const rounds = (notes: ReadonlyArray<Note>): ReadonlyArray<ReadonlyArray<Note>> => {
  const made: Array<Array<Note>> = []
  const seen = new Map<string, number>()
  for (const note of notes) {
    const round = seen.get(note.claim.id) ?? 0
    seen.set(note.claim.id, round + 1)
    const at = made[round]
    if (at === undefined) made.push([note])
    else at.push(note)
  }
  return made
}

export const make = (db: Database["Service"]): Pick<JobStore["Service"], "note"> => {
  const send = (notes: ReadonlyArray<Note>): Effect.Effect<void, DatabaseFailed> =>
    db.query("read", noteSql, [
      uuids(notes.map(({ claim }) => claim.id)),
      ints(notes.map(({ claim }) => claim.epoch)),
      uuids(notes.map(({ claim }) => claim.lease)),
      ints(notes.map(({ attempt }) => attempt)),
      texts(notes.map(({ progress }) => progress)),
      texts(notes.map(({ lines }) => JSON.stringify(lines.map(({ agoMs, line }) => ({ ago: agoMs, line })))))
    ]).pipe(
      Effect.asVoid,
      // What Postgres cannot hold is left out, and takes no other note along.
      Effect.catchIf((error) => error.kind === "refused", () =>
        notes.length > 1 ? Effect.forEach(notes, (note) => send([note]), { discard: true }) : Effect.void)
    )

  return {
    note: (notes) => orUnavailable("note")(Effect.forEach(rounds(notes), send, { discard: true }))
  }
}
