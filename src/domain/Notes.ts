/**
 * What a handler notes down while it runs: how far it is, and lines for whoever reads the job later. All of it bounded.
 */
import type { Claim } from "./Claim.ts"

/** Lines kept of one attempt, the newest ones. */
export const attemptLinesMax = 50
/** Lines kept of one job, the newest ones. */
export const jobLinesMax = 100
/** Characters of one line. */
export const lineMax = 500
/** Bytes of one progress as JSON text. */
export const progressMaxBytes = 8_192

/** One line, as it is kept. */
export interface JobLog {
  readonly attempt: number
  readonly atMs: number
  readonly line: string
}

/** What one run has noted since its last note. */
export interface Note {
  readonly claim: Claim
  readonly attempt: number
  /** JSON text; `null` if nothing new was said. */
  readonly progress: string | null
  readonly lines: ReadonlyArray<{ readonly agoMs: number; readonly line: string }>
}

export interface Lines {
  readonly entries: ReadonlyArray<JobLog>
  readonly total: number
}

export const noLines: Lines = { entries: [], total: 0 }

export const append = (lines: Lines, added: ReadonlyArray<JobLog>): Lines => {
  const kept: Array<JobLog> = []
  const perAttempt = new Map<number, number>()
  for (const entry of [...lines.entries, ...added].toReversed()) {
    const n = (perAttempt.get(entry.attempt) ?? 0) + 1
    perAttempt.set(entry.attempt, n)
    if (n <= attemptLinesMax && kept.length < jobLinesMax) {
      kept.push(entry)
    }
  }
  return { entries: kept.toReversed(), total: lines.total + added.length }
}
