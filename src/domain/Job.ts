/**
 * A job: what is asked for, and what is known about it.
 *
 * Instants are whole milliseconds since the epoch by the database's clock, as
 * they stand in the API and in the tables; lengths of time end in `Ms` too.
 */
import { Schema } from "effect"
import { type Backoff, defaults } from "./Backoff.ts"
import type { JobId } from "./JobId.ts"
import type { DeadReason, JobState } from "./JobState.ts"
import type { JobLog } from "./Notes.ts"
import type { Unique } from "./Unique.ts"

/** Letters, digits and `. _ : -`, so that a name is safe in logs, metrics, Redis keys and topic names. */
export const namePattern = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/

export const nameRule = "must be 1 to 128 characters of A-Z a-z 0-9 . _ : -, beginning with a letter or digit"

const Name = Schema.String.check(Schema.isPattern(namePattern, { message: nameRule }))

export const JobType = Name.pipe(Schema.brand("JobType"))
export type JobType = typeof JobType.Type

export const Queue = Name.pipe(Schema.brand("Queue"))
export type Queue = typeof Queue.Type

export const queueDefault = Queue.make("default")

export const priorityMax = 1_000
export const Priority = Schema.Int.check(Schema.isBetween({ minimum: -priorityMax, maximum: priorityMax }))

/** Runs that may end in failure, the first included. */
export const attemptMax = 1_000
export const attemptDefault = 10
export const MaxAttempts = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: attemptMax }))

/** A week. A longer run should be cut into jobs. */
export const timeoutMaxMs = 604_800_000
export const TimeoutMs = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: timeoutMaxMs }))

/** The last millisecond of the year 9999. */
export const instantMaxMs = 253_402_300_799_999

/**
 * Seconds of the years 2001 to 5138. Taken for milliseconds they are a time around 1970, and the job would start at once:
 * nobody means that, so it is refused.
 */
export const isSeconds = (instant: number): boolean => instant >= 1_000_000_000 && instant < 100_000_000_000

export const secondsRule = (instant: number): string =>
  `must be milliseconds since the epoch: ${instant} looks like seconds, so give ${instant * 1_000}`

export const InstantMs = Schema.Int.check(
  Schema.isBetween({ minimum: 0, maximum: instantMaxMs }),
  Schema.makeFilter((instant: number) => !isSeconds(instant) || secondsRule(instant))
)

/** A hundred years: from any clock, the instant is one that there is. */
export const delayMaxMs = 3_155_760_000_000
export const DelayMs = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: delayMaxMs }))

/** A hundred years: how long one job may be kept after its end. */
export const retainMaxMs = 3_155_760_000_000
export const RetainMs = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: retainMaxMs }))

export const tagMax = 32
export const Tag = Schema.String.check(Schema.isPattern(/^[\x21-\x7e]([\x20-\x7e]{0,62}[\x21-\x7e])?$/, {
  message: "must be 1 to 64 printable ASCII characters, without a space at either end"
}))
export const Tags = Schema.Array(Tag).check(Schema.isMaxLength(tagMax))

/** Printable ASCII without spaces, at most 255 characters. */
export const IdempotencyKey = Schema.String.check(Schema.isPattern(/^[\x21-\x7e]{1,255}$/, {
  message: "must be 1 to 255 printable ASCII characters without spaces"
}))

/** Bytes of one payload as JSON text. */
export const payloadMaxBytes = 1_048_576

/** Jobs of one batch, and bytes of it: it is stored in one commit, whole or not at all, which must not take long. */
export const batchJobsMax = 10_000
export const batchMaxBytes = 16 * 1_048_576

/** An Idempotency-Key, with the fingerprint of the request that first used it. */
export interface KeyClaim {
  readonly key: string
  readonly fingerprint: string
}

/** A job as it is submitted, defaults filled in. The id is drawn before the first attempt to store it. */
export interface NewJob {
  readonly id: JobId
  readonly type: JobType
  readonly queue: Queue
  /** JSON text, already checked: it can be stored and read back without loss. */
  readonly payload: string
  readonly priority: number
  readonly maxAttempts: number
  readonly backoff: Backoff
  readonly timeoutMs: number | null
  /** `null`, or a time in the past, means now. */
  readonly runAtMs: number | null
  /** So long after it is stored it is due, by the store's clock; `runAtMs` is `null` then. Absent: `runAtMs` counts. */
  readonly delayMs?: number
  readonly tags: ReadonlyArray<string>
  readonly key: KeyClaim | null
  readonly resubmittedFrom: JobId | null
  /** A job that nobody has claimed by then is dead. Absent or `null`: there is no such time. */
  readonly startByMs?: number | null
  /** How long it is kept after its end. Absent or `null`: as long as is configured. */
  readonly retainMs?: number | null
  /** Absent or `null`: it is stored beside any other. */
  readonly unique?: Unique | null
}

