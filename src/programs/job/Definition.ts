/**
 * A job type, defined once and used on both sides.
 *
 * Whoever submits has the payload checked and written as JSON by its Schema; the worker reads it back with the same
 * Schema before the run, so that a handler never sees what does not fit: such a job is dead, `rejected`. A result goes
 * the same way. How often and how long a job may run belongs to its type, and is stored with each job at its submit.
 *
 * Any Schema without services will do: a codec to JSON is derived from it, so `Schema.Date` is fine.
 */
import { type Effect, Result, Schema, SchemaIssue } from "effect"
import { Backoff as BackoffSchema } from "../../domain/Backoff.ts"
import * as Limits from "../../domain/Job.ts"
import * as Spelling from "../../domain/Spelling.ts"
import type { CurrentJob } from "../../ports/CurrentJob.ts"
import * as Casing from "../client/Casing.ts"
import * as SubmitOptions from "../client/SubmitOptions.ts"
import type { Again } from "../worker/HandlerApi.ts"
import * as TypedHandler from "./TypedHandler.ts"

/** What a type says about its jobs; what a submit says besides goes before it. */
export interface Defaults {
  /** Absent: `default`. */
  readonly queue?: string
  /** From -1000 to 1000, higher first; absent: 0. */
  readonly priority?: number
  /** Runs that may end in failure, the first included; absent: 10. */
  readonly maxAttempts?: number
  /** Absent: exponential, from a second to 15 minutes. Ten attempts are over after some four minutes then. */
  readonly backoff?: SubmitOptions.Backoff
  /** Of one attempt, in milliseconds, a week at most; absent: it may take as long as it likes. */
  readonly timeoutMs?: number
  /** How long, in milliseconds, a job is kept after its end; absent: as configured, 7 days, and 30 if it is dead. */
  readonly retainMs?: number
}

/** A value does not fit the Schema of its job type. */
export class JobValueRefused extends Schema.TaggedError<JobValueRefused>()("JobValueRefused", {
  type: Schema.String,
  what: Schema.Literals(["payload", "result"]),
  /** Where, like `payload.items[2].sku`, and what is wrong there. */
  faults: Schema.Array(Schema.Struct({ path: Schema.String, message: Schema.String }))
}) {
  override get message(): string {
    const said = this.faults.map(({ message, path }) => `${path}: ${message}`).join("; ")
    return `the ${this.what} does not fit the job type "${this.type}": ${said}`
  }
}

/** The definition itself is wrong: thrown where it is made, since no job of it could ever be right. */
export class DefinitionInvalid extends Error {
  override readonly name = "DefinitionInvalid"
}

/** What a typed handler gets beside its payload. */
export type JobContext = TypedHandler.JobContext

/** A job type, as `Job.define` makes it: for who submits it, and with `handle` for who runs it. */
export interface Definition<Type extends string, Payload, Value> {
  readonly _tag: "deadman/Definition"
  readonly type: Type
  readonly defaults: Defaults
  /** The payload as a JSON value, for a submit. */
  readonly encode: (payload: Payload) => Result.Result<unknown, JobValueRefused>
  /** The payload of a job as its handler sees it. */
  readonly decode: (json: unknown) => Result.Result<Payload, JobValueRefused>
  readonly encodeResult: (value: Value) => Result.Result<unknown, JobValueRefused>
  /** The result of a job, for who submitted it. */
  readonly decodeResult: (json: unknown) => Result.Result<Value, JobValueRefused>
  /**
   * A handler: an Effect, a promise, or a plain value from a function of the payload. What it returns is the result.
   * What it throws is a failed attempt; `Job.Rejected` is not tried again, `Job.again(ms)` runs it later at no cost.
   */
  readonly handle: {
    <R = never>(
      run: (payload: Payload, context: JobContext) => Effect.Effect<Value | Again, unknown, R>
    ): TypedHandler.TypedHandler<Exclude<R, CurrentJob>>
    (
      run: (payload: Payload, context: JobContext) => Value | Again | Promise<Value | Again>
    ): TypedHandler.TypedHandler
  }
}

const faultsMax = 5
const faultMax = 300

const standard = SchemaIssue.makeFormatterStandardSchemaV1()

const pathOf = (what: string, path: ReadonlyArray<unknown>): string =>
  path.reduce<string>((shown, part) => {
    const key = typeof part === "object" && part !== null && "key" in part ? part.key : part
    return typeof key === "number" || /^\d+$/.test(String(key)) ? `${shown}[${String(key)}]` : `${shown}.${String(key)}`
  }, what)

type Direction<A, B> = (value: A) => Result.Result<B, JobValueRefused>

/** A value that does not fit comes back as a refusal; a Schema that throws or waits is said to do so. */
const direction = <A, B>(
  type: string,
  what: "payload" | "result",
  run: (value: A) => Result.Result<B, SchemaIssue.Issue>
): Direction<A, B> => {
  const refuse = (faults: ReadonlyArray<{ readonly path: string; readonly message: string }>) =>
    Result.fail(new JobValueRefused({ type, what, faults }))
  return (value) => {
    try {
      const answer = run(value)
      if (Result.isSuccess(answer)) {
        return Result.succeed(answer.success)
      }
      return refuse(
        standard(answer.failure).issues.slice(0, faultsMax).map((issue) => ({
          path: pathOf(what, issue.path ?? []),
          message: issue.message.replaceAll(/\s+/g, " ").slice(0, faultMax)
        }))
      )
    } catch (error) {
      return refuse([{
        path: what,
        message: `its Schema could not be run, and must neither wait nor throw: ${String(error).slice(0, faultMax)}`
      }])
    }
  }
}

