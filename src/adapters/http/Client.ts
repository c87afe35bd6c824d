/**
 * The client of the HTTP API, generated from the same definition that the server serves.
 *
 * Every call ends by its deadline. One that fails is repeated only where a repeat cannot do a second thing: a read, a
 * submit or a run of a schedule (the client draws an Idempotency-Key, so that a lost answer is safe), a cancel, and
 * whatever certainly was not done. A retry and a resubmit whose answer was lost are for the caller to look at.
 *
 * Fields are those of the API, in snake_case: `connect` is what speaks as TypeScript does.
 */
import { Context, Duration, Effect, Layer, Option, Redacted, Schedule, Schema, SchemaIssue, Stream } from "effect"
import { FetchHttpClient, HttpClient, HttpClientRequest, type HttpClientResponse } from "effect/http"
import { HttpApiClient } from "effect/http-api"
import { because } from "../../domain/Because.ts"
import type { JobState } from "../../domain/JobState.ts"
import { Api, type JobBody, NewJobBody } from "./Api.ts"
import * as ClientError from "./ClientError.ts"
import { NewScheduleBody, type ScheduleBody } from "./ScheduleApi.ts"

export type Job = typeof JobBody.Type

/** What a submit takes: the fields of `POST /jobs`. */
export type NewJob = typeof NewJobBody.Encoded

export type Schedule = typeof ScheduleBody.Type

/** What a schedule is put with: the fields of `PUT /schedules/{name}`. */
export type NewSchedule = typeof NewScheduleBody.Encoded

export interface Submitted {
  readonly job: Job
  /** `replayed`: this key was used before, for this very request. `skipped`: a unique job of its kind was there. */
  readonly outcome: "created" | "replayed" | "skipped"
}

export interface SubmitOptions {
  /**
   * `false` draws no Idempotency-Key for a job that has none: it costs the database less, and a submit whose answer was
   * lost is not repeated.
   */
  readonly keyed?: boolean | undefined
}

export interface ListQuery {
  readonly state?: JobState | undefined
  readonly type?: string | undefined
  readonly queue?: string | undefined
  readonly tag?: string | undefined
  readonly limit?: number | undefined
  readonly offset?: number | undefined
  readonly cursor?: string | undefined
}

/** The job did not end in the time that was given to it. It goes on: ask again. */
export class NotEnded extends Schema.TaggedError<NotEnded>()("NotEnded", {
  id: Schema.String,
  state: Schema.String,
  message: Schema.String
}) {}

type Generated = HttpApiClient.ForApi<typeof Api, ClientError.ClientError>
type AnswerOf<F> = F extends (...args: never) => Effect.Effect<infer A, infer _E, infer _R>
  ? Exclude<A, HttpClientResponse.HttpClientResponse | readonly [unknown, HttpClientResponse.HttpClientResponse]>
  : never

export type JobList = AnswerOf<Generated["jobs"]["list"]>
export type Stats = AnswerOf<Generated["stats"]>
export type Ready = AnswerOf<Generated["ready"]>

type Answered<A> = Effect.Effect<A, ClientError.ClientError>

/** Whether a repeat could do a second thing. */
export type Repeat = "always" | "if nothing was done"

export class Client extends Context.Service<Client, {
  readonly url: string
  readonly submit: (job: NewJob, options?: SubmitOptions) => Answered<Submitted>
  /** All of them or none, in one transaction. */
  readonly submitBatch: (jobs: ReadonlyArray<NewJob>, options?: SubmitOptions) => Answered<ReadonlyArray<Submitted>>
  readonly get: (id: string) => Answered<Job>
  /** Those of up to 200 ids that there are. */
  readonly getAll: (ids: ReadonlyArray<string>) => Answered<ReadonlyArray<Job>>
  /** One page, newest first. It may be short or empty while `next_cursor` is not null. */
  readonly list: (query?: ListQuery) => Answered<JobList>
  /** All pages, one after the other, as they are asked for. */
  readonly walk: (query?: ListQuery) => Stream.Stream<Job, ClientError.ClientError>
  readonly cancel: (id: string) => Answered<Job>
  readonly retry: (id: string) => Answered<Job>
  readonly resubmit: (id: string) => Answered<Job>
  /** Waits until the job has ended, by asking. */
  readonly waitFor: (
    id: string,
    options?: { readonly within?: Duration.Input | undefined }
  ) => Effect.Effect<Job, ClientError.ClientError | NotEnded>
  readonly stats: Answered<Stats>
  /** Also what a server that is not ready says. */
  readonly ready: Answered<Ready>
  /** Stores the whole of a schedule, in place of one of that name. */
  readonly putSchedule: (name: string, schedule: NewSchedule) => Answered<Schedule>
  /** Makes one job of it now. Without a key one is drawn, so that a lost answer is safe. */
  readonly runSchedule: (name: string, options?: { readonly key?: string | undefined }) => Answered<Job>
  /** Any endpoint of the generated client, with the deadline, the repeats and the errors of all others. */
  readonly call: <A>(repeat: Repeat, ask: (api: Generated) => Effect.Effect<A, unknown>) => Answered<A>
}>()("deadman/adapters/http/Client") {}

