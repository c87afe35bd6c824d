/**
 * `/metrics` and `/health` of a process that serves no API: a worker, on `DEADMAN_METRICS_PORT`.
 *
 * The same guard as the API's stands before it. A scrape reads what was counted, and asks nobody.
 */
import { Effect, Layer } from "effect"
import { PrometheusMetrics } from "effect/observability"
import * as Http from "node:http"
import type { AddressInfo } from "node:net"
import * as ApiError from "./ApiError.ts"
import * as Guard from "./Guard.ts"
import * as Reply from "./Reply.ts"
import { type Options, ServerAddress, ServerFailed } from "./Server.ts"

const unknown = ApiError.make("not_found", "Here are /metrics and /health; the API is the server's.")
const wrongMethod = ApiError.make("method_not_allowed", "This path takes GET, HEAD.")

type Own = Pick<Options, "host" | "port" | "token" | "unreadMs">

const make = Effect.fnUntraced(function*(options: Own) {
  const context = yield* Effect.context<never>()
  const guard = Guard.make({ token: options.token, loopback: Guard.isLoopback(options.host) })

  const answer = (request: Http.IncomingMessage, response: Http.ServerResponse) => {
    response.setHeader("x-content-type-options", "nosniff")
    response.setHeader("cache-control", "no-store")
    // Nothing here has a body: what is sent anyway is let go.
    request.resume()
    const refused = guard(request)
    const path = Guard.pathOf(request.url ?? "")
    if (refused !== null) {
      Reply.send(response, Reply.failed(refused))
    } else if (path !== "/metrics" && path !== "/health") {
      Reply.send(response, Reply.failed(unknown))
    } else if (request.method !== "GET" && request.method !== "HEAD") {
      Reply.send(response, Reply.failed(wrongMethod))
    } else if (path === "/health") {
      Reply.send(response, { status: 200, body: `{"status":"alive"}` })
    } else {
      Reply.send(response, {
        status: 200,
        body: PrometheusMetrics.formatUnsafe(context),
        headers: { "content-type": "text/plain; version=0.0.4; charset=utf-8" }
      })
    }
  }

  const server = Http.createServer({ requestTimeout: 10_000, headersTimeout: 5_000, keepAliveTimeout: 30_000 }, answer)
  server.maxConnections = 100
  // Nothing here waits before it answers: a connection on which nothing moves is one whose client does not read.
  server.timeout = options.unreadMs ?? 30_000
  const address = yield* Effect.acquireRelease(
    Effect.callback<AddressInfo, ServerFailed>((resume) => {
      server.once("error", (error: NodeJS.ErrnoException) =>
        resume(Effect.fail(
          new ServerFailed({
            message: `Cannot serve metrics on ${options.host}:${options.port} (${error.code ?? error.message}): ` +
              "set DEADMAN_METRICS_PORT to a free port"
          })
        )))
      server.listen(
        { host: options.host, port: options.port },
        () => resume(Effect.succeed(server.address() as AddressInfo))
      )
    }),
    () =>
      Effect.sync(() => {
        server.close()
        server.closeAllConnections()
      })
  )
  return { host: options.host, port: address.port }
})

export const layer = (options: Own): Layer.Layer<ServerAddress, ServerFailed> =>
  Layer.effect(ServerAddress, make(options))
