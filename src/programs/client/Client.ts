/**
 * Jobs from within a program: submit, look, wait, cancel. What HTTP offers, without HTTP.
 *
 * A job is named by its definition, and then its payload is checked by its Schema and its result comes back as its
 * type; or by the name of its type, and then both are JSON. Submits share their commits with all others of the process.
 */
import { Context, Effect, Layer, Option } from "effect"
import * as Differences from "../../domain/Differences.ts"
import * as JobId from "../../domain/JobId.ts"
import type { JobState } from "../../domain/JobState.ts"
import { JobStore, type JobStoreUnavailable } from "../../ports/JobStore.ts"
import type { Queues } from "../../ports/Queues.ts"
import type { Schedules, SchedulesUnavailable } from "../../ports/Schedules.ts"
import type { Sessions, SessionsUnavailable } from "../../ports/Sessions.ts"
import { type Answered, type JobDraft, Submitter, type SubmitUnavailable } from "../../ports/Submitter.ts"
import { Transport } from "../../ports/Transport.ts"
import type { Definition, JobValueRefused } from "../job/Definition.ts"
import * as Bodies from "./Bodies.ts"
import * as Contract from "./Contract.ts"
import type {
  About,
  AnyDefinition,
  Ended,
  Entry,
  JobPage,
  ListOptions,
  ScheduleEntry,
  Submission,
  ToWait,
  WaitOptions
} from "./Contract.ts"
import * as Control from "./Control.ts"
import { Drafts } from "./Drafts.ts"
import type * as SubmitOptions from "./SubmitOptions.ts"
import * as Views from "./Views.ts"
import * as Waiting from "./Waiting.ts"

type Refusals = Contract.SubmitRefused | Contract.SubmitUncertain

export class Client extends Context.Service<Client, {
  /** Stores a job; answers after the commit. */
  readonly submit: {
    (type: string, payload?: unknown, options?: SubmitOptions.SubmitOptions): Effect.Effect<Submission, Refusals>
    // The last one: a compiler that shows one of them shows this, and so what is wrong with the payload.
    <Payload, Value>(
      job: Definition<string, Payload, Value>,
      payload: NoInfer<Payload>,
      options?: SubmitOptions.SubmitOptions
    ): Effect.Effect<Submission<Value>, Refusals>
  }
  /** Stores all of them or none, in one commit: at most 10,000, with 16 MiB of payloads. */
  readonly submitAll: <const All extends ReadonlyArray<AnyDefinition | string>>(
    entries: Contract.Entries<All>
  ) => Effect.Effect<ReadonlyArray<Submission>, Refusals>
  /** The job as it is at present; `null` if there is none of this id. */
  readonly get: (job: About) => Effect.Effect<Views.Job | null, JobStoreUnavailable>
  /** Waits until the job is `completed` or `dead`, whichever. */
  readonly wait: <Value = unknown>(
    job: ToWait<Value>,
    options?: WaitOptions
  ) => Effect.Effect<Ended<Value>, Waiting.JobNotFound | Waiting.WaitTimedOut | JobValueRefused>
  /** Ends the job: it is `dead`, and a handler that runs is interrupted. One that was cancelled before stays as it is. */
  readonly cancel: (
    job: About
  ) => Effect.Effect<Views.Job, Waiting.JobNotFound | Contract.WrongState | JobStoreUnavailable>
  /** Makes a waiting job due now. */
  readonly retry: (
    job: About
  ) => Effect.Effect<Views.Job, Waiting.JobNotFound | Contract.WrongState | JobStoreUnavailable>
  /** A new job from one that has ended. */
  readonly resubmit: (
    job: About
  ) => Effect.Effect<Views.Job, Waiting.JobNotFound | Contract.WrongState | JobStoreUnavailable>
  /** One page, newest first. It may be short or empty while `next` is not null. */
  readonly list: (options?: ListOptions) => Effect.Effect<JobPage, Contract.SubmitRefused | JobStoreUnavailable>
  /** Stores a schedule under its name, or changes it: any number of processes may say the same at their start. */
  readonly schedule: (
    name: string,
    entry: ScheduleEntry
  ) => Effect.Effect<Views.Schedule, Contract.SubmitRefused | SchedulesUnavailable>
  /** Removes a schedule, and says whether there was one. Its jobs stay. */
  readonly unschedule: (name: string) => Effect.Effect<boolean, Contract.SubmitRefused | SchedulesUnavailable>
  readonly schedules: Control.ScheduleControl
  readonly queues: Control.QueueControl
  /** Counts, counters, and the processes there are. */
  readonly stats: Effect.Effect<Contract.Stats, JobStoreUnavailable | SessionsUnavailable>
}>()("deadman/programs/client/Client") {}

