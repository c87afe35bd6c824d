/**
 * What can go wrong with a request, as a closed list.
 *
 * The table gives each code its status; OpenAPI, the replies and the tests all read it. A message says what to do next
 * and never holds a payload, a statement, a stack or a connection string.
 */
import { Data } from "effect"
import type { JobState } from "../../domain/JobState.ts"

export const codes = {
  invalid_json: 400,
  invalid_body: 400,
  invalid_field: 400,
  unknown_field: 400,
  invalid_idempotency_key: 400,
  bad_request: 400,
  unauthorized: 401,
  host_not_allowed: 403,
  not_found: 404,
  method_not_allowed: 405,
  request_timeout: 408,
  wrong_state: 409,
  gone: 410,
  too_large: 413,
  unsupported_media_type: 415,
  idempotency_key_reused: 422,
  headers_too_large: 431,
  internal: 500,
  unavailable: 503,
  overloaded: 503,
  stopping: 503,
  key_locked: 503
} as const

export type Code = keyof typeof codes

export const codeNames = Object.keys(codes) as ReadonlyArray<Code>

export class ApiError extends Data.TaggedError("ApiError")<{
  readonly code: Code
  readonly message: string
  readonly field?: string | undefined
  /** Of the job to which it cannot be done. */
  readonly state?: JobState | undefined
  readonly headers?: Readonly<Record<string, string>> | undefined
}> {}

/** Seconds after which asking again makes sense: a dependency comes back, or the queue drains. */
const retryAfter = { "retry-after": "1" }

export const make = (code: Code, message: string, field?: string): ApiError =>
  new ApiError({ code, message, field, headers: codes[code] === 503 ? retryAfter : undefined })

export const wrongState = (message: string, state: JobState): ApiError =>
  new ApiError({ code: "wrong_state", message, state })

export const bodyOf = ({ code, field, message, state }: Pick<ApiError, "code" | "message" | "field" | "state">): {
  readonly error: {
    readonly code: Code
    readonly message: string
    readonly field?: string
    readonly state?: JobState
  }
} => ({
  error: {
    code,
    message,
    ...(field === undefined ? {} : { field }),
    ...(state === undefined ? {} : { state })
  }
})

export const notFound = make("not_found", "There is no job with this id; it may have been pruned.")
export const storeAway = make("unavailable", "The database does not answer at present. Try again in a moment.")
export const stopping = make("stopping", "This process is shutting down. Try again: another one will answer.")
export const internal = make("internal", "This is a defect of the server. It was logged; please report it.")
