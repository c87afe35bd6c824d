/** How the handlers of the API come to a reply: what is refused is one too, so that the only failures left are defects. */
import { Effect } from "effect"
import type { HttpServerRequest, HttpServerResponse } from "effect/http"
import type { TransportUnavailable } from "../../ports/Transport.ts"
import * as ApiError from "./ApiError.ts"
import * as Batch from "./Batch.ts"
import * as Guard from "./Guard.ts"
import * as Reply from "./Reply.ts"

export const replying = <R>(
  effect: Effect.Effect<HttpServerResponse.HttpServerResponse, ApiError.ApiError, R>
): Effect.Effect<HttpServerResponse.HttpServerResponse, never, R> =>
  Effect.catch(effect, (error) => Effect.succeed(Reply.toEffect(Reply.failed(error))))

/** What was refused fails as itself; a value stands for a success. */
export const orFail = <A>(value: A | ApiError.ApiError): Effect.Effect<A, ApiError.ApiError> =>
  value instanceof ApiError.ApiError ? Effect.fail(value) : Effect.succeed(value)

/** JSON that is text already. */
export const text = (body: string, status = 200, headers?: Record<string, string>) =>
  Reply.toEffect({ status, body, headers })

export const json = (body: unknown, status = 200, headers?: Record<string, string>) =>
  text(JSON.stringify(body), status, headers)

/** The body of a request that is one JSON value. */
export const readJson = Effect.fnUntraced(function*(
  request: HttpServerRequest.HttpServerRequest,
  maxBytes: number
): Effect.fn.Return<string, ApiError.ApiError> {
  const content = yield* orFail(Guard.contentOf(Batch.nodeRequestOf(request)))
  return content === "ndjson"
    ? yield* ApiError.make("unsupported_media_type", "Send JSON: `Content-Type: application/json`.")
    : yield* Batch.readText(request, maxBytes)
})

/** A wake is not waited for: who misses it finds out by itself, with its next heartbeat or its next look. */
export const courtesy = (wake: Effect.Effect<void, TransportUnavailable>) =>
  wake.pipe(Effect.timeoutOption("5 seconds"), Effect.ignore, Effect.forkDetach)
