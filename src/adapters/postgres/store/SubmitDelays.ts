/**
 * Jobs that are due so long after they are stored, by the clock of the statement that stores them.
 *
 * Their delay goes below zero where others have the instant to run at, and only a flush that has such a job is stored by a
 * statement that looks for them: all others are stored by the statements that know of no delays.
 */
import type { NewJob } from "../../../domain/Job.ts"

export const hasDelay = (job: NewJob): boolean => job.delayMs !== undefined

export const whenOf = ({ delayMs, runAtMs }: NewJob): number | null => delayMs === undefined ? runAtMs : -delayMs

/** `s.due`: the array `times` with instants in place of the delays. `more`: what `s` has besides. */
export const clock = (times: string, more = ""): string =>
  `c AS MATERIALIZED (SELECT deadman.now_ms() AS now),
   s AS MATERIALIZED (
     SELECT c.now${more},
            (SELECT array_agg(CASE WHEN w.at_ms < 0 THEN c.now - w.at_ms ELSE w.at_ms END ORDER BY w.ord)
             FROM unnest(${times}) WITH ORDINALITY w(at_ms, ord)) AS due
     FROM c
   )`
