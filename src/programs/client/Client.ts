/**
 * Jobs from within a program: submit, look, wait, cancel. What HTTP offers, without HTTP.
 *
 * A job is named by its definition, and then its payload is checked by its Schema and its result comes back as its
 * type; or by the name of its type, and then both are JSON. Submits share their commits with all others of the process.
 */
import { Context, Effect, Layer, Option, Result, Schema } from "effect"
import type { Job } from "../../domain/Job.ts"
import * as JobId from "../../domain/JobId.ts"
import type { DeadReason, JobState } from "../../domain/JobState.ts"
import * as JsonText from "../../domain/JsonText.ts"
import type { NewSchedule, Schedule } from "../../domain/Schedule.ts"
import { JobStore, type JobStoreUnavailable, type ListPage, type ListRequest } from "../../ports/JobStore.ts"
import { Schedules, type SchedulesUnavailable } from "../../ports/Schedules.ts"
import { type Answered, type JobDraft, Submitter, type SubmitUnavailable } from "../../ports/Submitter.ts"
import { Transport } from "../../ports/Transport.ts"
import type { Definition, JobValueRefused } from "../job/Definition.ts"
import * as SubmitOptions from "./SubmitOptions.ts"
import * as Waiting from "./Waiting.ts"

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
  state: Schema.String
}) {}

/** What a program knows of a job that it has just submitted. */
export interface Submission<Value = unknown> {
  readonly id: string
  readonly type: string
  /** `false`: the job was there already, by its idempotencyKey or as a unique job. */
  readonly created: boolean
  /** For `wait`, which gives the result as its type. Not there for a job that was submitted by name. */
  readonly definition?: { readonly decodeResult: (json: unknown) => Result.Result<Value, JobValueRefused> }
}

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

/** One job of a batch: what `submit` takes. */
export interface Entry {
  readonly job: AnyDefinition | string
  readonly payload: unknown
  readonly options?: SubmitOptions.SubmitOptions
}

// oxlint-disable-next-line typescript/no-explicit-any -- a definition of whatever payload and result
type AnyDefinition = Definition<string, any, any>

export interface WaitOptions {
  /** How long to wait at most; a minute if nothing is said. */
  readonly timeoutMs?: number | undefined
}

export type ListOptions = Partial<Omit<ListRequest, "before" | "type" | "queue">> & {
  readonly type?: string
  readonly queue?: string
  /** The `next` of an earlier page. */
  readonly before?: string
}

type Refusals = SubmitRefused | SubmitUncertain
type About = string | Submission

/** A job that is submitted at each tick. */
export interface ScheduleEntry extends
  Pick<
    SubmitOptions.SubmitOptions,
    "queue" | "priority" | "maxAttempts" | "backoff" | "timeoutMs" | "retainMs" | "tags"
  >
{
  readonly job: AnyDefinition | string
  readonly payload?: unknown
  /** Five fields: minute, hour, day of the month, month, day of the week. This, or `everyMs`. */
  readonly cron?: string | undefined
  /** The zone in which `cron` is read, such as Europe/Zurich; UTC if nothing is said. */
  readonly zone?: string | undefined
  readonly everyMs?: number | undefined
  /** What becomes of ticks that nobody was there for; `latest` if nothing is said. */
  readonly missed?: NewSchedule["missed"] | undefined
  /** What a tick does while the job before it goes on; `allow` if nothing is said. */
  readonly overlap?: NewSchedule["overlap"] | undefined
  readonly paused?: boolean | undefined
}

interface Misfit {
  readonly message: string
  readonly field?: string | undefined
}

/** How a request becomes what can be stored: the rules of the HTTP API, whichever way it comes in. */
export class Drafts extends Context.Service<Drafts, {
  readonly read: (body: Readonly<Record<string, unknown>>) => JobDraft | Misfit
  readonly readSchedule: (name: string, body: Readonly<Record<string, unknown>>) => NewSchedule | Misfit
}>()("deadman/programs/client/Client/Drafts") {}

