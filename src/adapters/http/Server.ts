/**
 * The HTTP server: what every request passes, the hot path, and everything else.
 *
 * Shutdown is the scope closing, and it closes late: while handlers drain, requests are still answered (readiness says
 * 503, submits are refused). Then the listener closes, requests in flight get their answers within `closeMs`, and what
 * is still open after that is cut.
 */
import { NodeHttpServer } from "@effect/platform-node"
import { Cause, Context, Effect, Layer, type Redacted, Schema, Scope } from "effect"
import { HttpRouter, HttpServerError, HttpServerRequest } from "effect/http"
import { HttpApiBuilder, HttpApiError } from "effect/http-api"
import * as Http from "node:http"
import type { AddressInfo, Socket } from "node:net"
import { JobStore } from "../../ports/JobStore.ts"
import type { Queues } from "../../ports/Queues.ts"
import type { RemoteWorkers } from "../../ports/RemoteWorkers.ts"
import type { Schedules } from "../../ports/Schedules.ts"
import { Status } from "../../ports/Status.ts"
import { Submitter } from "../../ports/Submitter.ts"
import type { Transport } from "../../ports/Transport.ts"
import { Api } from "./Api.ts"
import * as ApiError from "./ApiError.ts"
import * as DocsPage from "./DocsPage.ts"
import * as Guard from "./Guard.ts"
import * as HotSubmit from "./HotSubmit.ts"
import * as JobsHandlers from "./JobsHandlers.ts"
import * as ListQuery from "./ListQuery.ts"
import * as QueueHandlers from "./QueueHandlers.ts"
import * as Reply from "./Reply.ts"
import * as Routes from "./Routes.ts"
import * as ScheduleHandlers from "./ScheduleHandlers.ts"
import * as SystemHandlers from "./SystemHandlers.ts"
import * as Unread from "./Unread.ts"
import * as WorkersHandlers from "./WorkersHandlers.ts"

export interface Options {
  readonly host: string
  /** 0: any free one. */
  readonly port: number
  readonly token: Redacted.Redacted | null
  /** How long requests in flight may take once the listener closes. */
  readonly closeMs?: number
  /** How long a request may take to arrive, and its headers. */
  readonly requestMs?: number
  readonly headersMs?: number
  /** How long a client may read nothing of an answer that waits for it. */
  readonly unreadMs?: number
}

/** The address cannot be had. One line that says what to do. */
export class ServerFailed extends Schema.TaggedError<ServerFailed>()("ServerFailed", { message: Schema.String }) {}

export class ServerAddress extends Context.Service<ServerAddress, {
  readonly host: string
  readonly port: number
}>()("deadman/adapters/http/Server/ServerAddress") {}

const more = ["/openapi.json", ...DocsPage.paths]
/** How much of a refused body is still read, so that its sender gets to see the answer. */
const drainMaxBytes = 1_048_576
const lingerMs = 1_000
/** Names have up to 128 characters; the router's own bound is 100. What is too long for a name is told so. */
const pathPartMax = 512

const app = Layer.mergeAll(
  HttpApiBuilder.layer(Api, { openapiPath: "/openapi.json" }),
  DocsPage.layer
).pipe(
  Layer.provide([
    JobsHandlers.layer,
    QueueHandlers.layer,
    ScheduleHandlers.layer,
    SystemHandlers.layer,
    WorkersHandlers.layer
  ])
)

const routes = Routes.routesOf(Api, more)

const lost = (request: HttpServerRequest.HttpServerRequest): ApiError.ApiError => {
  const methods = Routes.methodsOf(routes, Guard.pathOf(request.url))
  return methods.length === 0 || methods.includes(request.method)
    ? ApiError.make("not_found", "There is nothing at this path; see /docs.")
    : new ApiError.ApiError({
      code: "method_not_allowed",
      message: `This path takes ${methods.join(", ")}.`,
      headers: { allow: methods.join(", ") }
    })
}

/** What a request that met no handler, or a defect, is told. */
const replyTo = (request: HttpServerRequest.HttpServerRequest, cause: Cause.Cause<unknown>) =>
  Effect.gen(function*() {
    const error = Cause.squash(cause)
    if (HttpApiError.HttpApiSchemaError.is(error) && error.kind !== "Body") {
      const query = error.kind === "Query" ? ListQuery.parse(request.url) : null
      return query instanceof ApiError.ApiError
        ? query
        : ApiError.make("bad_request", "The parameters of this request are not valid; see /docs.")
    }
    if (HttpServerError.isHttpServerError(error)) {
      return error.reason._tag === "RouteNotFound"
        ? lost(request)
        : ApiError.make("bad_request", "The request could not be read.")
    }
    yield* Effect.logError("a request met a defect", cause)
    return ApiError.internal
  })

const listen = (server: Http.Server, options: Options) =>
  Effect.callback<AddressInfo, ServerFailed>((resume) => {
    const failed = (error: NodeJS.ErrnoException) => {
      const why = error.code === "EADDRINUSE"
        ? "the port is taken; stop what uses it or set DEADMAN_PORT"
        : error.code === "EACCES"
        ? "not permitted; set DEADMAN_PORT to a port above 1023"
        : `${error.code ?? error.message}; check DEADMAN_HOST and DEADMAN_PORT`
      resume(Effect.fail(new ServerFailed({ message: `Cannot listen on ${options.host}:${options.port}: ${why}` })))
    }
    server.once("error", failed)
    server.listen({ host: options.host, port: options.port, backlog: 1_024 }, () => {
      server.off("error", failed)
      resume(Effect.succeed(server.address() as AddressInfo))
    })
  })