/** When a job is due that is stored at `nowMs`. */
export const dueMs = ({ delayMs, runAtMs }: Pick<NewJob, "delayMs" | "runAtMs">, nowMs: number): number =>
  delayMs === undefined ? Math.max(nowMs, runAtMs ?? 0) : nowMs + delayMs

/** A job of which nothing else is said: due now, in the default queue. */
export const plainJob = (type: JobType, payload: string): Omit<NewJob, "id"> => ({
  type,
  queue: queueDefault,
  payload,
  priority: 0,
  maxAttempts: attemptDefault,
  backoff: defaults,
  timeoutMs: null,
  runAtMs: null,
  tags: [],
  key: null,
  resubmittedFrom: null
})

/** One failed run. */
export interface JobError {
  /** Which failure it was, from 1. */
  readonly attempt: number
  readonly epoch: number
  readonly worker: string
  readonly claimedAtMs: number
  /** When it failed. */
  readonly atMs: number
  readonly name: string
  readonly message: string
}

/** Something off the happy path. What a kind says besides is in its optional fields. */
export interface JobEvent {
  readonly kind: "lease_lost" | "released" | "stale_write" | "cancel_requested" | "retried"
  readonly epoch: number
  readonly worker: string | null
  readonly atMs: number
  /** `lease_lost`. */
  readonly claimedAtMs?: number
  /** `lease_lost`: when the lease was last renewed. */
  readonly lastSeenMs?: number
  /** `lease_lost`: whether it counts towards the crash-loop limit. */
  readonly counted?: boolean
  /** `stale_write`: the outcome that was refused. */
  readonly outcome?: string
  /** `stale_write`. */
  readonly currentEpoch?: number
}

/** A job as a reader sees it. */
export interface Job {
  readonly id: JobId
  readonly type: JobType
  readonly queue: Queue
  readonly priority: number
  readonly state: JobState
  /** The payload as a JSON value. */
  readonly payload: unknown
  readonly tags: ReadonlyArray<string>
  /** Runs that ended in failure so far. Lost workers, deploys and `Job.again` do not count. */
  readonly attempts: number
  /** The job is dead after so many of them. */
  readonly maxAttempts: number
  readonly backoff: Backoff
  readonly timeoutMs: number | null
  readonly startByMs: number | null
  readonly retainMs: number | null
  readonly unique: Unique | null
  /** When it is due, or was. */
  readonly runAtMs: number
  readonly createdAtMs: number
  /** When its newest run began. */
  readonly startedAtMs: number | null
  /** When it was completed or dead. */
  readonly finishedAtMs: number | null
  /** Who runs it, or ran it last. */
  readonly worker: string | null
  /** The number of its newest claim. */
  readonly epoch: number
  /** How often it was handed to a worker. */
  readonly deliveries: number
  /** How often its worker went quiet. */
  readonly leaseLosses: number
  /** Writes that were refused since the job was another worker's by then. */
  readonly staleWrites: number
  /** Why it is dead. */
  readonly reason: DeadReason | null
  /** What its handler returned, as a JSON value. */
  readonly result: unknown
  /** The first three failures and the newest twelve. */
  readonly errors: ReadonlyArray<JobError>
  /** How many between them are not kept. */
  readonly errorsOmitted: number
  /** The first three and the newest twelve. */
  readonly events: ReadonlyArray<JobEvent>
  readonly eventsOmitted: number
  /** What a handler said last about how far it is; `null` if nothing. */
  readonly progress: unknown
  readonly logs: ReadonlyArray<JobLog>
  readonly logsOmitted: number
  readonly resubmittedFrom: JobId | null
  readonly resubmittedAs: JobId | null
  /** The schedule that made it, and at which of its times; no time where a person told it to. */
  readonly schedule: string | null
  readonly tickMs: number | null
}

/** What a worker gets with a claim: all it needs to run the job, and nothing else. */
export interface ClaimedJob {
  readonly id: JobId
  readonly epoch: number
  readonly type: JobType
  readonly queue: Queue
  readonly payload: unknown
  /** Failures so far. */
  readonly attempts: number
  readonly maxAttempts: number
  readonly backoff: Backoff
  readonly timeoutMs: number | null
  /** This delivery included: 1 on the first. */
  readonly deliveries: number
  readonly leaseLosses: number
  /** From when it was due to this claim, by the store's clock. */
  readonly waitedMs: number
  /** The caller's Idempotency-Key, if there was one. */
  readonly key: string | null
}

/** The same for every delivery of a job: what a handler gives to a provider as its idempotency key. */
export const effectKey = (job: Pick<ClaimedJob, "id" | "key">): string => job.key ?? job.id
