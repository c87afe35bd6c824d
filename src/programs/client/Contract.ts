/** What a client takes and answers, whichever way it reaches the jobs: within a process, or over HTTP. */
import { Effect, type Result, Schema } from "effect"
import { type DeadReason, type JobState, jobStates } from "../../domain/JobState.ts"
import type { QueueSettings } from "../../domain/QueueSettings.ts"
import type { NewSchedule } from "../../domain/Schedule.ts"
import type { ListRequest } from "../../ports/JobStore.ts"
import type { QueueView } from "../../ports/Queues.ts"
import type { ListedSession } from "../../ports/Sessions.ts"
import type { Definition, JobValueRefused } from "../job/Definition.ts"
import type * as SubmitOptions from "./SubmitOptions.ts"
import type { Job, Schedule } from "./Views.ts"

/** What was asked for can never be accepted: change it. */
export class SubmitRefused extends Schema.TaggedError<SubmitRefused>()("SubmitRefused", {
  message: Schema.String,
  /** Which part of it is wrong, like `payload.items[2].sku` or `maxAttempts`. */
  field: Schema.NullOr(Schema.String)
}) {}

/** The job may or may not be stored. Submit it again under the same `idempotencyKey`, or look first. */
export class SubmitUncertain extends Schema.TaggedError<SubmitUncertain>()("SubmitUncertain", {
  message: Schema.String,
  reason: Schema.Literals(["full", "stopping", "store", "key_locked"])
}) {}

/** The job is in a state in which that cannot be done. */
export class WrongState extends Schema.TaggedError<WrongState>()("WrongState", {
  message: Schema.String,
  /** That state; `unknown` where a server of before has not said it. */
  state: Schema.Literals([...jobStates, "unknown"])
}) {}

/** There is no schedule of this name. */
export class ScheduleNotFound extends Schema.TaggedError<ScheduleNotFound>()("ScheduleNotFound", {
  name: Schema.String
}) {
  override get message(): string {
    return `there is no schedule ${this.name.slice(0, 100)}: put it first`
  }
}

// oxlint-disable-next-line typescript/no-explicit-any -- a definition of whatever payload and result
export type AnyDefinition = Definition<string, any, any>

/** What a program knows of a job that it has just submitted. */
export interface Submission<Value = unknown> {
  readonly id: string
  readonly type: string
  /** `false`: the job was there already, by its idempotencyKey or as a unique job. */
  readonly created: boolean
  /** For `wait`, which gives the result as its type. Not there for a job that was submitted by name. */
  readonly definition?: { readonly decodeResult: (json: unknown) => Result.Result<Value, JobValueRefused> }
}

/** A job, by its id or by what was answered about it. */
export type About = string | { readonly id: string }

/** The same; of what was submitted by its definition the result has its type. */
export type ToWait<Value = unknown> = string | Pick<Submission<Value>, "id" | "definition">

/** A job that has ended: `completed` with its result, or `dead` with a reason. */
export type Ended<Value = unknown> =
  | (Omit<Job, "state" | "result" | "reason"> & {
    readonly state: "completed"
    readonly result: Value
    readonly reason: null
  })
  | (Omit<Job, "state" | "result" | "reason"> & {
    readonly state: "dead"
    readonly result: null
    readonly reason: DeadReason
  })

// oxlint-disable-next-line typescript/no-explicit-any -- a definition of whatever result
type PayloadOf<Job> = Job extends Definition<string, infer Payload, any> ? Payload : unknown

/** Jobs of a batch, each with the payload of its own definition, as far as it is known which one that is. */
export type Entries<Jobs extends ReadonlyArray<AnyDefinition | string>> = {
  readonly [Index in keyof Jobs]: Entry<Jobs[Index]>
}

/** One job of a batch: what `submit` takes. */
export interface Entry<Job = AnyDefinition | string> {
  readonly job: Job
  readonly payload?: PayloadOf<Job>
  readonly options?: SubmitOptions.SubmitOptions
}

const waitDefaultMs = 60_000

export interface WaitOptions {
  /** How long to wait at most; a minute if nothing is said. */
  readonly timeoutMs?: number | undefined
}

export type ListOptions = Partial<Omit<ListRequest, "before" | "type" | "queue">> & {
  readonly type?: string
  readonly queue?: string
  /** The `next` of an earlier page. */
  readonly before?: string | null
}

export interface JobPage {
  readonly jobs: ReadonlyArray<Job>
  /** `null` at the end; a short or empty page may have one. */
  readonly next: string | null
}

