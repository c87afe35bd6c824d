/** The queues as data: a group of `Api.ts`. `QueueBody.ts` decodes what is put, strictly. */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { concurrencyMax } from "../../domain/QueueSettings.ts"
import * as Rank from "../../domain/Rank.ts"
import { always, Count, Error409, Error413, Error415 } from "./ApiShapes.ts"

export const queuesLimitDefault = 100
export const queuesLimitMax = 500
export const queueBodyMaxBytes = 16_384

/** What a client may write for the longest step, and is told in its place. */
export const strict = "strict"

const Step = Schema.Union([
  Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: Rank.stepMaxMs })),
  Schema.Literal(strict)
]).annotate({
  description: "How long a job waits until it is worth one step of priority more; 60000 by default, 0: priorities " +
    "mean nothing, \"strict\": a higher priority always goes first"
})

const Concurrency = Schema.NullOr(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: concurrencyMax })))

export const QueueSettingsBody = Schema.Struct({
  paused: Schema.optionalKey(Schema.Boolean),
  concurrency: Schema.optionalKey(Concurrency).annotate({
    description: "Jobs of the queue that one process holds at once, at most; null: no limit"
  }),
  step_ms: Schema.optionalKey(Step)
}).annotate({ identifier: "QueueSettings" })

export const QueueBody = Schema.Struct({
  name: Schema.String,
  paused: Schema.Boolean,
  concurrency: Schema.NullOr(Schema.Int),
  step_ms: Step,
  created_at_ms: Schema.NullOr(Schema.Int).annotate({
    description: "When it was first put; null where only jobs name it"
  }),
  jobs: Schema.Struct({ pending: Count, running: Count, failed: Count, completed: Count, dead: Count })
}).annotate({ identifier: "Queue" })

const QueueListBody = Schema.Struct({
  queues: Schema.Array(QueueBody),
  next_cursor: Schema.NullOr(Schema.String)
}).annotate({ identifier: "QueueList" })

const Name = { name: Schema.String }
const changeErrors = [...always, Error409] as const

export class Queues extends HttpApiGroup.make("queues").add(
  HttpApiEndpoint.get("listQueues", "/", {
    query: {
      limit: Schema.optionalKey(Schema.NumberFromString),
      cursor: Schema.optionalKey(Schema.String)
    },
    success: QueueListBody,
    error: [...always]
  }).annotate(OpenApi.Summary, "List queues")
    .annotate(OpenApi.Description, "By name, with settings and counts by state."),
  HttpApiEndpoint.get("getQueue", "/:name", { params: Name, success: QueueBody, error: [...always] })
    .annotate(OpenApi.Summary, "Get a queue")
    .annotate(OpenApi.Description, "One queue: it exists once it has a job or was put."),
  HttpApiEndpoint.put("putQueue", "/:name", {
    params: Name,
    payload: QueueSettingsBody,
    success: QueueBody,
    error: [...changeErrors, Error413, Error415]
  }).annotate(OpenApi.Summary, "Change the settings of a queue")
    .annotate(OpenApi.Description, "Changes what it names and leaves the rest as it was. Takes effect at once."),
  HttpApiEndpoint.post("pauseQueue", "/:name/pause", { params: Name, success: QueueBody, error: changeErrors })
    .annotate(OpenApi.Summary, "Pause a queue")
    .annotate(OpenApi.Description, "No further job of it is claimed. What runs goes on."),
  HttpApiEndpoint.post("resumeQueue", "/:name/resume", { params: Name, success: QueueBody, error: changeErrors })
    .annotate(OpenApi.Summary, "Resume a queue")
    .annotate(OpenApi.Description, "What became ready meanwhile is claimed in its order.")
).prefix("/queues") {}
