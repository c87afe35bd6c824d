/**
 * The HTTP surface as data: served by the server, called by clients, printed as OpenAPI.
 *
 * The shapes of requests are written here for documents and clients; the bounds in them are those of the domain.
 * `SubmitBody.ts` decodes what is posted, by hand and strictly, since that is the hot path.
 */
import { Schema, SchemaTransformation } from "effect"
import { HttpApi, HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import manifest from "../../../package.json" with { type: "json" }
import { Backoff, defaults as backoffDefault } from "../../domain/Backoff.ts"
import {
  attemptDefault,
  batchJobsMax,
  DelayMs,
  IdempotencyKey,
  InstantMs,
  JobType,
  MaxAttempts,
  Priority,
  Queue,
  queueDefault,
  RetainMs,
  Tags,
  TimeoutMs
} from "../../domain/Job.ts"
import { DeadReason, JobState } from "../../domain/JobState.ts"
import * as Unique from "../../domain/Unique.ts"
import { always, controlErrors, Count, Error409, Error410, Error422, ErrorBody, submitErrors } from "./ApiShapes.ts"
import { Queues } from "./QueueApi.ts"
import { Name as ScheduleName, Schedules } from "./ScheduleApi.ts"
import { Workers } from "./WorkersApi.ts"

export const listLimitDefault = 50
export const listLimitMax = 500
export const listOffsetMax = 10_000
export const listIdsMax = 200
export const ndjsonLinesMax = 100_000
/** Of one job with everything around its payload. */
export const bodyMaxBytes = 1_048_576 + 65_536

export const NewJobBody = Schema.Struct({
  type: JobType,
  payload: Schema.optionalKey(Schema.Json),
  queue: Schema.optionalKey(Queue).annotate({ description: `${queueDefault} by default` }),
  priority: Schema.optionalKey(Priority).annotate({ description: "Higher goes first; 0 by default" }),
  max_attempts: Schema.optionalKey(MaxAttempts).annotate({
    description: `Runs that may end in failure, the first included; ${attemptDefault} by default`
  }),
  run_at_ms: Schema.optionalKey(Schema.NullOr(InstantMs)).annotate({
    description: "When it is due, in milliseconds since the epoch by the database's clock; now by default"
  }),
  delay_ms: Schema.optionalKey(Schema.NullOr(DelayMs)).annotate({
    description: "In place of run_at_ms: how long after it is stored it is due, by the database's clock"
  }),
  backoff: Schema.optionalKey(Backoff).annotate({
    description:
      "How long it waits after a failure: drawn from zero up to delay_ms, or up to base_ms, twice that, four " +
      `times that … cap_ms; ${JSON.stringify(backoffDefault)} by default`
  }),
  timeout_ms: Schema.optionalKey(Schema.NullOr(TimeoutMs)).annotate({
    description: "How long an attempt may take before it is interrupted and has failed; no limit by default"
  }),
  tags: Schema.optionalKey(Tags),
  idempotency_key: Schema.optionalKey(IdempotencyKey),
  start_by_ms: Schema.optionalKey(Schema.NullOr(InstantMs)).annotate({
    description: "A job that no worker has taken by then is dead, with the reason expired"
  }),
  retain_ms: Schema.optionalKey(Schema.NullOr(RetainMs)).annotate({
    description: "How long it is kept after its end; 0 deletes it soon after"
  }),
  unique: Schema.optionalKey(Schema.NullOr(Schema.Struct({
    fields: Schema.optionalKey(Schema.NullOr(
      Schema.Array(Unique.UniqueField).check(Schema.isBetweenLength(1, Unique.fieldMax))
    )),
    window_ms: Schema.optionalKey(Schema.NullOr(Unique.WindowMs)),
    states: Schema.optionalKey(Schema.Array(JobState).check(Schema.isBetweenLength(1, 5))),
    on_conflict: Schema.optionalKey(Unique.OnConflict)
  }))).annotate({
    description: "At most one job of the type with the same payload, or the same of these fields of it"
  })
}).annotate({ identifier: "NewJob" })

const JobErrorBody = Schema.Struct({
  attempt: Count,
  epoch: Count,
  worker: Schema.String,
  claimed_at_ms: Schema.Int,
  at_ms: Schema.Int,
  name: Schema.String,
  message: Schema.String
})

const JobEventBody = Schema.Struct({
  kind: Schema.Literals(["lease_lost", "released", "stale_write", "cancel_requested", "retried"]),
  epoch: Count,
  worker: Schema.NullOr(Schema.String),
  at_ms: Schema.Int,
  claimed_at_ms: Schema.optionalKey(Schema.Int),
  last_seen_ms: Schema.optionalKey(Schema.Int),
  counted: Schema.optionalKey(Schema.Boolean),
  outcome: Schema.optionalKey(Schema.String),
  current_epoch: Schema.optionalKey(Schema.Int)
})

const JobLogBody = Schema.Struct({ attempt: Count, at_ms: Schema.Int, line: Schema.String })

export const JobBody = Schema.Struct({
  id: Schema.String,
  type: Schema.String,
  queue: Schema.String,
  priority: Schema.Int,
  state: JobState,
  payload: Schema.Json,
  tags: Schema.Array(Schema.String),
  attempts: Count,
  max_attempts: Count,
  backoff: Backoff,
  timeout_ms: Schema.NullOr(Schema.Int),
  start_by_ms: Schema.NullOr(Schema.Int),
  retain_ms: Schema.NullOr(Schema.Int),
  unique: Schema.NullOr(Unique.Unique),
  run_at_ms: Schema.Int,
  created_at_ms: Schema.Int,
  started_at_ms: Schema.NullOr(Schema.Int),
  finished_at_ms: Schema.NullOr(Schema.Int),
  worker: Schema.NullOr(Schema.String),
  epoch: Count,
  deliveries: Count,
  lease_losses: Count,
  stale_writes: Count,
  reason: Schema.NullOr(DeadReason),
  result: Schema.Json,
  errors: Schema.Array(JobErrorBody),
  errors_omitted: Count,
  events: Schema.Array(JobEventBody),
  events_omitted: Count,
  progress: Schema.Json.annotate({ description: "What the handler said last about how far it is" }),
  logs: Schema.Array(JobLogBody).annotate({ description: "The newest lines that handlers have logged" }),
  logs_omitted: Count,
  resubmitted_from: Schema.NullOr(Schema.String),
  resubmitted_as: Schema.NullOr(Schema.String),
  schedule: Schema.NullOr(Schema.String).annotate({ description: "The schedule that made it" }),
  tick_ms: Schema.NullOr(Schema.Int).annotate({ description: "Which tick of the schedule; null if it was run by hand" })
}).annotate({ identifier: "Job" })

const BatchBody = Schema.Struct({
  jobs: Schema.Array(JobBody),
  // A server of before does not say it, and what it stored must not look like a failure.
  outcomes: Schema.optionalKey(
    Schema.Array(Schema.Literals(["created", "replayed", "skipped"])).annotate({
      description: "Of each job: stored by this request, or there before, by its key or as a unique one"
    })
  )
}).annotate({ identifier: "Jobs" })

const LineBody = Schema.Union([
  Schema.Struct({ line: Schema.Int, status: Schema.Int, job: JobBody }),
  Schema.Struct({ line: Schema.Int, status: Schema.Int, error: ErrorBody.fields.error })
]).annotate({ identifier: "Line" })

const ListBody = Schema.Struct({
  jobs: Schema.Array(JobBody),
  next_cursor: Schema.NullOr(Schema.String)
}).annotate({ identifier: "JobList" })

const Numbers = Schema.Record(Schema.String, Schema.Int)

const StatsBody = Schema.Struct({
  version: Schema.String,
  profile: Schema.String,
  adapters: Schema.Record(Schema.String, Schema.String),
  jobs: Schema.Struct({ by_state: Numbers, by_type: Numbers, by_queue: Numbers }),
  oldest_ready_ms: Schema.NullOr(Schema.Int).annotate({
    description: "How long the oldest job that may start has been due, paused queues left out; null where none may"
  }),
  as_of_ms: Schema.Int.annotate({
    description: "When all of this was read, by the database's clock: up to 5 s ago, shared by all who ask"
  }),
  counters: Numbers,
  unhandled: Numbers.annotate({
    description: "Waiting jobs by type, of the types that no process has a handler for; at most 100 types"
  }),
  workers: Schema.Array(Schema.Struct({
    name: Schema.String,
    role: Schema.Literals(["server", "worker", "http"]),
    version: Schema.String,
    handlers: Schema.Array(Schema.String),
    slots: Schema.Int,
    running: Schema.Int,
    runaways: Schema.Int,
    draining: Schema.Boolean,
    started_at_ms: Schema.Int,
    seen_at_ms: Schema.Int
  }))
}).annotate({ identifier: "Stats" })

const ReadyFields = {
  ready: Schema.Boolean,
  reasons: Schema.Array(Schema.String),
  degraded: Schema.Array(Schema.String),
  loops: Schema.Record(Schema.String, Schema.Struct({ last_ok_ms_ago: Schema.NullOr(Schema.Int) })),
  services: Schema.Record(Schema.String, Schema.Literals(["up", "away"]))
}
const ReadyBody = Schema.Struct(ReadyFields).annotate({ identifier: "Ready" })
const NotReadyBody = Schema.Struct(ReadyFields).annotate({ identifier: "NotReady" }).pipe(HttpApiSchema.status(503))

const Id = { id: Schema.String }
const IdempotencyHeader = Schema.Struct({
  "idempotency-key": Schema.optionalKey(Schema.String).annotate({
    description: "1 to 255 printable ASCII characters; a quoted form counts as the bare one"
  })
})

/** A number in a query. What is said of it is said of the text: the document describes what is sent. */
const numeral = (description: string) =>
  Schema.String.annotate({ description }).pipe(
    Schema.decodeTo(Schema.Number, SchemaTransformation.numberFromString)
  )

export class Jobs extends HttpApiGroup.make("jobs").add(
  HttpApiEndpoint.post("submit", "/", {
    headers: IdempotencyHeader,
    payload: NewJobBody,
    success: [
      JobBody.pipe(HttpApiSchema.status(201)),
      JobBody.annotate({
        description: "A recognised repeat, with Idempotent-Replayed: true; or, with Deadman-Unique: skipped, the job " +
          "that stands in the way of a unique one"
      })
    ],
    error: submitErrors
  }).annotate(OpenApi.Summary, "Submit a job").annotate(OpenApi.Description, "A 2xx is given after the commit."),
  HttpApiEndpoint.post("submitBatch", "/batch", {
    payload: [
      Schema.Array(NewJobBody).check(Schema.isBetweenLength(1, batchJobsMax)),
      HttpApiSchema.StreamNdjson({ schema: NewJobBody })
    ],
    success: [BatchBody.pipe(HttpApiSchema.status(201)), HttpApiSchema.StreamNdjson({ schema: LineBody })],
    error: submitErrors
  }).annotate(OpenApi.Summary, "Submit many jobs")
    .annotate(OpenApi.Description, "An array is stored as a whole or not at all; NDJSON is answered line by line."),
  HttpApiEndpoint.get("get", "/:id", { params: Id, success: JobBody, error: [...always] })
    .annotate(OpenApi.Summary, "Get a job")
    .annotate(OpenApi.Description, "One job, with its errors, events and counters."),
  HttpApiEndpoint.get("list", "/", {
    query: {
      state: Schema.optionalKey(JobState),
      type: Schema.optionalKey(Schema.String),
      queue: Schema.optionalKey(Schema.String),
      tag: Schema.optionalKey(Schema.String).annotate({ description: "Those that have this tag, maybe among others" }),
      limit: Schema.optionalKey(numeral(`${listLimitDefault} by default, ${listLimitMax} at most`)),
      offset: Schema.optionalKey(numeral(`How many to pass over, ${listOffsetMax} at most: a cursor goes further`)),
      cursor: Schema.optionalKey(Schema.String).annotate({
        description: "The next_cursor of an earlier page"
      }),
      id: Schema.optionalKey(Schema.String).annotate({
        description: `In place of all the others: up to ${listIdsMax} ids with commas between. Those that are not ` +
          "there are left out"
      })
    },
    success: ListBody,
    error: [...always]
  }).annotate(OpenApi.Summary, "List jobs").annotate(
    OpenApi.Description,
    "Newest first. A page examines a bounded number of rows and shows 16 MiB at most, so it may be short: go on while " +
      "next_cursor is not null. Or the jobs of ids " +
      "that are given."
  ),
  HttpApiEndpoint.delete("cancel", "/:id", { params: Id, success: JobBody, error: controlErrors })
    .annotate(OpenApi.Summary, "Cancel a job")
    .annotate(OpenApi.Description, "Moves a waiting or a running job to dead (cancelled)."),
  HttpApiEndpoint.post("retry", "/:id/retry", { params: Id, success: JobBody, error: controlErrors })
    .annotate(OpenApi.Summary, "Retry a job now")
    .annotate(OpenApi.Description, "Re-books a pending or failed job for now."),
  HttpApiEndpoint.post("resubmit", "/:id/resubmit", {
    params: Id,
    success: JobBody.pipe(HttpApiSchema.status(201)),
    error: controlErrors
  }).annotate(OpenApi.Summary, "Resubmit a job that has ended")
    .annotate(OpenApi.Description, "A new job from a dead or completed one, linked to it.")
).prefix("/jobs") {}

/** Here, where the shape of a job is. */
const runSchedule = HttpApiEndpoint.post("runSchedule", "/schedules/:name/run", {
  params: ScheduleName,
  headers: IdempotencyHeader,
  success: [
    JobBody.pipe(HttpApiSchema.status(201)),
    JobBody.annotate({ description: "A recognised repeat, with Idempotent-Replayed: true" })
  ],
  error: [...always, Error409, Error410, Error422]
}).annotate(OpenApi.Summary, "Run a schedule now")
  .annotate(OpenApi.Description, "Makes a job now, also while it is paused. Its ticks stay as they are.")

export class System extends HttpApiGroup.make("system", { topLevel: true }).add(
  HttpApiEndpoint.get("stats", "/stats", { success: StatsBody, error: [...always] })
    .annotate(OpenApi.Summary, "Count jobs and list processes")
    .annotate(OpenApi.Description, "Counts, counters and workers; at most 5 s behind."),
  HttpApiEndpoint.get("metrics", "/metrics", {
    success: Schema.String.pipe(HttpApiSchema.asText({ contentType: "text/plain" })),
    error: [...always]
  }).annotate(OpenApi.Summary, "Get the metrics of this process").annotate(OpenApi.Description, "Prometheus text."),
  HttpApiEndpoint.get("health", "/health", { success: Schema.Struct({ status: Schema.Literal("alive") }) })
    .annotate(OpenApi.Summary, "Ask whether this process is alive")
    .annotate(OpenApi.Description, "The process is alive. Asks for no token."),
  HttpApiEndpoint.get("ready", "/ready", { success: ReadyBody, error: [NotReadyBody, ...always.slice(0, 3)] })
    .annotate(OpenApi.Summary, "Ask whether this process is ready")
    .annotate(OpenApi.Description, "Whether each loop has made progress and the services answer.")
) {}

export class Api
  extends HttpApi.make("deadman").add(Jobs).add(Queues).add(Schedules.add(runSchedule)).add(Workers).add(System)
    .annotateMerge(OpenApi.annotations({
      title: "Deadman",
      version: manifest.version,
      description: "A distributed job scheduler. JSON in snake_case; every timestamp is milliseconds since the epoch.",
      // The token is asked for by the guard in front of every route, so no single endpoint declares it.
      transform: (spec) => ({
        ...spec,
        components: { ...spec["components"], securitySchemes: { token: { type: "http", scheme: "bearer" } } },
        security: [{}, { token: [] }]
      })
    }))
{}