const parse = { errors: "all" } as const

const directions = <A>(
  type: string,
  what: "payload" | "result",
  schema: Schema.ConstraintCodec<A, unknown>
): { readonly encode: Direction<A, unknown>; readonly decode: Direction<unknown, A> } => {
  const codec = Schema.toCodecJson(schema)
  const encode = Schema.encodeUnknownResult(codec, parse)
  const decode = Schema.decodeUnknownResult(codec, parse)
  return {
    encode: direction(type, what, (value: A) => Result.mapError(encode(value), ({ issue }) => issue)),
    decode: direction(
      type,
      what,
      (json: unknown) => Result.mapError(decode(json), ({ issue }) => issue) as Result.Result<A, SchemaIssue.Issue>
    )
  }
}

const known = ["type", "payload", "result", "queue", "priority", "maxAttempts", "backoff", "timeoutMs", "retainMs"]

const meant = (strange: string): string => {
  const near = Spelling.meant(strange, known)
  return near === null ? "" : `. Is ${near} meant?`
}

/** By what every Schema has, of whichever copy of effect. */
const isSchema = (value: unknown): boolean =>
  (typeof value === "object" || typeof value === "function") && value !== null && "ast" in value

/** JavaScript has no types that would say it. */
const checkShape = (options: unknown): void => {
  if (typeof options !== "object" || options === null) {
    throw new DefinitionInvalid(
      "a job type is an object: Job.define({ type: \"mail.send\", payload: Schema.Struct({ … }) })"
    )
  }
  const { payload, result, type } = options as Readonly<Record<string, unknown>>
  const strange = Object.keys(options).find((name) => !known.includes(name))
  const wrong = strange !== undefined
    ? `has ${strange}, which is no option of a job type; these are: ${known.join(", ")}${meant(strange)}`
    : !isSchema(payload)
    ? "has no Schema of its payload: payload: Schema.Struct({ … }), from \"effect\""
    : result !== undefined && !isSchema(result)
    ? "has a result that is no Schema: result: Schema.Struct({ … }), from \"effect\", or none at all"
    : null
  if (wrong !== null) {
    throw new DefinitionInvalid(`the job type ${JSON.stringify(type)} ${wrong}`)
  }
}

const check = (type: string, defaults: Defaults): void => {
  const rules: ReadonlyArray<readonly [name: string, value: unknown, schema: Schema.ConstraintDecoder<unknown>]> = [
    ["type", type, Limits.JobType],
    ["queue", defaults.queue, Limits.Queue],
    ["priority", defaults.priority, Limits.Priority],
    ["maxAttempts", defaults.maxAttempts, Limits.MaxAttempts],
    ["backoff", SubmitOptions.fieldsOf(defaults)["backoff"], BackoffSchema],
    ["timeoutMs", defaults.timeoutMs, Limits.TimeoutMs],
    ["retainMs", defaults.retainMs, Limits.RetainMs]
  ]
  for (const [name, value, schema] of rules) {
    const answer = value === undefined && name !== "type" ? null : Schema.decodeUnknownResult(schema)(value)
    if (answer !== null && Result.isFailure(answer)) {
      throw new DefinitionInvalid(
        `the job type ${JSON.stringify(type)} has a wrong ${name}: ${Casing.camel(answer.failure.message)}`
      )
    }
  }
}

/**
 * Defines a job type, once, in a module that those who submit it and those who run it import. Throws
 * `DefinitionInvalid` where no job of it could ever be right.
 *
 * ```ts
 * const greet = Job.define({ type: "greet", payload: Schema.Struct({ name: Schema.String }), maxAttempts: 5 })
 * const greeter = greet.handle(async ({ name }) => `Hello, ${name}!`)
 * ```
 */
export const define = <const Type extends string, Payload, Value = unknown>(
  options: Defaults & {
    /** Its name, in the database and for everybody: 1 to 128 characters of `A-Z a-z 0-9 . _ : -`. */
    readonly type: Type
    /** A submit that does not fit it is refused, and a job that does not is dead, `rejected`, before it runs. */
    readonly payload: Schema.ConstraintCodec<Payload, unknown>
    /** Absent: whatever a handler returns is kept as JSON, as far as it can be. */
    readonly result?: Schema.ConstraintCodec<Value, unknown>
  }
): Definition<Type, Payload, Value> => {
  checkShape(options)
  const { payload, result, type, ...defaults } = options
  check(type, defaults)
  const ofPayload = directions(type, "payload", payload)
  const ofResult = result === undefined
    ? { encode: Result.succeed, decode: (json: unknown) => Result.succeed(json as Value) }
    : directions(type, "result", result)
  const made: Definition<Type, Payload, Value> = {
    _tag: "deadman/Definition",
    type,
    defaults,
    encode: ofPayload.encode,
    decode: ofPayload.decode,
    encodeResult: ofResult.encode,
    decodeResult: ofResult.decode,
    handle: (run: (payload: Payload, context: JobContext) => unknown) => {
      if (typeof run !== "function") {
        throw new TypeError(
          `a handler of "${type}" is a function of its payload, not ${run === null ? run : typeof run}`
        )
      }
      return TypedHandler.make<never>({ type, decode: ofPayload.decode, encodeResult: ofResult.encode, run })
    }
  }
  return made
}