export class Client extends Context.Service<Client, {
  /** Stores a job; answers after the commit. */
  readonly submit: {
    <Payload, Value>(
      job: Definition<string, Payload, Value>,
      payload: NoInfer<Payload>,
      options?: SubmitOptions.SubmitOptions
    ): Effect.Effect<Submission<Value>, Refusals>
    (type: string, payload?: unknown, options?: SubmitOptions.SubmitOptions): Effect.Effect<Submission, Refusals>
  }
  /** Stores all of them or none, in one commit. */
  readonly submitAll: (entries: ReadonlyArray<Entry>) => Effect.Effect<ReadonlyArray<Submission>, Refusals>
  /** The job as it is at present; `null` if there is none of this id. */
  readonly get: (job: About) => Effect.Effect<Job | null, JobStoreUnavailable>
  /** Waits until the job is `completed` or `dead`, whichever. */
  readonly wait: <Value = unknown>(
    job: string | Submission<Value>,
    options?: WaitOptions
  ) => Effect.Effect<Ended<Value>, Waiting.JobNotFound | Waiting.WaitTimedOut | JobValueRefused>
  /** Ends the job: it is `dead`, and a handler that runs is interrupted. */
  readonly cancel: (job: About) => Effect.Effect<Job, Waiting.JobNotFound | WrongState | JobStoreUnavailable>
  /** Makes a waiting job due now. */
  readonly retry: (job: About) => Effect.Effect<Job, Waiting.JobNotFound | WrongState | JobStoreUnavailable>
  /** A new job from one that has ended. */
  readonly resubmit: (job: About) => Effect.Effect<Job, Waiting.JobNotFound | WrongState | JobStoreUnavailable>
  /** One page, newest first. It may be short or empty while `next` is not null. */
  readonly list: (options?: ListOptions) => Effect.Effect<ListPage, JobStoreUnavailable>
  /** Stores a schedule under its name, or changes it: any number of processes may say the same at their start. */
  readonly schedule: (
    name: string,
    entry: ScheduleEntry
  ) => Effect.Effect<Schedule, SubmitRefused | SchedulesUnavailable>
  /** Removes a schedule, and says whether there was one. Its jobs stay. */
  readonly unschedule: (name: string) => Effect.Effect<boolean, SchedulesUnavailable>
}>()("deadman/programs/client/Client") {}

const waitDefaultMs = 60_000
const hintWithin = "5 seconds"
const listDefault = 50

const idOf = (job: About): Effect.Effect<JobId.JobId, Waiting.JobNotFound> => {
  const text = typeof job === "string" ? job : job.id
  return Option.match(JobId.fromText(text), {
    onNone: () => Effect.fail(new Waiting.JobNotFound({ id: text })),
    onSome: Effect.succeed
  })
}

const refuse = (message: string, field: string | null = null) => new SubmitRefused({ message, field })

/** JSON would write `null` for it, and nobody would notice. */
const unwritable = (value: unknown): string | null =>
  typeof value === "number" && !Number.isFinite(value) ? String(value) : typeof value === "bigint" ? "a BigInt" : null

/** The payload as it is after a trip through JSON, or what keeps it from that trip. */
const throughJson = (payload: unknown): Result.Result<unknown, SubmitRefused> => {
  let text: string | undefined
  try {
    text = JSON.stringify(payload ?? null, (key, value: unknown) => {
      const found = unwritable(value)
      if (found !== null) {
        throw new TypeError(`${key === "" ? "it" : key} is ${found}, which JSON cannot hold`)
      }
      return value
    })
  } catch (error) {
    return Result.fail(refuse(`the payload cannot be written as JSON: ${(error as Error).message}`, "payload"))
  }
  if (text === undefined) {
    return Result.fail(refuse(`a payload must be JSON, not a ${typeof payload}`, "payload"))
  }
  const fault = JsonText.check(text, "payload")
  return fault === null
    ? Result.succeed(JSON.parse(text) as unknown)
    : Result.fail(refuse(`${fault.path} ${fault.reason}`, fault.path))
}

