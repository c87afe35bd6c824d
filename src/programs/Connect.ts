/**
 * The client of a server, over HTTP, for programs that know nothing of Effect: the names, options and answers of
 * `Deadman.start`, without a database.
 *
 * What is wrong with a request is refused as there. What the way to the server adds (it is away, the token is wrong) are
 * errors of `ClientError`: `_tag` says which, and the message what to do.
 */
import { Cause, Context, Effect, Exit, Layer, Stream } from "effect"
import * as Http from "../adapters/http/Client.ts"
import type { ClientError } from "../adapters/http/ClientError.ts"
import { strict } from "../adapters/http/QueueApi.ts"
import { jobStates } from "../domain/JobState.ts"
import * as Rank from "../domain/Rank.ts"
import * as Spelling from "../domain/Spelling.ts"
import type { QueueView } from "../ports/Queues.ts"
import type { Readiness } from "../ports/Status.ts"
import * as Bodies from "./client/Bodies.ts"
import * as Casing from "./client/Casing.ts"
import * as Contract from "./client/Contract.ts"
import type { Jobs } from "./client/Promises.ts"
import * as SubmitOptions from "./client/SubmitOptions.ts"
import * as Views from "./client/Views.ts"
import { JobNotFound, WaitTimedOut } from "./client/Waiting.ts"
import { rules } from "./Rules.ts"

export interface Call {
  /** Gives the call up. What was sent may still take effect. */
  readonly signal?: AbortSignal | undefined
}

export interface Connected extends Jobs<Call, Http.SubmitOptions> {
  readonly url: string
  /** All pages, for `for await`. */
  readonly walk: (options?: Contract.ListOptions) => AsyncIterable<Views.Job>
  /** Also what a server that is not ready says. */
  readonly ready: (call?: Call) => Promise<Readiness>
}

const jobOf = (body: Http.Job): Views.Job =>
  ({
    ...Views.ofJson(body),
    errors: body.errors.map(Casing.camelFields),
    events: body.events.map(Casing.camelFields),
    logs: body.logs.map(Casing.camelFields)
  }) as unknown as Views.Job

const scheduleOf = ({ cron, every_ms, next_fires_ms, zone, ...rest }: Http.Schedule): Views.Schedule =>
  ({
    ...Views.ofJson(rest),
    timing: every_ms === null ? { cron, zone } : { everyMs: every_ms },
    nextFireMs: next_fires_ms[0] ?? null
  }) as unknown as Views.Schedule

const queueOf = ({ jobs, step_ms, ...rest }: {
  readonly jobs: QueueView["byState"]
  readonly step_ms: number | "strict"
}): QueueView =>
  ({
    ...Casing.camelFields(rest),
    stepMs: step_ms === strict ? Rank.stepMaxMs : step_ms,
    byState: jobs
  }) as unknown as QueueView

const stateOf = (text: string | null): Contract.WrongState["state"] =>
  jobStates.find((state) => state === text) ?? "unknown"

/** What the server refuses is refused in the words of who asked. */
const inOurWords = <E>(error: ClientError | E) => {
  if (typeof error === "object" && error !== null && "_tag" in error) {
    const known = error as ClientError
    switch (known._tag) {
      case "InvalidRequest":
        return new Contract.SubmitRefused(SubmitOptions.inOurWords(known.message, known.field))
      case "KeyReused":
        return new Contract.SubmitRefused({ message: Casing.camel(known.message), field: "idempotencyKey" })
      case "WrongState":
        return new Contract.WrongState({ message: known.message, state: stateOf(known.state) })
    }
  }
  return error
}

const isNotFound = (error: unknown): boolean =>
  typeof error === "object" && error !== null && "_tag" in error && error._tag === "NotFound"

/** Where a page begins only the server can read. */
const listQuery = ({ before, ...options }: Contract.ListOptions = {}) =>
  Effect.as(Effect.fromResult(rules.readList(options)), {
    ...options,
    ...(before === undefined || before === null ? {} : { cursor: before })
  })

const pageQuery = ({ after, limit }: Contract.PageOptions = {}) => ({
  ...(limit === undefined ? {} : { limit }),
  ...(after === undefined ? {} : { cursor: after })
})

const orNull = <A, E>(effect: Effect.Effect<A, E>): Effect.Effect<A | null, E> =>
  Effect.catchIf(effect, isNotFound, () => Effect.succeed(null)) as Effect.Effect<A | null, E>

const orElse = <A, E, E2>(effect: Effect.Effect<A, E>, error: () => E2): Effect.Effect<A, E | E2> =>
  Effect.catchIf(effect, isNotFound, () => Effect.fail(error())) as Effect.Effect<A, E | E2>

/** What no server is asked about: nothing that it has is called so, and some of it no address can hold. */
const canBeAnId = (id: string): boolean => /^[\w-]{1,100}$/.test(id)

