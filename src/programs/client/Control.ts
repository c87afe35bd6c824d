/** Queues, schedules and figures from within a program: what HTTP offers, without HTTP. */
import { Effect } from "effect"
import type * as StoredSchedule from "../../domain/Schedule.ts"
import { JobStore, type JobStoreUnavailable } from "../../ports/JobStore.ts"
import { Queues, type QueuesUnavailable, type QueueView, type TooManyLimits } from "../../ports/Queues.ts"
import { Schedules, type SchedulesUnavailable } from "../../ports/Schedules.ts"
import { Sessions, type SessionsUnavailable } from "../../ports/Sessions.ts"
import { Submitter } from "../../ports/Submitter.ts"
import { Transport } from "../../ports/Transport.ts"
import * as Bodies from "./Bodies.ts"
import * as Casing from "./Casing.ts"
import type { PageOptions, QueueChange, QueuePage, RunOptions, ScheduleEntry, SchedulePage, Stats } from "./Contract.ts"
import { ScheduleNotFound, type SubmitRefused, WrongState } from "./Contract.ts"
import { Drafts } from "./Drafts.ts"
import * as Views from "./Views.ts"

type OfQueues<A, E = never> = Effect.Effect<A, SubmitRefused | QueuesUnavailable | E>
type OfSchedules<A, E = never> = Effect.Effect<A, SubmitRefused | SchedulesUnavailable | E>

export interface QueueControl {
  /** By name, with settings and counts by state. */
  readonly list: (options?: PageOptions) => OfQueues<QueuePage>
  /** A queue exists once it has a job or was put; else it is `null`. */
  readonly get: (name: string) => OfQueues<QueueView | null>
  /** Changes what it names, and leaves the rest as it was. */
  readonly set: (name: string, change: QueueChange) => OfQueues<QueueView, TooManyLimits>
  /** No further job of it is claimed. What runs goes on. */
  readonly pause: (name: string) => OfQueues<QueueView, TooManyLimits>
  readonly resume: (name: string) => OfQueues<QueueView, TooManyLimits>
}

export interface ScheduleControl {
  /** Stores a schedule under its name, or changes it. */
  readonly put: (name: string, entry: ScheduleEntry) => OfSchedules<Views.Schedule>
  readonly get: (name: string) => OfSchedules<Views.Schedule | null>
  /** By name. */
  readonly list: (options?: PageOptions) => OfSchedules<SchedulePage>
  readonly pause: (name: string) => OfSchedules<Views.Schedule, ScheduleNotFound>
  /** It goes on from its first tick after now on. */
  readonly resume: (name: string) => OfSchedules<Views.Schedule, ScheduleNotFound>
  /** Makes a job now, also while it is paused. Its ticks stay as they are. */
  readonly run: (name: string, options?: RunOptions) => OfSchedules<Views.Job, ScheduleNotFound | WrongState>
  /** Removes it, and says whether there was one. Its jobs stay. */
  readonly delete: (name: string) => OfSchedules<boolean>
}

const pageDefault = 100
const pageMax = 500

const limitOf = ({ limit = pageDefault }: PageOptions): number => Math.min(Math.max(1, Math.floor(limit) || 1), pageMax)

const hintWithin = "5 seconds"
/** A process that has not reported for this long is not listed. */
const staleMs = 15_000

