import { Effect } from "effect"
import type { HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import type { QueueSettings } from "../../domain/QueueSettings.ts"
import { Queues, type QueuesUnavailable, type QueueView, type TooManyLimits } from "../../ports/Queues.ts"
import { Transport } from "../../ports/Transport.ts"
import { Api } from "./Api.ts"
import * as ApiError from "./ApiError.ts"
import * as Batch from "./Batch.ts"
import { answered } from "./Deadline.ts"
import * as Guard from "./Guard.ts"
import { queueBodyMaxBytes } from "./QueueApi.ts"
import * as QueueBody from "./QueueBody.ts"
import * as Reply from "./Reply.ts"

const replying = <R>(
  effect: Effect.Effect<HttpServerResponse.HttpServerResponse, ApiError.ApiError, R>
): Effect.Effect<HttpServerResponse.HttpServerResponse, never, R> =>
  Effect.catch(effect, (error) => Effect.succeed(Reply.toEffect(Reply.failed(error))))

/** What was refused fails as itself; a value stands for a success. */
const orFail = <A>(value: A | ApiError.ApiError): Effect.Effect<A, ApiError.ApiError> =>
  value instanceof ApiError.ApiError ? Effect.fail(value) : Effect.succeed(value)

const json = (body: unknown) => Reply.toEffect({ status: 200, body: JSON.stringify(body) })

const queue = (view: QueueView) => json(QueueBody.toJson(view))

const unknown = ApiError.make("not_found", "There is no queue of this name: it has had no job, and was never put.")

const isTooMany = (error: TooManyLimits | QueuesUnavailable): error is TooManyLimits => error._tag === "TooManyLimits"

export const layer = HttpApiBuilder.group(
  Api,
  "queues",
  Effect.fn(function*(handlers) {
    const queues = yield* Queues
    const transport = yield* Transport

    const list = Effect.fnUntraced(function*(url: string) {
      const page = yield* Effect.flatMap(orFail(QueueBody.page.parse(url)), (query) => answered(queues.list(query)))
      const last = page.queues.at(-1)
      return json({
        queues: page.queues.map(QueueBody.toJson),
        next_cursor: page.more && last !== undefined ? QueueBody.page.cursorOf(last.name) : null
      })
    })

    const get = Effect.fnUntraced(function*(text: string) {
      const found = yield* Effect.flatMap(orFail(QueueBody.nameOf(text)), (name) => answered(queues.get(name)))
      return found === null ? yield* unknown : queue(found)
    })

    // A courtesy: workers look for themselves some seconds later.
    const wake = transport.wake([{ _tag: "Queues" }, { _tag: "Ready" }]).pipe(
      Effect.timeoutOption("5 seconds"),
      Effect.ignore,
      Effect.forkDetach
    )

    const change = Effect.fnUntraced(function*(text: string, settings: Partial<QueueSettings>) {
      const name = yield* orFail(QueueBody.nameOf(text))
      const put = yield* answered(Effect.catchIf(queues.put(name, settings), isTooMany, Effect.succeed))
      if ("_tag" in put) {
        return yield* ApiError.make(
          "wrong_state",
          `${put.most} queues have a concurrency, and no more may: set it to null for one that does not need it.`,
          "concurrency"
        )
      }
      if (!put.announced) {
        yield* wake
      }
      return queue(put.queue)
    })

    const put = Effect.fnUntraced(function*(text: string, request: HttpServerRequest.HttpServerRequest) {
      const content = yield* orFail(Guard.contentOf(Batch.nodeRequestOf(request)))
      if (content === "ndjson") {
        return yield* ApiError.make("unsupported_media_type", "Send JSON: `Content-Type: application/json`.")
      }
      const body = yield* Batch.readText(request, queueBodyMaxBytes)
      return yield* change(text, yield* orFail(QueueBody.decode(body)))
    })

    return handlers
      .handleRaw("listQueues", ({ request }) => replying(list(request.url)))
      .handleRaw("getQueue", ({ params }) => replying(get(params.name)))
      .handleRaw("putQueue", ({ params, request }) => replying(put(params.name, request)))
      .handleRaw("pauseQueue", ({ params }) => replying(change(params.name, { paused: true })))
      .handleRaw("resumeQueue", ({ params }) => replying(change(params.name, { paused: false })))
  })
)
