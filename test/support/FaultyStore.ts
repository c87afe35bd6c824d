/** The memory store behind a switch: away, hanging, or slow, and with its submits and its reads recorded. */
import { Context, Effect, Layer } from "effect"
import * as JobStoreMemory from "../../src/adapters/memory/JobStoreMemory.ts"
import * as QueuesMemory from "../../src/adapters/memory/QueuesMemory.ts"
import * as SchedulesMemory from "../../src/adapters/memory/SchedulesMemory.ts"
import type { NewJob } from "../../src/domain/Job.ts"
import type { JobId } from "../../src/domain/JobId.ts"
import { JobStore, JobStoreUnavailable } from "../../src/ports/JobStore.ts"
import { Queues, QueuesUnavailable } from "../../src/ports/Queues.ts"
import { Schedules, SchedulesUnavailable } from "../../src/ports/Schedules.ts"

/** `lost`: what is sent takes effect, and the answer does not arrive. */
export type Fault = "none" | "away" | "hanging" | "lost"

export class Faults extends Context.Service<Faults, {
  fault: Fault
  /** How long each submit takes. */
  submitMs: number
  /** Types of which a submit learns nothing, as if something was locked; atomic, it is unavailable. */
  readonly undecided: Set<string>
  /** The jobs of each submit, in order. */
  readonly submits: Array<ReadonlyArray<NewJob>>
  /** How long each read by id takes. */
  readMs: number
  /** The ids of each read, in order. */
  readonly reads: Array<ReadonlyArray<JobId>>
}>()("deadman/test/support/FaultyStore/Faults") {}

/** What no caller may be shown. */
const secret = new Error("SELECT secret FROM postgres://user:password@db/jobs")

/** Puts the fault that is switched on before what is asked. */
const faultyBy =
  <Away>(faults: Faults["Service"], away: Away) => <A, E>(effect: Effect.Effect<A, E>): Effect.Effect<A, E | Away> =>
    Effect.suspend(() => {
      switch (faults.fault) {
        case "none":
          return effect
        case "away":
          return Effect.fail(away)
        case "hanging":
          return Effect.never
        case "lost":
          return Effect.andThen(effect, Effect.fail(away))
      }
    })

const slowly = <A, E>(ms: number, effect: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  ms > 0 ? Effect.andThen(Effect.sleep(ms), effect) : effect

const makeQueues = Effect.gen(function*() {
  const queues = yield* Queues
  const faulty = faultyBy(yield* Faults, new QueuesUnavailable({ operation: "put", cause: secret }))
  return Queues.of({
    ...queues,
    list: (request) => faulty(queues.list(request)),
    get: (name) => faulty(queues.get(name)),
    put: (name, change) => faulty(queues.put(name, change))
  })
})

const makeSchedules = Effect.gen(function*() {
  const schedules = yield* Schedules
  const faulty = faultyBy(yield* Faults, new SchedulesUnavailable({ operation: "put", cause: secret }))
  return Schedules.of({
    ...schedules,
    put: (schedule) => faulty(schedules.put(schedule)),
    get: (name) => faulty(schedules.get(name)),
    list: (request) => faulty(schedules.list(request)),
    remove: (name) => faulty(schedules.remove(name)),
    pause: (name) => faulty(schedules.pause(name)),
    resume: (name) => faulty(schedules.resume(name)),
    run: (name, id, key) => faulty(schedules.run(name, id, key))
  })
})

const make = Effect.gen(function*() {
  const store = yield* JobStore
  const faults = yield* Faults
  const faulty = faultyBy(faults, new JobStoreUnavailable({ operation: "any", cause: secret }))
  const partly: JobStore["Service"]["submit"] = Effect.fnUntraced(function*(jobs, options) {
    const free = jobs.filter(({ type }) => !faults.undecided.has(type))
    if (options.atomic && free.length < jobs.length) {
      return yield* new JobStoreUnavailable({ operation: "any", cause: secret })
    }
    const stored = yield* store.submit(free, options)
    return {
      ...stored,
      answers: jobs.map((job) => stored.answers[free.indexOf(job)] ?? { _tag: "Undecided" as const })
    }
  })
  return JobStore.of({
    ...store,
    submit: (jobs, options) => {
      faults.submits.push(jobs)
      return slowly(
        faults.submitMs,
        faulty(faults.undecided.size === 0 ? store.submit(jobs, options) : partly(jobs, options))
      )
    },
    get: (ids) => {
      faults.reads.push(ids)
      return slowly(faults.readMs, faulty(store.get(ids)))
    },
    list: (request) => faulty(store.list(request)),
    cancel: (id) => faulty(store.cancel(id)),
    retry: (id) => faulty(store.retry(id)),
    resubmit: (id, as) => faulty(store.resubmit(id, as)),
    counts: faulty(store.counts),
    now: faulty(store.now)
  })
})

export const layer: Layer.Layer<JobStore | Queues | Schedules | Faults> = Layer.mergeAll(
  Layer.effect(JobStore, make),
  Layer.effect(Queues, makeQueues).pipe(Layer.provide(QueuesMemory.layer)),
  Layer.effect(Schedules, makeSchedules).pipe(Layer.provide(SchedulesMemory.layer))
).pipe(
  Layer.provide(JobStoreMemory.layer),
  Layer.provideMerge(
    Layer.sync(
      Faults,
      () => Faults.of({ fault: "none", submitMs: 0, undecided: new Set(), submits: [], readMs: 0, reads: [] })
    )
  )
)
