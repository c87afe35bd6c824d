/**
 * `POST /jobs`, on Node's own request and response.
 *
 * The one route where the cost of a request matters: a fiber, a router and a Schema per submit are most of what a submit
 * would cost. It reads, decodes and answers as its counterpart in `JobsHandlers.ts` does, with the same functions.
 */
import { Effect, Exit } from "effect"
import type { IncomingMessage, ServerResponse } from "node:http"
import type { JobStore } from "../../ports/JobStore.ts"
import type { Submitter } from "../../ports/Submitter.ts"
import { bodyMaxBytes } from "./Api.ts"
import * as ApiError from "./ApiError.ts"
import * as Body from "./Body.ts"
import * as Guard from "./Guard.ts"
import * as Reply from "./Reply.ts"
import * as ReusedKey from "./ReusedKey.ts"
import * as SubmitBody from "./SubmitBody.ts"

/** Every value of the header, as it was sent: Node joins repeated headers into one. */
export const keysOf = (request: IncomingMessage): ReadonlyArray<string> => {
  if (request.headers["idempotency-key"] === undefined) {
    return []
  }
  const raw = request.rawHeaders
  return raw.filter((_, index) => index % 2 === 1 && raw[index - 1]!.toLowerCase() === "idempotency-key")
}

const noBody = ApiError.make("invalid_body", "The body must be a JSON object with at least a type.")
const noLines = ApiError.make("unsupported_media_type", "NDJSON goes to /jobs/batch; here, send application/json.")

/** What the headers say against the body of a submit, if anything. */
export const refusedBy = (request: IncomingMessage): ApiError.ApiError | null => {
  const content = Guard.contentOf(request)
  return content === "json" ? null : content === null ? noBody : content === "ndjson" ? noLines : content
}

export const make = (
  submitter: Submitter["Service"],
  store: JobStore["Service"],
  fail: (request: IncomingMessage, response: ServerResponse, error: ApiError.ApiError) => void
) =>
(request: IncomingMessage, response: ServerResponse): void => {
  const refused = refusedBy(request)
  if (refused !== null) {
    fail(request, response, refused)
    return
  }
  const key = SubmitBody.headerKey(keysOf(request))
  if (key instanceof ApiError.ApiError) {
    fail(request, response, key)
    return
  }
  Body.read(request, bodyMaxBytes, (text) => {
    const draft = text instanceof ApiError.ApiError ? text : SubmitBody.decodeText(text, key)
    if (draft instanceof ApiError.ApiError) {
      fail(request, response, draft)
      return
    }
    submitter.submitThen(draft, (answered) => {
      const reply = Reply.submitted(draft, answered)
      if (!(reply instanceof ApiError.ApiError)) {
        Reply.send(response, reply)
      } else if (answered._tag === "KeyMismatch") {
        Effect.runCallback(ReusedKey.explained(store, draft, answered.id), {
          onExit: (exit) => Reply.send(response, Reply.failed(Exit.isSuccess(exit) ? exit.value : reply))
        })
      } else {
        Reply.send(response, Reply.failed(reply))
      }
    })
  })
}