/** A job that is submitted at each tick. */
// oxlint-disable-next-line typescript/no-explicit-any -- of whatever definition, unless it is known
export interface ScheduleEntry<Payload = any> extends
  Pick<
    SubmitOptions.SubmitOptions,
    "queue" | "priority" | "maxAttempts" | "backoff" | "timeoutMs" | "retainMs" | "tags"
  >
{
  // oxlint-disable-next-line typescript/no-explicit-any -- a definition of whatever result
  readonly job: Definition<string, Payload, any> | string
  readonly payload?: NoInfer<Payload>
  /** Five fields: minute, hour, day of the month, month, day of the week. This, or `everyMs`. */
  readonly cron?: string | undefined
  /** The zone in which `cron` is read, such as Europe/Zurich; UTC if nothing is said. */
  readonly zone?: string | undefined
  /** A tick at each multiple of so many milliseconds since the epoch, 1,000 (a second) to 86,400,000 (a day). */
  readonly everyMs?: number | undefined
  /** What becomes of ticks that nobody was there for; `latest` if nothing is said. */
  readonly missed?: NewSchedule["missed"] | undefined
  /** What a tick does while the job before it goes on; `allow` if nothing is said. */
  readonly overlap?: NewSchedule["overlap"] | undefined
  /** Whether it fires nothing for now. Absent: as it is, so that a deploy starts nothing that was paused. */
  readonly paused?: boolean | undefined
}

export interface RunOptions {
  /** One key is one job: a run that is asked for again under it answers the job that is there. */
  readonly idempotencyKey?: string | undefined
}

export interface PageOptions {
  /** 1 to 500: 100 if nothing is said. */
  readonly limit?: number | undefined
  /** The `next` of an earlier page. */
  readonly after?: string | undefined
}

export interface SchedulePage {
  readonly schedules: ReadonlyArray<Schedule>
  readonly next: string | null
}

export interface QueuePage {
  readonly queues: ReadonlyArray<QueueView>
  readonly next: string | null
}

/** What is not said stays as it is. */
export interface QueueChange {
  /** Whether its jobs wait. Submits go on as ever. */
  readonly paused?: boolean | undefined
  /** Jobs of the queue that one process holds at once, 1 to 10,000; `null`: no limit. Not of all processes together. */
  readonly concurrency?: QueueSettings["concurrency"] | undefined
  /** How long a job waits until it is worth one step of priority more; `strict`: a higher priority always goes first. */
  readonly stepMs?: number | "strict" | undefined
}

export interface Stats {
  readonly byState: Readonly<Record<JobState, number>>
  readonly byType: Readonly<Record<string, number>>
  readonly byQueue: Readonly<Record<string, number>>
  /** How long the oldest job that may start has been due, paused queues left out; `null` where none may. */
  readonly oldestReadyMs: number | null
  /** When this was read: over HTTP up to 5 s ago. */
  readonly asOfMs: number
  /** Sums over all processes that there ever were: `submitted`, `completed`, `failed`, `dead`, `leaseLosses` and others. */
  readonly counters: Readonly<Record<string, number>>
  /** The processes that report at present. */
  readonly workers: ReadonlyArray<Omit<ListedSession, "counters">>
}

/** Throws where there is no id: that is a mistake of the caller's, and no job that is not there. */
export const idOf = (job: About): string => {
  const id: unknown = typeof job === "string" ? job : (job as { readonly id?: unknown } | null | undefined)?.id
  if (typeof id !== "string") {
    throw new TypeError("a job is named by its id, or by what was answered about it: this is neither")
  }
  return id
}

/** Throws likewise: a wait for what is no number would end at once, or never. */
export const patienceOf = ({ timeoutMs = waitDefaultMs }: WaitOptions): number => {
  if (typeof timeoutMs !== "number" || Number.isNaN(timeoutMs)) {
    throw new TypeError("timeoutMs must be a number of milliseconds")
  }
  return Math.max(0, timeoutMs)
}

export const typeOf = (job: AnyDefinition | string): string => typeof job === "string" ? job : job.type

/** With its definition beside it, which is not enumerable: printed or sent, a submission is what it says. */
export const about = <A extends object>(job: AnyDefinition | string, said: A): A =>
  typeof job === "string" ? said : Object.defineProperty(said, "definition", { value: job })

/** A job that has ended, its result read as its definition says. */
export const endedAs = (job: ToWait, ended: Ended): Effect.Effect<Ended, JobValueRefused> => {
  const definition = typeof job === "string" ? undefined : job.definition
  return definition === undefined || ended.state !== "completed"
    ? Effect.succeed(ended)
    : Effect.map(Effect.fromResult(definition.decodeResult(ended.result)), (result) => ({ ...ended, result }))
}