export interface Options {
  /** Of a server: `http://127.0.0.1:8080`. It is asked only with the first call. */
  readonly url: string
  /** The `DEADMAN_API_TOKEN` of the server, where it has one. */
  readonly token?: string | Redacted.Redacted | undefined
  /** The longest that a call may take, repeats included: 15,000 if nothing is said. */
  readonly deadlineMs?: number | undefined
  /** The longest that one try of it may take: 5,000 if nothing is said. */
  readonly tryMs?: number | undefined
  /** How often a call that fails for now is tried: 7 if nothing is said. */
  readonly tries?: number | undefined
}

export const defaults = { url: "http://127.0.0.1:8080", deadlineMs: 15_000, tryMs: 5_000, tries: 7 }

const firstWaitMs = 100
const lookFirstMs = 50
const lookMaxMs = 1_000
const waitWithin = "1 minute"

const urlOf = (text: string): string | null => {
  try {
    const url = new URL(text)
    return (url.protocol === "http:" || url.protocol === "https:") && url.username === "" && url.search === ""
      ? url.href.replace(/\/+$/, "")
      : null
  } catch {
    return null
  }
}

const issues = SchemaIssue.makeFormatterStandardSchemaV1()

/** Names the field, in the words of the schema. */
const invalid = (error: Schema.SchemaError): ClientError.InvalidRequest => {
  const [issue] = issues(error.issue).issues
  const path = (issue?.path ?? []).map((part) => String(typeof part === "object" ? part.key : part)).join(".")
  const text = because({ message: issue?.message ?? error.message })
  return new ClientError.InvalidRequest({
    code: "invalid_field",
    field: path === "" ? null : path,
    message: path === "" ? text : `${path}: ${text}`
  })
}

const decodeNewJob = Schema.decodeUnknownEffect(NewJobBody, { onExcessProperty: "error" })
const newJob = (job: NewJob) => Effect.mapError(decodeNewJob(job), invalid)
const decodeNewSchedule = Schema.decodeUnknownEffect(NewScheduleBody, { onExcessProperty: "error" })

// Printable, and random enough for every submit there will be.
const drawKey = Effect.sync(() => globalThis.crypto.randomUUID())

/** A drawn key that is known was sent by this very call, and its first answer was lost. */
const submitted = (job: Job, outcome: Submitted["outcome"] | undefined, drawn: boolean): Submitted => ({
  job,
  outcome: outcome === undefined || (outcome === "replayed" && drawn) ? "created" : outcome
})

const isEnded = (job: Job): boolean => job.state === "completed" || job.state === "dead"

/** `/ready` answers 503 with what it has to say. */
const isNotReady = (request: HttpClientRequest.HttpClientRequest, response: HttpClientResponse.HttpClientResponse) =>
  response.status === 503 && request.url.endsWith("/ready")

/** Of one try, whether it came as far as the wire: what cannot be read before that is the request, and no answer. */
const Sent = Context.Reference<{ yet: boolean }>("deadman/adapters/http/Client/Sent", {
  defaultValue: () => ({ yet: true })
})

const checked = (http: HttpClient.HttpClient, url: string, token: string | null) =>
  HttpClient.mapRequest(http, (request) =>
    request.pipe(
      HttpClientRequest.prependUrl(url),
      HttpClientRequest.acceptJson,
      token === null ? (request) => request : HttpClientRequest.bearerToken(token)
    )).pipe(
      HttpClient.transform((effect, request) =>
        Effect.flatMap(Sent, (sent) => {
          sent.yet = true
          return effect
        }).pipe(
          Effect.mapError((error): ClientError.ClientError => ClientError.noAnswer(url, error.reason)),
          Effect.flatMap((response) =>
            (response.status >= 200 && response.status < 300) || isNotReady(request, response)
              ? Effect.succeed(response)
              : Effect.flatMap(
                Effect.mapError(response.text, (error) => ClientError.noAnswer(url, error.reason)),
                (text) =>
                  Effect.fail(ClientError.fromAnswer({
                    url,
                    status: response.status,
                    text,
                    retryAfter: response.headers["retry-after"]
                  }))
              )
          )
        )
      )
    )

