/**
 * Port: schedules, and the jobs that their ticks make.
 *
 * Laws, which `test/contracts/SchedulesContract.ts` holds every adapter to:
 *
 * 1. `put` stores a schedule whole. The same timing again leaves what is booked as it is; another one books the first
 *    tick after now, and never one that is over. What was paused stays paused where nothing is said about it.
 * 2. `due` answers the schedules whose booked tick has come, earliest first, and how long it is until the next; paused
 *    ones are never among them. It changes nothing.
 * 3. `fire` acts on a schedule only as `due` saw it: one that was fired, changed, paused or removed since is left alone
 *    and answers nothing. So however many ask, each tick makes one job, and asking again after a lost answer makes none.
 * 4. The jobs of a firing and its next booking are stored together or not at all. Each job names its schedule and tick.
 * 5. A schedule that may not overlap skips its tick while its job before is not final; one that cancels ends that job in
 *    the same step in which the new one is stored.
 * 6. `run` makes a job now, also of a paused schedule, and leaves the ticks alone; it names no tick. It is refused where
 *    the tick would be skipped. Asked again under the same id it makes no second one, and neither under the same
 *    Idempotency-Key, which is one of those of `JobStore`: a repeat answers `Replayed`, another request `KeyMismatch`. A
 *    run that is refused leaves its key free.
 * 7. `resume` books the first tick after now. What lay in the pause was not missed. On one that is not paused it changes
 *    nothing, and so does `pause` on one that is.
 * 8. `remove` keeps the jobs.
 * 9. `list` walks by name.
 *
 * Time is the store's own. No method hangs: each has a deadline of the adapter's, and then fails with
 * `SchedulesUnavailable`. What was sent may still take effect.
 */
import { Context, type Effect, Schema } from "effect"
import { because } from "../domain/Because.ts"
import type { LeaseId } from "../domain/Claim.ts"
import type { Job, JobType, KeyClaim, Queue } from "../domain/Job.ts"
import type { JobId } from "../domain/JobId.ts"
import type { JobState } from "../domain/JobState.ts"
import type { DueSchedule, NewSchedule, Overlap, Schedule, ScheduleName } from "../domain/Schedule.ts"

/** The store did not answer, or not in time. Whether it took effect is not known. Perhaps later. */
export class SchedulesUnavailable extends Schema.TaggedError<SchedulesUnavailable>()("SchedulesUnavailable", {
  operation: Schema.Literals(["put", "get", "list", "remove", "pause", "resume", "run", "due", "fire"]),
  cause: Schema.Defect()
}) {
  override get message(): string {
    return `the store of schedules did not answer (${this.operation}): ${because(this.cause)}`
  }
}

export interface Put {
  readonly created: boolean
  readonly schedule: Schedule
}

export interface SchedulePage {
  readonly schedules: ReadonlyArray<Schedule>
  /** `null` at the end. */
  readonly next: ScheduleName | null
}

export interface Due extends DueSchedule {
  readonly name: ScheduleName
  /** Moves with every change: what `fire` is given back. */
  readonly revision: number
  /** Of its payload, which each of its jobs carries. */
  readonly bytes: number
}

export interface DueSchedules {
  readonly nowMs: number
  readonly schedules: ReadonlyArray<Due>
  /** How long until the earliest that is not due; `null` where none is booked. */
  readonly nextInMs: number | null
}

/** What is to become of a due schedule. Without ticks it is only booked anew, and with no booking it fires no more. */
export interface FireRequest {
  readonly name: ScheduleName
  readonly revision: number
  readonly overlap: Overlap
  /** In order; more than one only where its jobs may overlap. */
  readonly ticks: ReadonlyArray<{ readonly tickMs: number; readonly id: JobId }>
  readonly nextFireMs: number | null
}

export interface FiredJob {
  readonly id: JobId
  readonly type: JobType
  readonly queue: Queue
  /** It has a priority: it does not queue behind what was published. */
  readonly ordered: boolean
}

/** A job that was ended for the next one, and the claim that was cut off if it ran. */
export interface CutOff {
  readonly id: JobId
  readonly cutOff: { readonly lease: LeaseId; readonly epoch: number } | null
}

export interface Fired {
  /** The schedules that were moved on by this call. */
  readonly moved: ReadonlyArray<ScheduleName>
  readonly jobs: ReadonlyArray<FiredJob>
  readonly cancelled: ReadonlyArray<CutOff>
  /** Schedules whose ticks the store cannot take, and why; they stay due. */
  readonly failed: ReadonlyArray<{ readonly name: ScheduleName; readonly message: string }>
  /** Whether the store has woken the workers itself. */
  readonly announced: boolean
}

export type Ran =
  | { readonly _tag: "Ran"; readonly job: Job; readonly cancelled: CutOff | null; readonly announced: boolean }
  | { readonly _tag: "NotFound" }
  /** Its job before is not final, and two may not be there at once. */
  | { readonly _tag: "Overlaps"; readonly job: JobId; readonly state: JobState }
  /** The key is known, for this very request. The job is `null` if it was pruned while its key lives. */
  | { readonly _tag: "Replayed"; readonly job: Job | null }
  /** The key is known, for another request. */
  | { readonly _tag: "KeyMismatch"; readonly job: JobId }

type Answer<A> = Effect.Effect<A, SchedulesUnavailable>

export class Schedules extends Context.Service<Schedules, {
  readonly put: (schedule: NewSchedule) => Answer<Put>
  readonly get: (name: ScheduleName) => Answer<Schedule | null>
  readonly list: (request: {
    readonly limit: number
    /** The `next` of an earlier page. */
    readonly after: ScheduleName | null
  }) => Answer<SchedulePage>
  /** Whether there was one. */
  readonly remove: (name: ScheduleName) => Answer<boolean>
  readonly pause: (name: ScheduleName) => Answer<Schedule | null>
  readonly resume: (name: ScheduleName) => Answer<Schedule | null>
  readonly run: (name: ScheduleName, id: JobId, key?: KeyClaim | null) => Answer<Ran>

  readonly due: (limit: number) => Answer<DueSchedules>
  readonly fire: (requests: ReadonlyArray<FireRequest>) => Answer<Fired>
  /** Waits until a schedule was changed through this process, so that whoever sleeps until the next tick looks again. */
  readonly changed: Effect.Effect<void>
}>()("deadman/ports/Schedules") {}