const aboutJob = <A, E>(job: Contract.About, ask: (id: string) => Effect.Effect<A, E>) =>
  Effect.suspend((): Effect.Effect<A, E | JobNotFound> => {
    const id = Contract.idOf(job)
    const none = () => new JobNotFound({ id })
    return canBeAnId(id) ? orElse(ask(id), none) : Effect.fail(none())
  })

type Run = <A>(effect: Effect.Effect<A, unknown>, call?: Call) => Promise<A>

const controls = (client: Http.Client["Service"], run: Run) => {
  const { call: ask } = client
  const queue = (act: "pauseQueue" | "resumeQueue") => (name: string, call?: Call) =>
    run(Effect.map(ask("always", (api) => api.queues[act]({ params: { name } })), queueOf), call)
  const schedule = (act: "pauseSchedule" | "resumeSchedule") => (name: string, call?: Call) =>
    run(
      orElse(ask("always", (api) => api.schedules[act]({ params: { name } })), () =>
        new Contract.ScheduleNotFound({ name })).pipe(Effect.map(scheduleOf)),
      call
    )
  const schedules: Connected["schedules"] = {
    put: (name, entry, call) =>
      run(
        Bodies.ofSchedule(entry).pipe(
          Effect.tap((body) => Effect.fromResult(rules.readSchedule(name, body))),
          Effect.flatMap((body) => client.putSchedule(name, body as unknown as Http.NewSchedule)),
          Effect.map(scheduleOf)
        ),
        call
      ),
    get: (name, call) =>
      run(
        orNull(Effect.map(ask("always", (api) => api.schedules.getSchedule({ params: { name } })), scheduleOf)),
        call
      ),
    list: (options, call) =>
      run(
        Effect.map(
          ask("always", (api) => api.schedules.listSchedules({ query: pageQuery(options) })),
          ({ next_cursor, schedules }) => ({ schedules: schedules.map(scheduleOf), next: next_cursor })
        ),
        call
      ),
    pause: schedule("pauseSchedule"),
    resume: schedule("resumeSchedule"),
    run: (name, { idempotencyKey } = {}, call) =>
      run(
        Effect.fromResult(rules.readRun(name, idempotencyKey ?? null)).pipe(
          Effect.andThen(
            orElse(client.runSchedule(name, { key: idempotencyKey }), () => new Contract.ScheduleNotFound({ name }))
          ),
          Effect.map(jobOf)
        ),
        call
      ),
    delete: (name, call) =>
      run(
        ask("if nothing was done", (api) => api.schedules.deleteSchedule({ params: { name } })).pipe(
          Effect.as(true),
          orNull,
          Effect.map((deleted) => deleted ?? false)
        ),
        call
      )
  }
  const queues: Connected["queues"] = {
    list: (options, call) =>
      run(
        Effect.map(
          ask("always", (api) => api.queues.listQueues({ query: pageQuery(options) })),
          ({ next_cursor, queues }) => ({ queues: queues.map(queueOf), next: next_cursor })
        ),
        call
      ),
    get: (name, call) =>
      run(orNull(Effect.map(ask("always", (api) => api.queues.getQueue({ params: { name } })), queueOf)), call),
    set: (name, change, call) =>
      run(
        Bodies.ofQueue(change).pipe(
          Effect.tap((payload) => Effect.fromResult(rules.readQueue(payload))),
          Effect.flatMap((payload) => ask("always", (api) => api.queues.putQueue({ params: { name }, payload }))),
          Effect.map(queueOf)
        ),
        call
      ),
    pause: queue("pauseQueue"),
    resume: queue("resumeQueue")
  }
  return { queues, schedules, schedule: schedules.put, unschedule: schedules.delete }
}

/** Refused here, in the words of `Deadman.start`, rather than by the server. */
const bodyOf = (entry: Contract.Entry) => Effect.tap(Bodies.ofJob(entry), (body) => Effect.fromResult(rules.read(body)))

const optionNames: ReadonlyArray<string> = ["url", "token", "deadlineMs", "tryMs", "tries"]

/** A misspelt token would be none. */
const refuseUnknown = (options: object) => {
  const strange = Object.keys(options).find((name) => !optionNames.includes(name))
  if (strange !== undefined) {
    const near = Spelling.meant(strange, optionNames)
    throw new TypeError(
      `${strange} is not an option of connect; these are: ${optionNames.join(", ")}` +
        (near === null ? "" : `. Is ${near} meant?`)
    )
  }
}

/**
 * A client of the server at `url`, with the calls and answers of `Deadman.start` and no database. It runs nothing in the
 * background, so there is nothing to close. Throws where the address or an option is none.
 *
 * Beside the errors of each call there are `ServerUnavailable` (whose `done` says whether it may have taken effect),
 * `Unauthorized` and `UnexpectedAnswer`.
 */
