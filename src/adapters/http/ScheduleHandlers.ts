import { Effect } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import type { JobState } from "../../domain/JobState.ts"
import type { Schedule, ScheduleName } from "../../domain/Schedule.ts"
import { type CutOff, Schedules, type SchedulesUnavailable } from "../../ports/Schedules.ts"
import { Submitter } from "../../ports/Submitter.ts"
import { Transport } from "../../ports/Transport.ts"
import { Api, bodyMaxBytes } from "./Api.ts"
import * as ApiError from "./ApiError.ts"
import * as Batch from "./Batch.ts"
import { answered } from "./Deadline.ts"
import { keysOf } from "./HotSubmit.ts"
import * as JobJson from "./JobJson.ts"
import * as Reply from "./Reply.ts"
import { courtesy, json, orFail, readJson, replying } from "./Replying.ts"
import * as ScheduleBody from "./ScheduleBody.ts"
import * as SubmitBody from "./SubmitBody.ts"

const unknown = ApiError.make("not_found", "There is no schedule of this name.")

const overlaps = (job: string, state: JobState) =>
  ApiError.wrongState(
    `The schedule's job ${job} is not final, and its overlap is "skip": wait for that job, or cancel it.`,
    state
  )

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
      const wanted = yield* orFail(ScheduleBody.decode(name, yield* readJson(request, bodyMaxBytes)))
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