export const make = Effect.gen(function*() {
  const store = yield* JobStore
  const queues = yield* Queues
  const schedules = yield* Schedules
  const sessions = yield* Sessions
  const submitter = yield* Submitter
  const transport = yield* Transport
  const drafts = yield* Drafts

  const hint = (wakes: Parameters<typeof transport.wake>[0]) =>
    transport.wake(wakes).pipe(Effect.timeoutOption(hintWithin), Effect.ignore, Effect.forkDetach)

  const queueName = (name: string) => Effect.fromResult(drafts.readQueueName(name))
  const scheduleName = (name: string) => Effect.fromResult(drafts.readScheduleName(name))

  const set: QueueControl["set"] = Effect.fnUntraced(function*(text, change) {
    const name = yield* queueName(text)
    const settings = yield* Effect.fromResult(drafts.readQueue(yield* Bodies.ofQueue(change)))
    const { announced, queue } = yield* queues.put(name, settings)
    if (!announced) {
      yield* hint([{ _tag: "Queues" }, { _tag: "Ready" }])
    }
    return queue
  })

  const listQueues: QueueControl["list"] = Effect.fnUntraced(function*(options = {}) {
    const after = options.after === undefined ? null : yield* queueName(options.after)
    const { more, queues: page } = yield* queues.list({ limit: limitOf(options), after })
    return { queues: page, next: more ? page.at(-1)?.name ?? null : null }
  })

  const put: ScheduleControl["put"] = Effect.fnUntraced(function*(name, entry) {
    const wanted = yield* Effect.fromResult(drafts.readSchedule(name, yield* Bodies.ofSchedule(entry)))
    return Views.ofSchedule((yield* schedules.put(wanted)).schedule)
  })

  const listSchedules: ScheduleControl["list"] = Effect.fnUntraced(function*(options = {}) {
    const after = options.after === undefined ? null : yield* scheduleName(options.after)
    const { next, schedules: page } = yield* schedules.list({ limit: limitOf(options), after })
    return { schedules: page.map(Views.ofSchedule), next }
  })

  const getSchedule: ScheduleControl["get"] = Effect.fnUntraced(function*(name) {
    const found = yield* Effect.flatMap(scheduleName(name), schedules.get)
    return found === null ? null : Views.ofSchedule(found)
  })

  const changed = (
    ask: (name: StoredSchedule.ScheduleName) => Effect.Effect<StoredSchedule.Schedule | null, SchedulesUnavailable>
  ) =>
    Effect.fnUntraced(function*(name: string) {
      const found = yield* Effect.flatMap(scheduleName(name), ask)
      return Views.ofSchedule(found ?? (yield* new ScheduleNotFound({ name })))
    })

  const run: ScheduleControl["run"] = Effect.fnUntraced(function*(name, { idempotencyKey } = {}) {
    const id = yield* submitter.drawId
    const wanted = yield* Effect.fromResult(drafts.readRun(name, idempotencyKey ?? null))
    const ran = yield* schedules.run(wanted.name, id, wanted.key)
    switch (ran._tag) {
      case "NotFound":
        return yield* new ScheduleNotFound({ name })
      case "Overlaps":
        return yield* new WrongState({
          state: ran.state,
          message: `the schedule's job ${ran.job} is not final, and its overlap is "skip": wait for it, or cancel it`
        })
      case "KeyMismatch":
        return yield* Bodies.refuse(
          `this idempotencyKey was used for another request, whose job is ${ran.job}: use one key per request`,
          "idempotencyKey"
        )
      case "Replayed":
        return Views.ofJob(
          ran.job ?? (yield* Bodies.refuse(
            "the job of this idempotencyKey was pruned: use a new key to run it again",
            "idempotencyKey"
          ))
        )
      case "Ran":
        if (ran.cancelled?.cutOff) {
          yield* hint([{ _tag: "Revoked", id: ran.cancelled.id, ...ran.cancelled.cutOff }])
        }
        if (!ran.announced) {
          yield* hint([{ _tag: "Ready" }])
        }
        return Views.ofJob(ran.job)
    }
  })

  const stats: Effect.Effect<Stats, JobStoreUnavailable | SessionsUnavailable> = Effect.gen(function*() {
    const { pendingByType: _, ...counts } = yield* store.counts
    const counters = yield* sessions.totals
    const listed = yield* sessions.list(staleMs)
    return {
      ...counts,
      counters: Casing.camelFields(counters) as Stats["counters"],
      workers: listed.map(({ counters: _, ...worker }) => worker)
    }
  })

  return {
    queues: {
      list: listQueues,
      get: (name) => Effect.flatMap(queueName(name), queues.get),
      set,
      pause: (name) => set(name, { paused: true }),
      resume: (name) => set(name, { paused: false })
    } satisfies QueueControl as QueueControl,
    schedules: {
      put,
      get: getSchedule,
      list: listSchedules,
      pause: changed(schedules.pause),
      resume: changed(schedules.resume),
      run,
      delete: (name) => Effect.flatMap(scheduleName(name), schedules.remove)
    } satisfies ScheduleControl as ScheduleControl,
    stats
  }
})
