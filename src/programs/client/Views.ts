/**
 * Jobs and schedules as programs see them: what is known of them, in the words of TypeScript all through.
 *
 * In the tables, in SQL and over HTTP a backoff and what makes a job unique are JSON, and their fields are snake_case.
 */
import type * as Stored from "../../domain/Job.ts"
import type { JobState } from "../../domain/JobState.ts"
import type * as StoredSchedule from "../../domain/Schedule.ts"
import * as Casing from "./Casing.ts"
import type { Backoff } from "./SubmitOptions.ts"

/** What makes a job unique, its defaults filled in. */
export interface UniqueTerms {
  /** `null`: all of the payload is compared. */
  readonly fields: ReadonlyArray<string> | null
  /** `null`: however long ago the other one was submitted. */
  readonly windowMs: number | null
  readonly states: ReadonlyArray<JobState>
  readonly onConflict: "skip" | "replace"
}

/** A job as a reader sees it. */
export interface Job extends Omit<Stored.Job, "backoff" | "unique"> {
  readonly backoff: Backoff
  readonly unique: UniqueTerms | null
}

export interface Schedule extends Omit<StoredSchedule.Schedule, "backoff"> {
  readonly backoff: Backoff
}

const backoffOf = (stored: object): Backoff => Casing.camelFields(stored) as unknown as Backoff

const uniqueOf = (stored: object | null): UniqueTerms | null =>
  stored === null ? null : Casing.camelFields(stored) as unknown as UniqueTerms

export const ofJob = (job: Stored.Job): Job => ({
  ...job,
  backoff: backoffOf(job.backoff),
  unique: uniqueOf(job.unique)
})

export const ofSchedule = (schedule: StoredSchedule.Schedule): Schedule => ({
  ...schedule,
  backoff: backoffOf(schedule.backoff)
})

/** What is read over HTTP. */
export const ofJson = (
  json: { readonly backoff: object; readonly unique?: object | null }
): Record<string, unknown> => ({
  ...Casing.camelFields(json),
  backoff: backoffOf(json.backoff),
  ...(json.unique === undefined ? {} : { unique: uniqueOf(json.unique) })
})