export const connect = (options: Http.Options): Connected => {
  const given: unknown = options
  if (typeof given !== "object" || given === null) {
    throw new TypeError(`connect takes an object: connect({ url: "${Http.defaults.url}" })`)
  }
  refuseUnknown(given)
  const made = Effect.runSyncExit(Effect.scoped(Effect.map(Layer.build(Http.layer(options)), Context.get(Http.Client))))
  if (Exit.isFailure(made)) {
    throw Cause.squash(made.cause)
  }
  const client = made.value
  const run = <A>(effect: Effect.Effect<A, unknown>, { signal }: Call = {}): Promise<A> =>
    Effect.runPromise(Effect.mapError(effect, inOurWords), signal === undefined ? {} : { signal })

  const submit = (job: Contract.AnyDefinition | string, payload: unknown, given: object = {}, call?: Call) => {
    const { keyed, ...options } = given as SubmitOptions.SubmitOptions & Http.SubmitOptions
    return run(
      bodyOf({ job, payload, options }).pipe(
        Effect.flatMap((body) => client.submit(body as unknown as Http.NewJob, { keyed })),
        Effect.map(({ job: stored, outcome }) =>
          Contract.about(job, { id: stored.id, type: stored.type, created: outcome === "created" })
        )
      ),
      call
    )
  }

  const submitAll = (entries: ReadonlyArray<Contract.Entry>, call?: Call): ReturnType<Connected["submitAll"]> =>
    Array.isArray(entries) && entries.length === 0 ? Promise.resolve([]) : run(
      Bodies.checkBatch(entries).pipe(
        Effect.andThen(Effect.forEach(entries, (entry, index) => Effect.mapError(bodyOf(entry), Bodies.at(index)))),
        Effect.flatMap((bodies) => client.submitBatch(bodies as unknown as ReadonlyArray<Http.NewJob>)),
        Effect.map((all) =>
          all.map(({ job: { id, type }, outcome }, at) =>
            Contract.about(entries[at]!.job, { id, type, created: outcome === "created" })
          )
        )
      ),
      call
    )

  const wait = (job: Contract.ToWait, options: Contract.WaitOptions = {}, call?: Call) => {
    const ended = aboutJob(job, (id) => {
      const timeoutMs = Contract.patienceOf(options)
      return Effect.catchTag(
        client.waitFor(id, { within: timeoutMs }),
        "NotEnded",
        () => Effect.fail(new WaitTimedOut({ id, timeoutMs }))
      )
    })
    return run(Effect.flatMap(ended, (body) => Contract.endedAs(job, jobOf(body) as Contract.Ended)), call)
  }

  const act = (act: "cancel" | "retry" | "resubmit") => (job: Contract.About, call?: Call) =>
    run(Effect.map(aboutJob(job, (id) => client[act](id)), jobOf), call)

  return {
    url: client.url,
    submit: submit as Connected["submit"],
    submitAll,
    get: (job, call) =>
      run(
        Effect.map(aboutJob(job, (id) => client.get(id)), jobOf).pipe(
          Effect.catchIf((error) => error instanceof JobNotFound, () => Effect.succeed(null))
        ),
        call
      ),
    wait: wait as Connected["wait"],
    cancel: act("cancel"),
    retry: act("retry"),
    resubmit: act("resubmit"),
    list: (options, call) =>
      run(
        Effect.map(Effect.flatMap(listQuery(options), client.list), ({ jobs, next_cursor }) => ({
          jobs: jobs.map(jobOf),
          next: next_cursor
        })),
        call
      ),
    walk: (options) =>
      Stream.toAsyncIterable(
        Stream.unwrap(Effect.map(listQuery(options), client.walk)).pipe(Stream.map(jobOf), Stream.mapError(inOurWords))
      ),
    ...controls(client, run),
    stats: (call) =>
      run(
        Effect.map(client.stats, ({ as_of_ms, counters, jobs, oldest_ready_ms, workers }) => ({
          byState: jobs.by_state as Contract.Stats["byState"],
          byType: jobs.by_type,
          byQueue: jobs.by_queue,
          oldestReadyMs: oldest_ready_ms,
          asOfMs: as_of_ms,
          counters: Casing.camelFields(counters) as Contract.Stats["counters"],
          workers: workers.map(Casing.camelFields) as unknown as Contract.Stats["workers"]
        })),
        call
      ),
    ready: (call) =>
      run(
        Effect.map(client.ready, ({ loops, ...rest }) => ({
          ...rest,
          loops: Object.entries(loops).map(([name, { last_ok_ms_ago }]) => ({ name, lastOkMsAgo: last_ok_ms_ago }))
        })),
        call
      )
  }
}