const hintWithin = "5 seconds"
const lookWithin = "2 seconds"

const idOf = (job: About): Effect.Effect<JobId.JobId, Waiting.JobNotFound> =>
  Effect.suspend(() => {
    const text = Contract.idOf(job)
    return Option.match(JobId.fromText(text), {
      onNone: () => Effect.fail(new Waiting.JobNotFound({ id: text })),
      onSome: Effect.succeed
    })
  })

const uncertain: Readonly<Record<Contract.SubmitUncertain["reason"], string>> = {
  full: "too many submits are under way: try again in a moment",
  stopping: "this process is stopping: submit elsewhere",
  store: "the database did not answer in time, so the job may or may not be stored: submit it again under the same " +
    "idempotencyKey",
  key_locked: "an open transaction holds this idempotencyKey, or what must be unique: try again when it has ended"
}
const isUncertain = (reason: Contract.SubmitUncertain["reason"]) =>
  new Contract.SubmitUncertain({ reason, message: uncertain[reason] })
const fromPort = ({ reason }: SubmitUnavailable) => isUncertain(reason)

const submissionOf = (job: AnyDefinition | string, id: string, created: boolean): Submission =>
  Contract.about(job, { id, type: Contract.typeOf(job), created })

const keyReused = (id: string, fields: ReadonlyArray<string>) => {
  const differ = fields.length === 0 ? "" : ` (${fields.join(", ")} ${fields.length === 1 ? "differs" : "differ"})`
  return Bodies.refuse(
    `this idempotencyKey was used for another request, whose job is ${id}${differ}: use one key per request`,
    "idempotencyKey"
  )
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
      return Effect.fail(keyReused(answered.id, []))
    case "KeyLocked":
      return Effect.fail(isUncertain("key_locked"))
    case "Refused":
      return Effect.fail(Bodies.refuse(answered.message))
    case "Aborted":
      return Effect.fail(Bodies.refuse("another job of the batch was refused, so none was stored"))
  }
}