const uncertain: Readonly<Record<SubmitUncertain["reason"], string>> = {
  full: "too many submits are under way: try again in a moment",
  stopping: "this process is stopping: submit elsewhere",
  store: "the database did not answer in time, so the job may or may not be stored: submit it again under the same " +
    "idempotencyKey",
  key_locked: "an open transaction holds this idempotencyKey: try again when it has ended"
}
const isUncertain = (reason: SubmitUncertain["reason"]) => new SubmitUncertain({ reason, message: uncertain[reason] })
const fromPort = ({ reason }: SubmitUnavailable) => isUncertain(reason)

const submissionOf = (job: AnyDefinition | string, id: string, created: boolean): Submission => {
  const submission = { id, type: typeof job === "string" ? job : job.type, created }
  // Not enumerable, so that a submission that is printed or sent is what it says.
  return typeof job === "string" ? submission : Object.defineProperty(submission, "definition", { value: job })
}

/** What an answer means to who asked for `entry`. */
const answerOf = (job: AnyDefinition | string, answered: Answered): Effect.Effect<Submission, Refusals> => {
  switch (answered._tag) {
    case "Created":
      return Effect.succeed(submissionOf(job, answered.id, true))
    case "Replayed":
    case "Skipped":
      return Effect.succeed(submissionOf(job, answered.id, false))
    case "KeyMismatch":
      return Effect.fail(refuse(
        `this idempotencyKey was used for another request, whose job is ${answered.id}: use one key per request`,
        "idempotencyKey"
      ))
    case "KeyLocked":
      return Effect.fail(isUncertain("key_locked"))
    case "Refused":
      return Effect.fail(refuse(answered.message))
    case "Aborted":
      return Effect.fail(refuse("another job of the batch was refused, so none was stored"))
  }
}

