import { Effect, Option } from "effect"
import type { HttpServerRequest } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import * as JobId from "../../domain/JobId.ts"
import type { JobState } from "../../domain/JobState.ts"
import { JobStore } from "../../ports/JobStore.ts"
import { Submitter } from "../../ports/Submitter.ts"
import { Transport } from "../../ports/Transport.ts"
import { Api, bodyMaxBytes } from "./Api.ts"
import * as ApiError from "./ApiError.ts"
import * as Batch from "./Batch.ts"
import { answered } from "./Deadline.ts"
import * as HotSubmit from "./HotSubmit.ts"
import * as JobJson from "./JobJson.ts"
import * as ListQuery from "./ListQuery.ts"
import * as Reply from "./Reply.ts"
import { courtesy, orFail, replying, text } from "./Replying.ts"
import * as ReusedKey from "./ReusedKey.ts"
import * as SubmitBody from "./SubmitBody.ts"

/** Jobs that are read at once: each brings its payload and its result along, which are small as text only. */
const readMax = 25

const idOf = (given: string): Effect.Effect<JobId.JobId, ApiError.ApiError> =>
  Option.match(JobId.fromText(given), { onNone: () => Effect.fail(ApiError.notFound), onSome: Effect.succeed })

const refused = (what: string, state: JobState, allowed: string): ApiError.ApiError =>
  ApiError.wrongState(`A job that is ${state} cannot be ${what}; only one that is ${allowed}.`, state)

export const layer = HttpApiBuilder.group(
  Api,
  "jobs",
  Effect.fn(function*(handlers) {
    const store = yield* JobStore
    const submitter = yield* Submitter
    const transport = yield* Transport

    const submit = Effect.fnUntraced(function*(request: HttpServerRequest.HttpServerRequest) {
      const sent = Batch.nodeRequestOf(request)
      const unfit = HotSubmit.refusedBy(sent)
      if (unfit !== null) {
        return yield* unfit
      }
      const key = yield* orFail(SubmitBody.headerKey(HotSubmit.keysOf(sent)))
      const draft = yield* orFail(SubmitBody.decodeText(yield* Batch.readText(request, bodyMaxBytes), key))
      const answer = yield* Effect.mapError(submitter.submit(draft), Reply.unavailable)
      return Reply.toEffect(yield* orFail(yield* ReusedKey.submitted(store, draft, answer)))
    })

    const get = Effect.fnUntraced(function*(given: string) {
      const id = yield* idOf(given)
      const [found] = yield* answered(store.get([id]))
      return found === undefined ? yield* ApiError.notFound : text(JobJson.toText(found))
    })

    /** Newest first. */
    const textsOf = Effect.fnUntraced(function*(ids: ReadonlyArray<JobId.JobId>) {
      const newest = Array.from(new Set(ids)).toSorted().toReversed()
      const texts: Array<string> = []
      for (let at = 0; at < newest.length; at += readMax) {
        const jobs = yield* store.get(newest.slice(at, at + readMax))
        texts.push(...jobs.toSorted((a, b) => a.id < b.id ? 1 : -1).map(JobJson.toText))
      }
      return texts
    })

    const list = Effect.fnUntraced(function*(url: string) {
      const query = yield* orFail(ListQuery.parse(url))
      if ("ids" in query) {
        const jobs = yield* answered(textsOf(query.ids))
        return text(`{"jobs":[${jobs.join(",")}],"next_cursor":null}`)
      }
      const { jobs, next } = yield* answered(store.list(query.request))
      const cursor = next === null ? null : ListQuery.cursorOf(query.filter, next)
      return text(`{"jobs":[${jobs.map(JobJson.toText).join(",")}],"next_cursor":${JSON.stringify(cursor)}}`)
    })

    const cancel = Effect.fnUntraced(function*(given: string) {
      const id = yield* idOf(given)
      const cancelled = yield* answered(store.cancel(id))
      switch (cancelled._tag) {
        case "NotFound":
          return yield* ApiError.notFound
        case "Refused":
          return yield* refused("cancelled", cancelled.state, "pending, failed or running")
        case "Cancelled": {
          const cutOff = cancelled.cutOff
          if (cutOff !== null) {
            yield* courtesy(transport.wake([{ _tag: "Revoked", lease: cutOff.lease, id, epoch: cutOff.epoch }]))
          }
          return text(JobJson.toText(cancelled.job))
        }
      }
    })

    const wakeReady = courtesy(transport.wake([{ _tag: "Ready" }]))

    const retry = Effect.fnUntraced(function*(given: string) {
      const rebooked = yield* Effect.flatMap(idOf(given), (id) => answered(store.retry(id)))
      switch (rebooked._tag) {
        case "NotFound":
          return yield* ApiError.notFound
        case "Refused":
          return yield* refused("retried", rebooked.state, "pending or failed (one that has ended is resubmitted)")
        case "Rebooked":
          yield* wakeReady
          return text(JobJson.toText(rebooked.job))
      }
    })

    const resubmit = Effect.fnUntraced(function*(given: string) {
      const id = yield* idOf(given)
      const as = yield* submitter.drawId
      const resubmitted = yield* answered(store.resubmit(id, as))
      switch (resubmitted._tag) {
        case "NotFound":
          return yield* ApiError.notFound
        case "Refused":
          return yield* refused("resubmitted", resubmitted.state, "dead or completed")
        case "Created":
          yield* wakeReady
          return text(JobJson.toText(resubmitted.job), 201, { location: `/jobs/${resubmitted.job.id}` })
      }
    })

    return handlers
      .handleRaw("submit", ({ request }) => replying(submit(request)))
      .handleRaw(
        "submitBatch",
        ({ request }) =>
          replying(
            Batch.submit(request).pipe(
              Effect.provideService(Submitter, submitter),
              Effect.provideService(JobStore, store)
            )
          )
      )
      .handleRaw("get", ({ params }) => replying(get(params.id)))
      .handleRaw("list", ({ request }) => replying(list(request.url)))
      .handleRaw("cancel", ({ params }) => replying(cancel(params.id)))
      .handleRaw("retry", ({ params }) => replying(retry(params.id)))
      .handleRaw("resubmit", ({ params }) => replying(resubmit(params.id)))
  })
)
