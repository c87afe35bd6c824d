/** The schedules as data: a group of `Api.ts`. `ScheduleBody.ts` decodes what is put, strictly. */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Backoff } from "../../domain/Backoff.ts"
import { textMax } from "../../domain/Cron.ts"
import { attemptDefault, JobType, MaxAttempts, Priority, Queue, RetainMs, Tags, TimeoutMs } from "../../domain/Job.ts"
import { everyMaxMs, everyMinMs, missedAllMax, nextShown, overlaps } from "../../domain/Schedule.ts"
import { always, Error413, Error415 } from "./ApiShapes.ts"

export const schedulesLimitDefault = 50
export const schedulesLimitMax = 500

const Missed = Schema.Union([
  Schema.Literals(["skip", "latest"]),
  Schema.Struct({ all: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: missedAllMax })) })
]).annotate({
  description:
    "What becomes of ticks that no server was there for: none of them fires, the newest one does if nothing " +
    "newer is on time, or the newest so many; latest by default"
})

const Overlap = Schema.Literals(overlaps).annotate({
  description:
    "What a tick does while the schedule's job before is not final: make another, make none, or cancel that " +
    "one; allow by default"
})

export const NewScheduleBody = Schema.Struct({
  cron: Schema.optionalKey(Schema.String.check(Schema.isMaxLength(textMax))).annotate({
    description: "Five fields: minute, hour, day of month, month, day of week"
  }),
  zone: Schema.optionalKey(Schema.String).annotate({
    description: "Whose clocks cron goes by, of the IANA list; UTC by default"
  }),
  every_ms: Schema.optionalKey(Schema.Int.check(Schema.isBetween({ minimum: everyMinMs, maximum: everyMaxMs })))
    .annotate({ description: "In place of cron: at the multiples of this length since the epoch" }),
  type: JobType,
  payload: Schema.optionalKey(Schema.Json),
  queue: Schema.optionalKey(Queue),
  priority: Schema.optionalKey(Priority),
  max_attempts: Schema.optionalKey(MaxAttempts).annotate({ description: `${attemptDefault} by default` }),
  backoff: Schema.optionalKey(Backoff),
  timeout_ms: Schema.optionalKey(Schema.NullOr(TimeoutMs)),
  retain_ms: Schema.optionalKey(Schema.NullOr(RetainMs)).annotate({
    description: "How long its jobs are kept after their end; 0 deletes them soon after"
  }),
  tags: Schema.optionalKey(Tags),
  missed: Schema.optionalKey(Missed),
  overlap: Schema.optionalKey(Overlap),
  paused: Schema.optionalKey(Schema.Boolean).annotate({
    description: "Left as it is where nothing is said; a new one is not paused"
  })
}).annotate({ identifier: "NewSchedule" })

export const ScheduleBody = Schema.Struct({
  name: Schema.String,
  cron: Schema.NullOr(Schema.String),
  zone: Schema.NullOr(Schema.String),
  every_ms: Schema.NullOr(Schema.Int),
  type: Schema.String,
  payload: Schema.Json,
  queue: Schema.String,
  priority: Schema.Int,
  max_attempts: Schema.Int,
  backoff: Backoff,
  timeout_ms: Schema.NullOr(Schema.Int),
  retain_ms: Schema.NullOr(Schema.Int),
  tags: Schema.Array(Schema.String),
  missed: Missed,
  overlap: Overlap,
  paused: Schema.Boolean,
  created_at_ms: Schema.Int,
  updated_at_ms: Schema.Int,
  last_fire_ms: Schema.NullOr(Schema.Int).annotate({ description: "The newest tick of which a job was made" }),
  next_fires_ms: Schema.Array(Schema.Int).annotate({ description: `The next ${nextShown}; none while it is paused` }),
  last_job: Schema.NullOr(Schema.String).annotate({ description: "The job that it made last" })
}).annotate({ identifier: "Schedule" })

const ScheduleListBody = Schema.Struct({
  schedules: Schema.Array(ScheduleBody),
  next_cursor: Schema.NullOr(Schema.String)
}).annotate({ identifier: "ScheduleList" })

export const Name = { name: Schema.String }

export class Schedules extends HttpApiGroup.make("schedules").add(
  HttpApiEndpoint.get("listSchedules", "/", {
    query: {
      limit: Schema.optionalKey(Schema.NumberFromString),
      cursor: Schema.optionalKey(Schema.String)
    },
    success: ScheduleListBody,
    error: [...always]
  }).annotate(OpenApi.Summary, "List schedules").annotate(OpenApi.Description, "By name."),
  HttpApiEndpoint.get("getSchedule", "/:name", { params: Name, success: ScheduleBody, error: [...always] })
    .annotate(OpenApi.Summary, "Get a schedule")
    .annotate(OpenApi.Description, "One schedule, with its next ticks."),
  HttpApiEndpoint.put("putSchedule", "/:name", {
    params: Name,
    payload: NewScheduleBody,
    success: [ScheduleBody.pipe(HttpApiSchema.status(201)), ScheduleBody],
    error: [...always, Error413, Error415]
  }).annotate(OpenApi.Summary, "Put a schedule").annotate(
    OpenApi.Description,
    "Stores the whole of a schedule. The same timing again changes nothing of what is booked; another timing fires " +
      "first at its first tick after now."
  ),
  HttpApiEndpoint.delete("deleteSchedule", "/:name", {
    params: Name,
    success: HttpApiSchema.NoContent,
    error: [...always]
  }).annotate(OpenApi.Summary, "Delete a schedule")
    .annotate(OpenApi.Description, "It fires no more. The jobs that it made stay."),
  HttpApiEndpoint.post("pauseSchedule", "/:name/pause", { params: Name, success: ScheduleBody, error: [...always] })
    .annotate(OpenApi.Summary, "Pause a schedule")
    .annotate(OpenApi.Description, "It does not fire until it is resumed."),
  HttpApiEndpoint.post("resumeSchedule", "/:name/resume", { params: Name, success: ScheduleBody, error: [...always] })
    .annotate(OpenApi.Summary, "Resume a schedule")
    .annotate(OpenApi.Description, "It fires from its first tick after now on; what lay in the pause was not missed.")
).prefix("/schedules") {}
