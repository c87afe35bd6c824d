import { Effect } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import type { JobState } from "../../domain/JobState.ts"
import type { Schedule, ScheduleName } from "../../domain/Schedule.ts"
import { type CutOff, Schedules, type SchedulesUnavailable } from "../../ports/Schedules.ts"
import { Submitter } from "../../ports/Submitter.ts"
import { Transport, type TransportUnavailable } from "../../ports/Transport.ts"
import { Api, bodyMaxBytes } from "./Api.ts"
import * as ApiError from "./ApiError.ts"
import * as Batch from "./Batch.ts"
import { answered } from "./Deadline.ts"
import * as Guard from "./Guard.ts"
import { keysOf } from "./HotSubmit.ts"
import * as JobJson from "./JobJson.ts"
import * as Reply from "./Reply.ts"
import * as ScheduleBody from "./ScheduleBody.ts"
import * as SubmitBody from "./SubmitBody.ts"

const replying = <R>(
  effect: Effect.Effect<HttpServerResponse.HttpServerResponse, ApiError.ApiError, R>
): Effect.Effect<HttpServerResponse.HttpServerResponse, never, R> =>
  Effect.catch(effect, (error) => Effect.succeed(Reply.toEffect(Reply.failed(error))))

/** What was refused fails as itself; a value stands for a success. */
const orFail = <A>(value: A | ApiError.ApiError): Effect.Effect<A, ApiError.ApiError> =>
  value instanceof ApiError.ApiError ? Effect.fail(value) : Effect.succeed(value)

const json = (body: unknown, status = 200, headers?: Record<string, string>) =>
  Reply.toEffect({ status, body: JSON.stringify(body), headers })

const unknown = ApiError.make("not_found", "There is no schedule of this name.")

const overlaps = (job: string, state: JobState) =>
  ApiError.wrongState(
    `The schedule's job ${job} is not final, and its overlap is "skip": wait for that job, or cancel it.`,
    state
  )

const courtesy = (effect: Effect.Effect<void, TransportUnavailable>) =>
  effect.pipe(Effect.timeoutOption("5 seconds"), Effect.ignore, Effect.forkDetach)

export const layer = HttpApiBuilder.group(
  Api,
  "schedules",
  Effect.fn(function*(handlers) {
    const schedules = yield* Schedules
    const submitter = yield* Submitter
    const transport = yield* Transport

    const list = Effect.fnUntraced(function*(url: string) {
      const page = yield* Effect.flatMap(
        orFail(ScheduleBody.page.parse(url)),
        (request) => answered(schedules.list(request))
      )
      return json({
        schedules: page.schedules.map(ScheduleBody.toJson),
        next_cursor: page.next === null ? null : ScheduleBody.page.cursorOf(page.next)
      })
    })

    const shown = (
      text: string,
      ask: (name: ScheduleName) => Effect.Effect<Schedule | null, SchedulesUnavailable>
    ) =>
      Effect.gen(function*() {
        const found = yield* Effect.flatMap(orFail(ScheduleBody.nameOf(text)), (name) => answered(ask(name)))
        return found === null ? yield* unknown : json(ScheduleBody.toJson(found))
      })

    const put = Effect.fnUntraced(function*(text: string, request: HttpServerRequest.HttpServerRequest) {
      const name = yield* orFail(ScheduleBody.nameOf(text))
      const content = yield* orFail(Guard.contentOf(Batch.nodeRequestOf(request)))
      if (content === "ndjson") {
        return yield* ApiError.make("unsupported_media_type", "Send JSON: `Content-Type: application/json`.")
      }
      const wanted = yield* orFail(ScheduleBody.decode(name, yield* Batch.readText(request, bodyMaxBytes)))
      const { created, schedule } = yield* answered(schedules.put(wanted))
      return json(ScheduleBody.toJson(schedule), created ? 201 : 200)
    })

    const remove = Effect.fnUntraced(function*(text: string) {
      const removed = yield* Effect.flatMap(
        orFail(ScheduleBody.nameOf(text)),
        (name) => answered(schedules.remove(name))
      )
      return removed ? HttpServerResponse.empty({ status: 204 }) : yield* unknown
    })

    /** Its worker learns of it with its next heartbeat at the latest. */
    const tell = (cancelled: CutOff | null) =>
      cancelled === null || cancelled.cutOff === null
        ? Effect.void
        : courtesy(transport.wake([{ _tag: "Revoked", id: cancelled.id, ...cancelled.cutOff }]))

    const run = Effect.fnUntraced(function*(text: string, request: HttpServerRequest.HttpServerRequest) {
      const name = yield* orFail(ScheduleBody.nameOf(text))
      const key = yield* orFail(SubmitBody.headerKey(keysOf(Batch.nodeRequestOf(request))))
      const id = yield* submitter.drawId
      const ran = yield* answered(schedules.run(name, id, key === null ? null : ScheduleBody.runKey(name, key)))
      switch (ran._tag) {
        case "NotFound":
          return yield* unknown
        case "Overlaps":
          return yield* overlaps(ran.job, ran.state)
        case "KeyMismatch":
          return yield* Reply.keyReused
        case "Replayed":
          return ran.job === null
            ? yield* Reply.keyGone
            : json(JobJson.toJson(ran.job), 200, Reply.repeatHeaders)
        case "Ran":
          yield* tell(ran.cancelled)
          if (!ran.announced) {
            yield* courtesy(transport.wake([{ _tag: "Ready" }]))
          }
          return json(JobJson.toJson(ran.job), 201, { location: `/jobs/${ran.job.id}` })
      }
    })

    return handlers
      .handleRaw("listSchedules", ({ request }) => replying(list(request.url)))
      .handleRaw("getSchedule", ({ params }) => replying(shown(params.name, schedules.get)))
      .handleRaw("putSchedule", ({ params, request }) => replying(put(params.name, request)))
      .handleRaw("deleteSchedule", ({ params }) => replying(remove(params.name)))
      .handleRaw("pauseSchedule", ({ params }) => replying(shown(params.name, schedules.pause)))
      .handleRaw("resumeSchedule", ({ params }) => replying(shown(params.name, schedules.resume)))
      .handleRaw("runSchedule", ({ params, request }) => replying(run(params.name, request)))
  })
)