const make = Effect.gen(function*() {
  const store = yield* JobStore
  const submitter = yield* Submitter
  const transport = yield* Transport
  const schedules = yield* Schedules
  const drafts = yield* Drafts
  const awaitEnd = yield* Waiting.make(store)

  /** The same as JSON, what the job's definition says included. */
  const bodyOf = Effect.fnUntraced(function*({ job, options = {}, payload }: Entry) {
    const defined = typeof job === "string" ? null : job
    const encoded = defined === null ? Result.succeed(payload) : defined.encode(payload)
    if (Result.isFailure(encoded)) {
      return yield* refuse(encoded.failure.message, encoded.failure.faults[0]?.path ?? "payload")
    }
    const json = throughJson(encoded.success)
    if (Result.isFailure(json)) {
      return yield* json.failure
    }
    return SubmitOptions.bodyOf(defined?.type ?? (job as string), json.success, { ...defined?.defaults, ...options })
  })

  const orRefuse = <A extends object>(read: A | Misfit): Effect.Effect<A, SubmitRefused> => {
    if (!("message" in read)) {
      return Effect.succeed(read)
    }
    const { field, message } = SubmitOptions.inOurWords(read.message, read.field)
    return Effect.fail(refuse(message, field))
  }

  const draftOf = (entry: Entry) => Effect.flatMap(bodyOf(entry), (body) => orRefuse(drafts.read(body)))

  const schedule = Effect.fnUntraced(function*(name: string, { job, payload, ...rest }: ScheduleEntry) {
    const body = yield* bodyOf({ job, payload, options: rest as SubmitOptions.SubmitOptions })
    const { schedule } = yield* Effect.flatMap(orRefuse(drafts.readSchedule(name, body)), schedules.put)
    return schedule
  })

  const submit = Effect.fnUntraced(function*(
    job: AnyDefinition | string,
    payload: unknown,
    options?: SubmitOptions.SubmitOptions
  ) {
    const draft = yield* draftOf({ job, payload, ...(options === undefined ? {} : { options }) })
    return yield* answerOf(job, yield* Effect.mapError(submitter.submit(draft), fromPort))
  })

  const submitAll: Client["Service"]["submitAll"] = Effect.fnUntraced(function*(entries) {
    if (entries.length === 0) {
      return []
    }
    const read = yield* Effect.forEach(entries, draftOf)
    const answers = yield* Effect.mapError(submitter.submitAll(read), fromPort)
    // The guilty entry says more than those that were aborted with it.
    const guilty = answers.findIndex(({ _tag }) => ["KeyMismatch", "KeyLocked", "Refused"].includes(_tag))
    if (guilty !== -1) {
      return yield* Effect.as(answerOf(entries[guilty]!.job, answers[guilty]!), [])
    }
    return yield* Effect.forEach(answers, (answered, index) => answerOf(entries[index]!.job, answered))
  })

  const get = (job: About) =>
    Effect.flatMap(
      Effect.option(idOf(job)),
      Option.match({
        onNone: () => Effect.succeed(null),
        onSome: (id) => Effect.map(store.get([id]), ([found]) => found ?? null)
      })
    )

  const wait = Effect.fnUntraced(function*(job: About, options: WaitOptions = {}) {
    const ended = yield* awaitEnd(yield* idOf(job), Math.max(0, options.timeoutMs ?? waitDefaultMs))
    const definition = typeof job === "string" ? undefined : job.definition
    return definition === undefined || ended.state !== "completed"
      ? ended
      : { ...ended, result: yield* Effect.fromResult(definition.decodeResult(ended.result)) }
  })

  const hint = (wakes: Parameters<typeof transport.wake>[0]) =>
    transport.wake(wakes).pipe(Effect.timeoutOption(hintWithin), Effect.ignore, Effect.forkDetach)

  const wrongState = (what: string, state: JobState, allowed: string) =>
    new WrongState({ state, message: `a job that is ${state} cannot be ${what}; only one that is ${allowed}` })

  const cancel = Effect.fnUntraced(function*(job: About) {
    const id = yield* idOf(job)
    const cancelled = yield* store.cancel(id)
    switch (cancelled._tag) {
      case "NotFound":
        return yield* new Waiting.JobNotFound({ id })
      case "Refused":
        return yield* wrongState("cancelled", cancelled.state, "pending, failed or running")
      case "Cancelled":
        if (cancelled.cutOff !== null) {
          yield* hint([{ _tag: "Revoked", id, ...cancelled.cutOff }])
        }
        return cancelled.job
    }
  })

  const retry = Effect.fnUntraced(function*(job: About) {
    const id = yield* idOf(job)
    const rebooked = yield* store.retry(id)
    switch (rebooked._tag) {
      case "NotFound":
        return yield* new Waiting.JobNotFound({ id })
      case "Refused":
        return yield* wrongState("retried", rebooked.state, "pending or failed")
      case "Rebooked":
        yield* hint([{ _tag: "Ready" }])
        return rebooked.job
    }
  })

  const resubmit = Effect.fnUntraced(function*(job: About) {
    const id = yield* idOf(job)
    const made = yield* Effect.flatMap(submitter.drawId, (as) => store.resubmit(id, as))
    switch (made._tag) {
      case "NotFound":
        return yield* new Waiting.JobNotFound({ id })
      case "Refused":
        return yield* wrongState("resubmitted", made.state, "dead or completed")
      case "Created":
        yield* hint([{ _tag: "Ready" }])
        return made.job
    }
  })

  const list: Client["Service"]["list"] = (options = {}) =>
    store.list({ limit: listDefault, offset: 0, ...options } as ListRequest)

  return Client.of({
    submit: submit as Client["Service"]["submit"],
    submitAll,
    get,
    wait: wait as Client["Service"]["wait"],
    cancel,
    retry,
    resubmit,
    list,
    schedule,
    unschedule: (name) => schedules.remove(name as Parameters<typeof schedules.remove>[0])
  })
})

export const layer: Layer.Layer<Client, never, JobStore | Submitter | Transport | Schedules | Drafts> = Layer.effect(
  Client,
  make
)
