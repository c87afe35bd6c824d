/**
 * The client for programs that know nothing of Effect: promises, and a signal that gives a call up.
 *
 * A promise is rejected with one of the errors of `ClientError`: `_tag` says which, and the message what to do.
 */
import { Cause, Context, type Duration, Effect, Exit, Layer, Stream } from "effect"
import { Client, type Job, type JobList, layer, type ListQuery } from "./Client.ts"
import type { NewJob, NotEnded, Options, Ready, Stats, SubmitOptions, Submitted } from "./Client.ts"
import type { ClientError } from "./ClientError.ts"
import * as DefinedJobs from "./DefinedJobs.ts"

interface Call {
  /** Gives the call up. What was sent may still take effect. */
  readonly signal?: AbortSignal | undefined
}

export interface PromiseClient {
  readonly url: string
  readonly submit: (job: NewJob, options?: SubmitOptions & Call) => Promise<Submitted>
  /** A job by its definition: the payload is checked before it is sent. */
  readonly submitAs: <Payload>(
    definition: DefinedJobs.Definition<Payload, unknown>,
    payload: NoInfer<Payload>,
    options?: DefinedJobs.DefinedOptions & Call
  ) => Promise<Submitted>
  /** Waits until a job has ended well, and gives its result as its type. */
  readonly resultAs: <Value>(
    definition: DefinedJobs.Definition<never, Value>,
    id: string,
    options?: Call & { readonly within?: Duration.Input | undefined }
  ) => Promise<Value>
  /** All of them or none. */
  readonly submitBatch: (jobs: ReadonlyArray<NewJob>, options?: SubmitOptions & Call) => Promise<ReadonlyArray<Job>>
  readonly get: (id: string, options?: Call) => Promise<Job>
  readonly list: (query?: ListQuery, options?: Call) => Promise<JobList>
  /** All pages, for `for await`. */
  readonly walk: (query?: ListQuery) => AsyncIterable<Job>
  readonly cancel: (id: string, options?: Call) => Promise<Job>
  readonly retry: (id: string, options?: Call) => Promise<Job>
  readonly resubmit: (id: string, options?: Call) => Promise<Job>
  /** Waits until the job has ended, for a minute unless told otherwise. */
  readonly waitFor: (id: string, options?: Call & { readonly within?: Duration.Input | undefined }) => Promise<Job>
  readonly stats: (options?: Call) => Promise<Stats>
  readonly ready: (options?: Call) => Promise<Ready>
}

/** Runs nothing in the background, so there is nothing to close. Throws where the address is none. */
export const connect = (options: Options): PromiseClient => {
  const made = Effect.runSyncExit(Effect.scoped(Effect.map(Layer.build(layer(options)), Context.get(Client))))
  if (Exit.isFailure(made)) {
    throw Cause.squash(made.cause)
  }
  const client = made.value
  const run = <A>(
    effect: Effect.Effect<A, ClientError | NotEnded | DefinedJobs.JobDead>,
    { signal }: Call = {}
  ): Promise<A> => Effect.runPromise(effect, signal === undefined ? {} : { signal })
  return {
    url: client.url,
    submit: (job, options = {}) => run(client.submit(job, options), options),
    submitAs: (definition, payload, { signal, ...options } = {}) =>
      run(DefinedJobs.submit(client, definition, payload, options), { signal }),
    resultAs: (definition, id, options = {}) => run(DefinedJobs.result(client, definition, id, options), options),
    submitBatch: (jobs, options = {}) => run(client.submitBatch(jobs, options), options),
    get: (id, options) => run(client.get(id), options),
    list: (query, options) => run(client.list(query), options),
    walk: (query) => Stream.toAsyncIterable(client.walk(query)),
    cancel: (id, options) => run(client.cancel(id), options),
    retry: (id, options) => run(client.retry(id), options),
    resubmit: (id, options) => run(client.resubmit(id), options),
    waitFor: (id, options = {}) => run(client.waitFor(id, options), options),
    stats: (options) => run(client.stats, options),
    ready: (options) => run(client.ready, options)
  }
}
