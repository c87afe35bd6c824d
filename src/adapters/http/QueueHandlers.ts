import { Effect } from "effect"
import type { HttpServerRequest } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import type { QueueSettings } from "../../domain/QueueSettings.ts"
import { Queues, type QueuesUnavailable, type QueueView, type TooManyLimits } from "../../ports/Queues.ts"
import { Transport } from "../../ports/Transport.ts"
import { Api } from "./Api.ts"
import * as ApiError from "./ApiError.ts"
import { answered } from "./Deadline.ts"
import { queueBodyMaxBytes } from "./QueueApi.ts"
import * as QueueBody from "./QueueBody.ts"
import { courtesy, json, orFail, readJson, replying } from "./Replying.ts"

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
        yield* courtesy(transport.wake([{ _tag: "Queues" }, { _tag: "Ready" }]))
      }
      return queue(put.queue)
    })

    const put = Effect.fnUntraced(function*(text: string, request: HttpServerRequest.HttpServerRequest) {
      return yield* change(text, yield* orFail(QueueBody.decode(yield* readJson(request, queueBodyMaxBytes))))
    })

    return handlers
      .handleRaw("listQueues", ({ request }) => replying(list(request.url)))
      .handleRaw("getQueue", ({ params }) => replying(get(params.name)))
      .handleRaw("putQueue", ({ params, request }) => replying(put(params.name, request)))
      .handleRaw("pauseQueue", ({ params }) => replying(change(params.name, { paused: true })))
      .handleRaw("resumeQueue", ({ params }) => replying(change(params.name, { paused: false })))
  })
)
