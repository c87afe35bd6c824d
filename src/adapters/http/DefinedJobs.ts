/**
 * Jobs by their definition, over HTTP: the payload is checked by its Schema before it is sent, and the result comes back
 * as its type.
 *
 * `Job.define` makes such a definition; what is written here is what a submitter needs of one.
 */
import { type Duration, Effect, type Result, Schema } from "effect"
import type { Client, NewJob, SubmitOptions } from "./Client.ts"
import * as ClientError from "./ClientError.ts"

interface Refused {
  readonly message: string
  readonly faults?: ReadonlyArray<{ readonly path: string }>
}

export interface Definition<in Payload, out Value> {
  readonly type: string
  /** What the type says about its jobs; what a submit says besides goes before it. */
  readonly defaults: {
    readonly queue?: string
    readonly priority?: number
    readonly maxAttempts?: number
    readonly backoff?: NonNullable<NewJob["backoff"]>
    readonly timeoutMs?: number
    readonly retainMs?: number
  }
  readonly encode: (payload: Payload) => Result.Result<unknown, Refused>
  readonly decodeResult: (json: unknown) => Result.Result<Value, Refused>
}

/** What a single submit may say: the fields of `POST /jobs`, without those that the definition gives. */
export type DefinedOptions = Partial<Omit<NewJob, "type" | "payload">> & SubmitOptions

/** The job ended dead: there is no result, and there will be none. */
export class JobDead extends Schema.TaggedError<JobDead>()("JobDead", {
  id: Schema.String,
  reason: Schema.String,
  message: Schema.String
}) {}

const refused = ({ faults, message }: Refused) =>
  new ClientError.InvalidRequest({ code: "invalid_field", field: faults?.[0]?.path ?? "payload", message })

const fieldsOf = (
  { backoff, maxAttempts, priority, queue, retainMs, timeoutMs }: Definition<never, unknown>["defaults"]
) => ({
  ...(queue === undefined ? {} : { queue }),
  ...(priority === undefined ? {} : { priority }),
  ...(maxAttempts === undefined ? {} : { max_attempts: maxAttempts }),
  ...(backoff === undefined ? {} : { backoff }),
  ...(timeoutMs === undefined ? {} : { timeout_ms: timeoutMs }),
  ...(retainMs === undefined ? {} : { retain_ms: retainMs })
})

export const submit = <Payload>(
  client: Client["Service"],
  definition: Definition<Payload, unknown>,
  payload: Payload,
  { keyed, ...fields }: DefinedOptions = {}
) =>
  Effect.flatMap(
    Effect.mapError(Effect.fromResult(definition.encode(payload)), refused),
    (json) =>
      client.submit({
        ...fieldsOf(definition.defaults),
        ...fields,
        type: definition.type,
        payload: json as NonNullable<NewJob["payload"]>
      }, { keyed })
  )

/** Waits until the job has ended well, and reads its result. */
export const result = Effect.fnUntraced(function*<Value>(
  client: Client["Service"],
  definition: Definition<never, Value>,
  id: string,
  options?: { readonly within?: Duration.Input | undefined }
) {
  const job = yield* client.waitFor(id, options)
  if (job.state === "dead") {
    const error = job.errors.at(-1)
    return yield* new JobDead({
      id,
      reason: job.reason ?? "unknown",
      message: `The job ${id} is dead (${job.reason})` +
        (error === undefined ? "." : `: ${error.name}: ${error.message}`)
    })
  }
  return yield* Effect.mapError(
    Effect.fromResult(definition.decodeResult(job.result)),
    ({ message }) =>
      new ClientError.UnexpectedAnswer({ status: null, message: `The job ${id} ended with another result: ${message}` })
  )
})
