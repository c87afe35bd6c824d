/**
 * One job as the memory store keeps it, and the two ways in which it is shown.
 *
 * The columns are those of the Postgres tables, so that the two stores can be read side by side: `rank` is there while
 * the job may start, `waitMs` while it waits for a time, and `lease` on a row that is not running names the claim that
 * settled it.
 */
import type { LeaseId } from "../../domain/Claim.ts"
import * as History from "../../domain/History.ts"
import { type ClaimedJob, dueMs, type Job, type JobError, type JobEvent, type NewJob } from "../../domain/Job.ts"
import type { JobId } from "../../domain/JobId.ts"
import type { DeadReason, JobState } from "../../domain/JobState.ts"
import * as Notes from "../../domain/Notes.ts"

export interface JobRow {
  readonly submitted: NewJob
  readonly createdAtMs: number
  /** What `createdAtMs` and the submitted time came to, for whoever submits the job again. */
  readonly firstRunAtMs: number
  /** Of the payload's JSON text. */
  readonly bytes: number
  state: JobState
  runAtMs: number
  rank: number | null
  waitMs: number | null
  /** Gone with the first claim. */
  expireMs: number | null
  startedAtMs: number | null
  finishedAtMs: number | null
  epoch: number
  lease: LeaseId | null
  /** The claim that settled the job before its present one. */
  settled: { readonly epoch: number; readonly lease: LeaseId } | null
  lostEpochs: ReadonlyArray<number>
  deliveries: number
  attempts: number
  losses: number
  lossesCounted: number
  stale: number
  worker: string | null
  reason: DeadReason | null
  announced: boolean
  /** JSON text. */
  result: string | null
  errors: History.History<JobError>
  events: History.History<JobEvent>
  /** JSON text. */
  progress: string | null
  lines: Notes.Lines
  resubmittedAs: JobId | null
  /** Of a job that a schedule made. */
  tick: { readonly schedule: string; readonly tickMs: number | null } | null
}

export const make = (submitted: NewJob, nowMs: number): JobRow => {
  const runAtMs = dueMs(submitted, nowMs)
  return {
    submitted,
    createdAtMs: nowMs,
    firstRunAtMs: runAtMs,
    bytes: new TextEncoder().encode(submitted.payload).length,
    state: "pending",
    runAtMs,
    rank: null,
    waitMs: null,
    expireMs: submitted.startByMs ?? null,
    startedAtMs: null,
    finishedAtMs: null,
    epoch: 0,
    lease: null,
    settled: null,
    lostEpochs: [],
    deliveries: 0,
    attempts: 0,
    losses: 0,
    lossesCounted: 0,
    stale: 0,
    worker: null,
    reason: null,
    announced: true,
    result: null,
    errors: History.empty,
    events: History.empty,
    progress: null,
    lines: Notes.noLines,
    resubmittedAs: null,
    tick: null
  }
}

export const asJob = (row: JobRow): Job => ({
  id: row.submitted.id,
  type: row.submitted.type,
  queue: row.submitted.queue,
  priority: row.submitted.priority,
  state: row.state,
  payload: JSON.parse(row.submitted.payload),
  tags: row.submitted.tags,
  attempts: row.attempts,
  maxAttempts: row.submitted.maxAttempts,
  backoff: row.submitted.backoff,
  timeoutMs: row.submitted.timeoutMs,
  startByMs: row.submitted.startByMs ?? null,
  retainMs: row.submitted.retainMs ?? null,
  unique: row.submitted.unique ?? null,
  runAtMs: row.runAtMs,
  createdAtMs: row.createdAtMs,
  startedAtMs: row.startedAtMs,
  finishedAtMs: row.finishedAtMs,
  worker: row.worker,
  epoch: row.epoch,
  deliveries: row.deliveries,
  leaseLosses: row.losses,
  staleWrites: row.stale,
  reason: row.reason,
  result: row.result === null ? null : JSON.parse(row.result),
  errors: row.errors.entries,
  errorsOmitted: row.errors.omitted,
  events: row.events.entries,
  eventsOmitted: row.events.omitted,
  progress: row.progress === null ? null : JSON.parse(row.progress),
  logs: row.lines.entries,
  logsOmitted: row.lines.total - row.lines.entries.length,
  resubmittedFrom: row.submitted.resubmittedFrom,
  resubmittedAs: row.resubmittedAs,
  schedule: row.tick?.schedule ?? null,
  tickMs: row.tick?.tickMs ?? null
})

export const asClaimed = (row: JobRow): ClaimedJob => ({
  id: row.submitted.id,
  epoch: row.epoch,
  type: row.submitted.type,
  queue: row.submitted.queue,
  payload: JSON.parse(row.submitted.payload),
  attempts: row.attempts,
  maxAttempts: row.submitted.maxAttempts,
  backoff: row.submitted.backoff,
  timeoutMs: row.submitted.timeoutMs,
  deliveries: row.deliveries,
  leaseLosses: row.losses,
  waitedMs: (row.startedAtMs ?? row.runAtMs) - row.runAtMs,
  key: row.submitted.key?.key ?? null
})
