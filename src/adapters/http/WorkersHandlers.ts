import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Effect } from "effect"
import type { HttpServerRequest } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import type { ServerResponse } from "node:http"
import { type RemoteClaims, type RemoteUnavailable, RemoteWorkers } from "../../ports/RemoteWorkers.ts"
import { Api } from "./Api.ts"
import * as ApiError from "./ApiError.ts"
import { json, orFail, readJson, replying, text } from "./Replying.ts"
import { askMaxBytes, outcomesMaxBytes } from "./WorkersApi.ts"
import * as WorkersBody from "./WorkersBody.ts"

type Answer<A> = Effect.Effect<A, ApiError.ApiError>

const unavailable = ({ reason }: RemoteUnavailable): ApiError.ApiError => {
  switch (reason) {
    case "full":
      return ApiError.make("overloaded", "Too many workers ask at once. Try again in a moment.")
    case "stopping":
      return ApiError.stopping
    case "store":
      return ApiError.make("unavailable", "The database did not confirm in time. Repeat the request as it was.")
  }
}

const decoded = Effect.fnUntraced(function*<A extends object>(
  request: HttpServerRequest.HttpServerRequest,
  maxBytes: number,
  decode: (text: string) => A | ApiError.ApiError
): Effect.fn.Return<A, ApiError.ApiError> {
  return yield* orFail(decode(yield* readJson(request, maxBytes)))
})

/** Calls `lost` if the answer cannot reach the client: its connection closed before the last byte was handed over. */
const watch = (response: ServerResponse, lost: () => void): void => {
  if (response.destroyed || response.closed) {
    lost()
    return
  }
  response.once("close", () => {
    if (!response.writableFinished) {
      lost()
    }
  })
}

export const layer = HttpApiBuilder.group(
  Api,
  "workers",
  Effect.fn(function*(handlers) {
    const workers = yield* RemoteWorkers
    const runFork = Effect.runForkWith(yield* Effect.context<never>())

    const claim = Effect.fnUntraced(function*(request: HttpServerRequest.HttpServerRequest) {
      const asked = yield* decoded(request, askMaxBytes, WorkersBody.claims)
      // The listener speaks HTTP/1 only.
      const response = NodeHttpServerRequest.toServerResponse(request) as ServerResponse
      const claims: Answer<RemoteClaims> = Effect.mapError(workers.claim(asked), unavailable)
      // Nothing may come between the answer and somebody who watches whether it arrives.
      const taken = yield* Effect.uninterruptibleMask((restore) =>
        Effect.tap(restore(claims), (answer) =>
          Effect.sync(() => {
            if (answer.jobs.length > 0) {
              watch(response, () => runFork(workers.unread(answer)))
            }
          }))
      )
      return text(WorkersBody.claimsText(taken, asked.worker))
    })

    const heartbeat = Effect.fnUntraced(function*(request: HttpServerRequest.HttpServerRequest) {
      const { leases, worker } = yield* decoded(request, askMaxBytes, WorkersBody.heartbeat)
      return json(yield* Effect.mapError(workers.heartbeat(worker, leases), unavailable))
    })

    const settle = Effect.fnUntraced(function*(request: HttpServerRequest.HttpServerRequest) {
      const outcomes = yield* decoded(request, outcomesMaxBytes, WorkersBody.outcomes)
      return json(yield* Effect.mapError(workers.settle(outcomes), unavailable))
    })

    return handlers
      .handleRaw("claim", ({ request }) => replying(claim(request)))
      .handleRaw("heartbeat", ({ request }) => replying(heartbeat(request)))
      .handleRaw("settle", ({ request }) => replying(settle(request)))
  })
)
