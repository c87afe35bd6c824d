/** Jobs, schedules and queues as promises: the same names in a process that takes part and over HTTP. */
import type { QueueView } from "../../ports/Queues.ts"
import type { Definition } from "../job/Definition.ts"
import type {
  About,
  AnyDefinition,
  Ended,
  Entries,
  JobPage,
  ListOptions,
  PageOptions,
  QueueChange,
  QueuePage,
  RunOptions,
  ScheduleEntry,
  SchedulePage,
  Stats,
  Submission,
  ToWait,
  WaitOptions
} from "./Contract.ts"
import type { SubmitOptions } from "./SubmitOptions.ts"
import type { Job, Schedule } from "./Views.ts"

/** `Call` is what may be said about any call. */
export interface QueueCalls<Call = never> {
  /** By name, with settings and counts by state. */
  readonly list: (options?: PageOptions, call?: Call) => Promise<QueuePage>
  /** A queue exists once it has a job or was put; else it is `null`. */
  readonly get: (name: string, call?: Call) => Promise<QueueView | null>
  /** Changes what it names, and leaves the rest as it was. */
  readonly set: (name: string, change: QueueChange, call?: Call) => Promise<QueueView>
  /** No further job of it is claimed. What runs goes on. */
  readonly pause: (name: string, call?: Call) => Promise<QueueView>
  /** What became ready meanwhile is claimed in its order. */
  readonly resume: (name: string, call?: Call) => Promise<QueueView>
}

export interface ScheduleCalls<Call = never> {
  /** Stores a schedule under its name, or changes it: any number of processes may say the same at their start. */
  readonly put: <Payload>(name: string, entry: ScheduleEntry<Payload>, call?: Call) => Promise<Schedule>
  /** `null` if there is none of this name. */
  readonly get: (name: string, call?: Call) => Promise<Schedule | null>
  /** By name. */
  readonly list: (options?: PageOptions, call?: Call) => Promise<SchedulePage>
  /** It does not fire meanwhile. What a pause left out is not made up for. */
  readonly pause: (name: string, call?: Call) => Promise<Schedule>
  /** It goes on from its first tick after now on. */
  readonly resume: (name: string, call?: Call) => Promise<Schedule>
  /**
   * Makes a job now, also while it is paused. Its ticks stay as they are. Rejects with `ScheduleNotFound`, or with
   * `WrongState` where `overlap` skips it.
   */
  readonly run: (name: string, options?: RunOptions, call?: Call) => Promise<Job>
  /** Removes it, and says whether there was one. Its jobs stay. */
  readonly delete: (name: string, call?: Call) => Promise<boolean>
}

/** `Extra` is what a single submit may be told besides. */
export interface Jobs<Call = never, Extra = unknown> {
  /**
   * Stores a job; resolves after the commit. `created` of the answer is `false` where it was there before, by its
   * `idempotencyKey` or as a unique job.
   *
   * Rejects with `SubmitRefused` (its `field` says what to change), or with `SubmitUncertain`: then the job may or may
   * not be stored, and the same `idempotencyKey` makes it safe to submit it again. Over HTTP the latter is
   * `ServerUnavailable`, and `Unauthorized` may come besides.
   */
  readonly submit: {
    (type: string, payload?: unknown, options?: SubmitOptions & Extra, call?: Call): Promise<Submission>
    // The last one: a compiler that shows one of them shows this, and so what is wrong with the payload.
    <Payload, Value>(
      job: Definition<string, Payload, Value>,
      payload: NoInfer<Payload>,
      options?: SubmitOptions & Extra,
      call?: Call
    ): Promise<Submission<Value>>
  }
  /**
   * Stores all of them or none, in one commit: at most 10,000, with 16 MiB of payloads. Rejects as `submit` does; the
   * `field` of a refusal begins with the place in the array, as `[3].payload.to`.
   */
  readonly submitAll: <const All extends ReadonlyArray<AnyDefinition | string>>(
    entries: Entries<All>,
    call?: Call
  ) => Promise<ReadonlyArray<Submission>>
  /** The job as it is at present; `null` if there is none of this id. */
  readonly get: (job: About, call?: Call) => Promise<Job | null>
  /**
   * Waits until the job is `completed` or `dead`, whichever: look at `state` before `result`. A dead job rejects nothing.
   *
   * Rejects with `WaitTimedOut` after `timeoutMs`, a minute if nothing is said (the job goes on), with `JobNotFound`, or
   * with `JobValueRefused` where the result does not fit its definition.
   */
  readonly wait: <Value = unknown>(job: ToWait<Value>, options?: WaitOptions, call?: Call) => Promise<Ended<Value>>
  /**
   * Ends the job: it is `dead`, and a handler that runs is interrupted. One that was cancelled before stays as it is.
   * Rejects with `WrongState` where it has ended otherwise, with `JobNotFound` where there is none.
   */
  readonly cancel: (job: About, call?: Call) => Promise<Job>
  /** Makes a job due now that is `pending` or `failed`. Rejects with `WrongState` in any other, or `JobNotFound`. */
  readonly retry: (job: About, call?: Call) => Promise<Job>
  /**
   * A new job from one that has ended, with its payload and options, due now, at 0 attempts; its `job.key` is another.
   * Rejects with `WrongState` where it has not ended, or `JobNotFound`.
   */
  readonly resubmit: (job: About, call?: Call) => Promise<Job>
  /** One page, newest first: 50 jobs if nothing is said, 500 at most. Give its `next` as `before` for the next one. */
  readonly list: (options?: ListOptions, call?: Call) => Promise<JobPage>
  /** Short for `schedules.put`: a job at set times. Every process may say the same at its start. */
  readonly schedule: <Payload>(name: string, entry: ScheduleEntry<Payload>, call?: Call) => Promise<Schedule>
  /** Short for `schedules.delete`. */
  readonly unschedule: (name: string, call?: Call) => Promise<boolean>
  readonly schedules: ScheduleCalls<Call>
  readonly queues: QueueCalls<Call>
  /** Counts, counters, and the processes there are. */
  readonly stats: (call?: Call) => Promise<Stats>
}
