/**
 * A handler of a defined job type: what stands between the claim's JSON and a function of the decoded payload.
 *
 * It is data until a worker is made of it. An Effect finds `CurrentJob` in its context; whatever else it needs is given
 * when the worker's handlers are put together.
 */
import { Context, Effect, Result } from "effect"
import { CurrentJob, type HandlerContext, type HandlerJob } from "../../ports/CurrentJob.ts"
import { asAgain, type Handler, Rejected } from "../worker/HandlerApi.ts"

export interface JobContext extends HandlerContext {
  readonly job: HandlerJob
}

export interface TypedHandler<out R = never> {
  readonly _tag: "deadman/TypedHandler"
  readonly type: string
  /** What a worker calls, once there is what its Effect needs. */
  readonly toHandler: (services: Context.Context<R>) => Handler
}

type Coding = (value: never) => Result.Result<unknown, Error>

const encoded = (encode: Coding, value: unknown): unknown => {
  if (asAgain(value) !== null) {
    return value
  }
  return Result.getOrThrow((encode as (value: unknown) => Result.Result<unknown, Error>)(value))
}

const current = (context: JobContext): CurrentJob["Service"] => ({
  job: context.job,
  claim: context.claim,
  get signal() {
    return context.signal
  },
  progress: (value) => Effect.sync(() => context.progress(value)),
  log: (line) => Effect.sync(() => context.log(line)),
  toResult: context.toResult,
  inPostgres: context.inPostgres
})

const contextOf = (job: HandlerJob, given: HandlerContext, encode: Coding): JobContext => ({
  job,
  claim: given.claim,
  get signal() {
    return given.signal
  },
  progress: (value) => given.progress(value),
  log: (line) => given.log(line),
  toResult: (value) => given.toResult(encoded(encode, value)),
  inPostgres: given.inPostgres
})

const isPromiseLike = (value: unknown): value is PromiseLike<unknown> =>
  typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function"

export const make = <R>(options: {
  readonly type: string
  readonly decode: (json: unknown) => Result.Result<unknown, Error>
  readonly encodeResult: Coding
  readonly run: (payload: never, context: JobContext) => unknown
}): TypedHandler<R> => ({
  _tag: "deadman/TypedHandler",
  type: options.type,
  toHandler: (services) => (job, given) => {
    const payload = options.decode(job.payload)
    if (Result.isFailure(payload)) {
      // No later attempt can read it either.
      throw new Rejected(payload.failure.message, { cause: payload.failure })
    }
    const context = contextOf({ ...job, payload: payload.success }, given, options.encodeResult)
    const value = options.run(payload.success as never, context)
    if (Effect.isEffect(value)) {
      return (value as Effect.Effect<unknown, unknown, R | CurrentJob>).pipe(
        Effect.map((result) => encoded(options.encodeResult, result)),
        Effect.provideContext(Context.add(services, CurrentJob, current(context)) as Context.Context<R | CurrentJob>)
      )
    }
    return isPromiseLike(value)
      ? value.then((result) => encoded(options.encodeResult, result))
      : encoded(options.encodeResult, value)
  }
})

export const isTypedHandler = (value: unknown): value is TypedHandler =>
  typeof value === "object" && value !== null && (value as { _tag?: unknown })._tag === "deadman/TypedHandler"