const closeLookEvery = "50 millis"

const close = (server: Http.Server, closeMs: number) =>
  Effect.raceFirst(
    Effect.callback<void>((resume) => {
      server.close(() => resume(Effect.void))
    }),
    // A connection that was busy when the listener closed is idle once it was answered, and nobody else would close it.
    Effect.andThen(Effect.sync(() => server.closeIdleConnections()), Effect.sleep(closeLookEvery)).pipe(Effect.forever)
  ).pipe(
    Effect.timeoutOption(closeMs),
    Effect.andThen(Effect.sync(() => server.closeAllConnections()))
  )

/** Answers what is no HTTP request, or did not arrive in time. */
const onClientError = (error: NodeJS.ErrnoException, socket: Socket) => {
  if (!socket.writable || error.code === "ECONNRESET") {
    socket.destroy()
    return
  }
  const code = error.code === "ERR_HTTP_REQUEST_TIMEOUT"
    ? "request_timeout"
    : error.code === "HPE_HEADER_OVERFLOW"
    ? "headers_too_large"
    : "bad_request"
  const { body, status } = Reply.failed(ApiError.make(code, "The request could not be read, or not in time."))
  socket.end(
    `HTTP/1.1 ${status} ${Http.STATUS_CODES[status]}\r\nconnection: close\r\ncontent-type: application/json\r\n` +
      `x-content-type-options: nosniff\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
  )
}

/** Answers with an error although the body was not read to its end. */
const fail = (request: Http.IncomingMessage, response: Http.ServerResponse, error: ApiError.ApiError): void => {
  if (request.complete || request.readableEnded) {
    Reply.send(response, Reply.failed(error))
    return
  }
  response.setHeader("connection", "close")
  Reply.send(response, Reply.failed(error))
  // Closing at once would reset the connection, and the answer with it.
  let bytes = 0
  request.on("data", (chunk: Buffer) => {
    bytes += chunk.length
    if (bytes > drainMaxBytes) {
      request.destroy()
    }
  })
  request.on("error", () => {})
  request.socket.setTimeout(lingerMs, () => request.socket.destroy())
}

const make = Effect.fnUntraced(function*(options: Options) {
  const submitter = yield* Submitter
  const store = yield* JobStore
  const status = yield* Status
  const scope = yield* Effect.scope
  const router = yield* Effect.provideService(HttpRouter.toHttpEffect(app), HttpRouter.RouterConfig, {
    maxParamLength: pathPartMax
  })
  const requests = yield* Scope.fork(scope, "parallel")
  const handler = yield* NodeHttpServer.makeHandler(
    Effect.catchCause(router, (cause) =>
      Cause.hasInterruptsOnly(cause)
        ? Effect.failCause(cause)
        : Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
          Effect.map(replyTo(request, cause), (error) => Reply.toEffect(Reply.failed(error))))),
    { scope: requests }
  )
  const hot = HotSubmit.make(submitter, store, fail)
  const guard = Guard.make({ token: options.token, loopback: Guard.isLoopback(options.host) })

  const server = Http.createServer({
    requestTimeout: options.requestMs ?? 60_000,
    headersTimeout: options.headersMs ?? 10_000,
    connectionsCheckingInterval: Math.min(1_000, options.headersMs ?? 1_000),
    keepAliveTimeout: 65_000,
    maxHeaderSize: 16_384,
    noDelay: true
  })
  server.maxConnections = 10_000
  server.on("clientError", onClientError)
  yield* Effect.forkScoped(Unread.ended(server, options.unreadMs ?? 120_000))
  server.on("request", (request, response) => {
    const refused = guard(request)
    if (refused !== null) {
      fail(request, response, refused)
      return
    }
    const isPost = request.method === "POST"
    if (status.isStopping()) {
      response.setHeader("connection", "close")
      // What takes in new work or hands it out ends; heartbeats and outcomes are answered to the last.
      if (isPost && /^\/(jobs|workers\/claims)/.test(Guard.pathOf(request.url ?? ""))) {
        fail(request, response, ApiError.stopping)
        return
      }
    }
    if (isPost && Guard.pathOf(request.url ?? "") === "/jobs") {
      hot(request, response)
    } else {
      for (const [name, value] of Reply.always) {
        response.setHeader(name, value)
      }
      handler(request, response)
    }
  })
  const address = yield* Effect.acquireRelease(
    listen(server, options),
    () => close(server, options.closeMs ?? 5_000)
  )
  return { host: options.host, port: address.port }
})

export const layer = (
  options: Options
): Layer.Layer<
  ServerAddress,
  ServerFailed,
  JobStore | Queues | RemoteWorkers | Schedules | Submitter | Status | Transport
> => Layer.effect(ServerAddress, make(options)).pipe(Layer.provide(NodeHttpServer.layerHttpServices))