const make = Effect.gen(function*() {
  const store = yield* JobStore
  const submitter = yield* Submitter
  const transport = yield* Transport
  const drafts = yield* Drafts
  const { queues, schedules, stats } = yield* Control.make
  const awaitEnd = yield* Waiting.make(store)

  const draftOf = (entry: Entry) => Effect.flatMap(Bodies.ofJob(entry), (body) => Effect.fromResult(drafts.read(body)))

  /** What differs is worth a look at the job: what is wrong is in the caller's program, and not easily seen. */
  const told = (job: AnyDefinition | string, draft: JobDraft, answered: Answered) =>
    answered._tag !== "KeyMismatch"
      ? answerOf(job, answered)
      : store.get([answered.id]).pipe(
        Effect.timeout(lookWithin),
        Effect.map(([found]) => found === undefined ? [] : Differences.between(draft, found)),
        Effect.orElseSucceed(() => []),
        Effect.flatMap((fields) => Effect.fail(keyReused(answered.id, fields)))
      )

  const submit = Effect.fnUntraced(function*(
    job: AnyDefinition | string,
    payload: unknown,
    options?: SubmitOptions.SubmitOptions
  ) {
    const draft = yield* draftOf({ job, payload, ...(options === undefined ? {} : { options }) })
    return yield* told(job, draft, yield* Effect.mapError(submitter.submit(draft), fromPort))
  })

  const submitAll = Effect.fnUntraced(function*(entries: ReadonlyArray<Entry>) {
    yield* Bodies.checkBatch(entries)
    if (entries.length === 0) {
      return []
    }
    const read = yield* Effect.forEach(entries, (entry, index) => Effect.mapError(draftOf(entry), Bodies.at(index)))
    yield* Bodies.checkBytes(read)
    const answers = yield* Effect.mapError(submitter.submitAll(read), fromPort)
    // The guilty entry says more than those that were aborted with it.
    const guilty = answers.findIndex(({ _tag }) => ["KeyMismatch", "KeyLocked", "Refused"].includes(_tag))
    if (guilty !== -1) {
      return yield* told(entries[guilty]!.job, read[guilty]!, answers[guilty]!).pipe(
        Effect.mapError((error) => error._tag === "SubmitRefused" ? Bodies.at(guilty)(error) : error),
        Effect.as([])
      )
    }
    return yield* Effect.forEach(answers, (answered, index) => answerOf(entries[index]!.job, answered))
  })

  const get = (job: About) =>
    Effect.flatMap(
      Effect.option(idOf(job)),
      Option.match({
        onNone: () => Effect.succeed(null),
        onSome: (id) => Effect.map(store.get([id]), ([found]) => found === undefined ? null : Views.ofJob(found))
      })
    )

  const wait = Effect.fnUntraced(function*(job: ToWait, options: WaitOptions = {}) {
    const ended = yield* awaitEnd(yield* idOf(job), Contract.patienceOf(options))
    return yield* Contract.endedAs(job, Views.ofJob(ended) as Ended)
  })

  const hint = (wakes: Parameters<typeof transport.wake>[0]) =>
    transport.wake(wakes).pipe(Effect.timeoutOption(hintWithin), Effect.ignore, Effect.forkDetach)

  const wrongState = (what: string, state: JobState, allowed: string) =>
    new Contract.WrongState({ state, message: `a job that is ${state} cannot be ${what}; only one that is ${allowed}` })

  const cancel = Effect.fnUntraced(function*(job: About) {
    const id = yield* idOf(job)
    const cancelled = yield* store.cancel(id)
    switch (cancelled._tag) {
      case "NotFound":
        return yield* new Waiting.JobNotFound({ id })
      case "Refused": {
        const found = yield* get(id)
        return found?.reason === "cancelled"
          ? found
          : yield* wrongState("cancelled", cancelled.state, "pending, failed or running")
      }
      case "Cancelled":
        if (cancelled.cutOff !== null) {
          yield* hint([{ _tag: "Revoked", id, ...cancelled.cutOff }])
        }
        return Views.ofJob(cancelled.job)
    }
  })

  const retry = Effect.fnUntraced(function*(job: About) {
    const id = yield* idOf(job)
    const rebooked = yield* store.retry(id)
    switch (rebooked._tag) {
      case "NotFound":
        return yield* new Waiting.JobNotFound({ id })
      case "Refused":
        return yield* wrongState("retried", rebooked.state, "pending or failed (one that has ended is resubmitted)")
      case "Rebooked":
        yield* hint([{ _tag: "Ready" }])
        return Views.ofJob(rebooked.job)
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
        return Views.ofJob(made.job)
    }
  })

  const list: Client["Service"]["list"] = (options = {}) =>
    Effect.fromResult(drafts.readList(options)).pipe(
      Effect.flatMap(store.list),
      Effect.map(({ jobs, next }) => ({ jobs: jobs.map(Views.ofJob), next }))
    )

  return Client.of({
    submit: submit as Client["Service"]["submit"],
    submitAll,
    get,
    wait: wait as Client["Service"]["wait"],
    cancel,
    retry,
    resubmit,
    list,
    schedule: schedules.put,
    unschedule: schedules.delete,
    schedules,
    queues,
    stats
  })
})

export const layer: Layer.Layer<
  Client,
  never,
  JobStore | Submitter | Transport | Schedules | Queues | Sessions | Drafts
> = Layer.effect(Client, make)