const isTransport = (error: unknown): error is { readonly reason: { readonly _tag: "TransportError" } } =>
  typeof error === "object" && error !== null && "reason" in error && typeof error.reason === "object" &&
  error.reason !== null && "_tag" in error.reason && error.reason._tag === "TransportError"

/** Whatever the generated client fails with beyond what `checked` says is an answer that it could not read. */
const unread = (url: string, sent: { readonly yet: boolean }) => (error: unknown): ClientError.ClientError =>
  ClientError.isClientError(error)
    ? error
    : !sent.yet && Schema.isSchemaError(error)
    ? invalid(error)
    : isTransport(error)
    ? ClientError.noAnswer(url, error.reason)
    : new ClientError.UnexpectedAnswer({
      status: null,
      message: `The answer of ${url} could not be read (${because(error)}): ` +
        `it is no Deadman server, or of another version than this client.`
    })

const retryable = (repeat: Repeat) => (error: ClientError.ClientError): boolean =>
  error._tag === "ServerUnavailable" && (repeat === "always" || error.done === "nothing")

const isNotReadyBody = (error: unknown): error is Ready =>
  typeof error === "object" && error !== null && "ready" in error && !("_tag" in error)

export const make = Effect.fnUntraced(function*(
  options: Options
): Effect.fn.Return<Client["Service"], ClientError.InvalidRequest, HttpClient.HttpClient> {
  const url = urlOf(options.url)
  if (url === null) {
    return yield* new ClientError.InvalidRequest({
      code: "bad_request",
      field: "url",
      message: "url: must look like http://localhost:8080, without a user and a query"
    })
  }
  const deadlineMs = options.deadlineMs ?? defaults.deadlineMs
  const tryMs = Math.min(options.tryMs ?? defaults.tryMs, deadlineMs)
  const tries = Math.max(options.tries ?? defaults.tries, 1)
  const token = options.token === undefined
    ? null
    : typeof options.token === "string"
    ? options.token
    : Redacted.value(options.token)
  const api = yield* HttpApiClient.makeWith(Api, { httpClient: checked(yield* HttpClient.HttpClient, url, token) })

  const call: Client["Service"]["call"] = (repeat, ask) =>
    Effect.suspend(() => {
      let last: ClientError.ClientError | null = null
      const waits = Schedule.exponential(firstWaitMs).pipe(
        Schedule.jittered,
        // What the server asks for, where it asks for more.
        Schedule.modifyDelay(({ duration }) =>
          Effect.sync(() => {
            const asked = last?._tag === "ServerUnavailable" ? last.retryAfterMs ?? 0 : 0
            return Duration.max(duration, Duration.millis(asked))
          })
        )
      )
      return Effect.suspend(() => {
        const sent = { yet: false }
        return Effect.provideService(Effect.mapError(ask(api), unread(url, sent)), Sent, sent)
      }).pipe(
        Effect.timeoutOrElse({ duration: tryMs, orElse: () => Effect.fail(ClientError.tooLate(url, tryMs)) }),
        Effect.tapError((error) => Effect.sync(() => void (last = error))),
        Effect.retry({ while: retryable(repeat), schedule: waits, times: tries - 1 }),
        Effect.timeoutOrElse({
          duration: deadlineMs,
          orElse: () => Effect.fail(last ?? ClientError.tooLate(url, deadlineMs))
        })
      )
    })

  const get: Client["Service"]["get"] = (id) => call("always", (api) => api.jobs.get({ params: { id } }))

  const list: Client["Service"]["list"] = (query = {}) => {
    const given = Object.fromEntries(Object.entries(query).filter(([, value]) => value !== undefined))
    return call("always", (api) => api.jobs.list({ query: given }))
  }

  const submit: Client["Service"]["submit"] = Effect.fnUntraced(function*(job, options = {}) {
    const payload = yield* newJob(job)
    const drawn = job.idempotency_key === undefined && options.keyed !== false ? yield* drawKey : null
    const headers = drawn === null ? {} : { "idempotency-key": drawn }
    const keyed = drawn !== null || job.idempotency_key !== undefined
    const [stored, response] = yield* call(
      keyed ? "always" : "if nothing was done",
      (api) => api.jobs.submit({ headers, payload, responseMode: "decoded-and-response" })
    )
    const replayed = response.headers["idempotent-replayed"] === "true"
    const skipped = response.headers["deadman-unique"] === "skipped"
    return submitted(stored, skipped ? "skipped" : replayed ? "replayed" : "created", drawn !== null)
  })

  const submitBatch: Client["Service"]["submitBatch"] = Effect.fnUntraced(function*(jobs, options = {}) {
    const isDrawn = (job: NewJob) => job.idempotency_key === undefined && options.keyed !== false
    const payload = yield* Effect.forEach(
      jobs,
      (job) => isDrawn(job) ? Effect.flatMap(drawKey, (key) => newJob({ ...job, idempotency_key: key })) : newJob(job)
    )
    const keyed = payload.every((job) => job.idempotency_key !== undefined)
    const answer = yield* call(
      keyed ? "always" : "if nothing was done",
      (api) => api.jobs.submitBatch({ payload })
    )
    if ("jobs" in answer) {
      return answer.jobs.map((job, at) => submitted(job, answer.outcomes?.[at], isDrawn(jobs[at]!)))
    }
    return yield* new ClientError.UnexpectedAnswer({
      status: null,
      message: `${url} answered an array line by line: it is of another version than this client.`
    })
  })

  const cancel: Client["Service"]["cancel"] = (id) =>
    call("always", (api) => api.jobs.cancel({ params: { id } })).pipe(
      // Where the first answer was lost, the repeat finds the job dead: of what, says the job.
      Effect.catchTag("WrongState", (error) =>
        Effect.flatMap(get(id), (job) => job.reason === "cancelled" ? Effect.succeed(job) : Effect.fail(error)))
    )

  const waitFor: Client["Service"]["waitFor"] = (id, options = {}) =>
    Effect.suspend(() => {
      let seen: Job | null = null
      return Effect.gen(function*() {
        let wait = lookFirstMs
        while (true) {
          const job = yield* get(id)
          seen = job
          if (isEnded(job)) {
            return job
          }
          yield* Effect.sleep(wait)
          wait = Math.min(wait * 1.5, lookMaxMs)
        }
      }).pipe(Effect.timeoutOrElse({
        duration: options.within ?? waitWithin,
        orElse: () => {
          const state = seen === null ? "not known" : seen.state
          return Effect.fail(
            new NotEnded({ id, state, message: `The job ${id} is still ${state}. It goes on: ask for it again later.` })
          )
        }
      }))
    })

  return Client.of({
    url,
    call,
    submit,
    submitBatch,
    get,
    getAll: (ids) =>
      ids.length === 0
        ? Effect.succeed([])
        : Effect.map(call("always", (api) => api.jobs.list({ query: { id: ids.join(",") } })), ({ jobs }) => jobs),
    list,
    walk: (query = {}) =>
      Stream.paginate(query, (query) =>
        Effect.map(list(query), ({ jobs, next_cursor }) =>
          [
            jobs,
            next_cursor === null
              ? Option.none<ListQuery>()
              : Option.some({ ...query, offset: undefined, cursor: next_cursor })
          ] as const)),
    cancel,
    retry: (id) => call("if nothing was done", (api) => api.jobs.retry({ params: { id } })),
    resubmit: (id) => call("if nothing was done", (api) => api.jobs.resubmit({ params: { id } })),
    waitFor,
    putSchedule: (name, schedule) =>
      Effect.mapError(decodeNewSchedule(schedule), invalid).pipe(
        Effect.flatMap((payload) => call("always", (api) => api.schedules.putSchedule({ params: { name }, payload })))
      ),
    runSchedule: (name, { key } = {}) =>
      Effect.flatMap(
        key === undefined ? drawKey : Effect.succeed(key),
        (key) =>
          call("always", (api) => api.schedules.runSchedule({ params: { name }, headers: { "idempotency-key": key } }))
      ),
    stats: call("always", (api) => api.stats()),
    ready: call(
      "always",
      (api) => Effect.catch(api.ready(), (error) => isNotReadyBody(error) ? Effect.succeed(error) : Effect.fail(error))
    )
  })
})

/** By `fetch`, which is there on every Node and in every runtime like it. No redirect is followed with a token. */
export const http: Layer.Layer<HttpClient.HttpClient> = Layer.provide(
  FetchHttpClient.layer,
  Layer.succeed(FetchHttpClient.RequestInit, { redirect: "manual" })
)

export const layer = (options: Options): Layer.Layer<Client, ClientError.InvalidRequest> =>
  Layer.effect(Client, make(options)).pipe(Layer.provide(http))
