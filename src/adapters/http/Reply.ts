/** An answer as text, for both ways out: Node's response on the hot path, Effect's elsewhere. */
import { HttpServerResponse } from "effect/http"
import type { ServerResponse } from "node:http"
import type { JobDraft } from "../../ports/Submitter.ts"
import type { Answered, SubmitUnavailable } from "../../ports/Submitter.ts"
import * as ApiError from "./ApiError.ts"
import * as JobJson from "./JobJson.ts"

/** Whether the job was stored by this request; else it was there, by its key or as a unique one. */
export type Outcome = "created" | "replayed" | "skipped"

export interface Reply {
  readonly status: number
  readonly body: string
  readonly headers?: Readonly<Record<string, string>> | undefined
}

const json = "application/json"

export const failed = (error: ApiError.ApiError): Reply => ({
  status: ApiError.codes[error.code],
  body: JSON.stringify(ApiError.bodyOf(error)),
  headers: error.headers
})

export const unavailable = (error: SubmitUnavailable): ApiError.ApiError => {
  switch (error.reason) {
    case "full":
      return ApiError.make("overloaded", "Too many jobs wait to be stored. Try again in a moment.")
    case "stopping":
      return ApiError.stopping
    case "store":
      return ApiError.make(
        "unavailable",
        "The database did not confirm in time. The job may or may not be stored: repeat with an Idempotency-Key."
      )
  }
}

export const repeatHeaders = { "idempotent-replayed": "true" }
const skippedHeaders = { "deadman-unique": "skipped" }

export const keyGone = ApiError.make(
  "gone",
  "The job of this Idempotency-Key was pruned. Use a new key to run it again."
)
export const keyReused = ApiError.make(
  "idempotency_key_reused",
  "This Idempotency-Key was used for a different request. Use a new key for a new job."
)

/** What of a job somebody else's transaction may have taken first. */
const heldOf = ({ key, unique }: JobDraft): string => {
  const place = "a job that this one must be unique with"
  return key === null ? place : (unique ?? null) === null ? "this Idempotency-Key" : `this Idempotency-Key, or ${place}`
}

export const outcomeOf = ({ headers, status }: Reply): Outcome =>
  status === 201 ? "created" : headers === skippedHeaders ? "skipped" : "replayed"

/** What a submit answers: the job, or why there is none. */
export const submitted = (
  draft: JobDraft,
  answered: Answered | SubmitUnavailable
): Reply | ApiError.ApiError => {
  switch (answered._tag) {
    case "Created":
      return { status: 201, body: JobJson.createdText(draft, answered), headers: { location: `/jobs/${answered.id}` } }
    case "Replayed":
      return answered.job === null
        ? keyGone
        : { status: 200, body: JobJson.toText(answered.job), headers: repeatHeaders }
    case "KeyMismatch":
      return keyReused
    case "Skipped":
      return { status: 200, body: JobJson.toText(answered.job), headers: skippedHeaders }
    case "KeyLocked":
      return ApiError.make("key_locked", `An open transaction holds ${heldOf(draft)}. Try again in a moment.`)
    case "Refused":
      return ApiError.make("invalid_field", `The database cannot store this job: ${answered.message}`, "payload")
    case "Aborted":
      return ApiError.make("bad_request", "Another entry of the batch was refused, so nothing was stored.")
    case "SubmitUnavailable":
      return unavailable(answered)
  }
}

export const toEffect = (reply: Reply): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.text(reply.body, {
    status: reply.status,
    contentType: json,
    ...(reply.headers === undefined ? {} : { headers: reply.headers })
  })

/** What every answer says. */
export const always: ReadonlyArray<readonly [name: string, value: string]> = [
  ["x-content-type-options", "nosniff"],
  ["cache-control", "no-store"]
]

/** Writes the reply, unless the client has gone. */
export const send = (response: ServerResponse, reply: Reply): void => {
  if (response.destroyed || response.headersSent) {
    return
  }
  // As a list, and all at once: Node writes it out as it is, where headers that are set one by one are kept, looked up
  // and merged first.
  const headers = ["content-type", json, "content-length", String(Buffer.byteLength(reply.body))]
  for (const [name, value] of always) {
    headers.push(name, value)
  }
  for (const name in reply.headers) {
    headers.push(name, reply.headers[name]!)
  }
  response.writeHead(reply.status, headers)
  response.end(reply.body)
}
