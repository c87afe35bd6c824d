/**
 * What the memory store is made of: three maps, and the few ways of writing to them.
 *
 * Each operation of the port runs in one go against these, as a statement of a database would, and begins with a yield:
 * concurrent callers interleave between operations and never within one.
 */
import { Clock, Effect, Result } from "effect"
import type { LeaseId } from "../../domain/Claim.ts"
import * as History from "../../domain/History.ts"
import type { JobEvent, Queue } from "../../domain/Job.ts"
import type { JobId } from "../../domain/JobId.ts"
import * as JobState from "../../domain/JobState.ts"
import * as QueueSettings from "../../domain/QueueSettings.ts"
import * as Rank from "../../domain/Rank.ts"
import type { JobRow } from "./JobRow.ts"

export interface LeaseRow {
  readonly lease: LeaseId
  readonly leaseMs: number
  readonly worker: string
  readonly claimedAtMs: number
  readonly jobIds: ReadonlyArray<JobId>
  token: number
  seenAtMs: number
  revoked: ReadonlyArray<{ readonly id: JobId; readonly epoch: number; readonly reason: string }>
}

/** What was said about a queue. */
export interface QueueRow extends QueueSettings.QueueSettings {
  readonly createdAtMs: number
  /** Jobs that are ready may stand where an earlier step put them. */
  readonly stepped: boolean
}

export interface Tables {
  readonly keyTtlMs: number
  /** In `[0, 1)`: spreads what was reclaimed. */
  readonly draw: () => number
  readonly jobs: Map<JobId, JobRow>
  readonly keys: Map<string, { readonly job: JobId; readonly fingerprint: string }>
  /** By what must be unique: the newest job of it, and until when that is kept for it. */
  readonly places: Map<string, { readonly job: JobId; readonly untilMs: number | null }>
  readonly leases: Map<LeaseId, LeaseRow>
  readonly queues: Map<Queue, QueueRow>
  /** The rows with a rank: what claims look at, so that finished jobs cost them nothing. */
  readonly ready: Set<JobRow>
  readonly waiting: Set<JobRow>
}

export const make = (options: { readonly keyTtlMs: number; readonly draw: () => number }): Tables => ({
  ...options,
  jobs: new Map(),
  keys: new Map(),
  places: new Map(),
  leases: new Map(),
  queues: new Map(),
  ready: new Set(),
  waiting: new Set()
})

/** Queues with a limit. */
export const limitsOf = (tables: Tables) =>
  [...tables.queues].flatMap(([queue, { concurrency }]) => concurrency === null ? [] : [{ queue, concurrency }])

/** Runs one operation, stamped by the store's clock. */
export const at = <A>(operation: (nowMs: number) => A): Effect.Effect<A> =>
  Effect.andThen(Effect.yieldNow, Effect.map(Clock.currentTimeMillis, (nowMs) => operation(Math.floor(nowMs))))

/** Makes `step` if the table of states has it, and says whether it did. */
export const advance = (row: JobRow, step: JobState.Step): boolean => {
  const next = JobState.apply(step, row.state)
  if (Result.isFailure(next)) {
    return false
  }
  row.state = next.success
  return true
}

/** What the queue's step makes of when the job is due. */
export const rankOf = (tables: Tables, { runAtMs, submitted }: JobRow): number =>
  Rank.rank(runAtMs, submitted.priority, (tables.queues.get(submitted.queue) ?? QueueSettings.defaults).stepMs)

/** Lets a waiting job start from `fromMs` on. Its place in the order is that of its `runAtMs`. */
export const place = (tables: Tables, row: JobRow, fromMs: number, nowMs: number): void => {
  unplace(tables, row)
  if (fromMs > nowMs) {
    row.waitMs = fromMs
    tables.waiting.add(row)
    return
  }
  row.rank = rankOf(tables, row)
  tables.ready.add(row)
}

/** The job is neither ready nor waiting for a time. */
export const unplace = (tables: Tables, row: JobRow): void => {
  row.rank = null
  row.waitMs = null
  tables.ready.delete(row)
  tables.waiting.delete(row)
}

export const end = (tables: Tables, row: JobRow, reason: JobState.DeadReason | null, nowMs: number): void => {
  unplace(tables, row)
  row.expireMs = null
  row.finishedAtMs = nowMs
  row.reason = reason
  row.announced = reason === null
}

const lostEpochsKept = 50

/** Takes the job away from its claim: whatever that still writes is stale. */
export const cutOff = (row: JobRow): void => {
  row.lease = null
  row.lostEpochs = [...row.lostEpochs, row.epoch].slice(-lostEpochsKept)
}

export const record = (row: JobRow, event: JobEvent): void => {
  row.events = History.append(row.events, event)
}

export const runningUnder = (tables: Tables, lease: LeaseRow): ReadonlyArray<JobRow> =>
  lease.jobIds.flatMap((id) => {
    const row = tables.jobs.get(id)
    return row !== undefined && row.state === "running" && row.lease === lease.lease ? [row] : []
  })
