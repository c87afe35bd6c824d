/**
 * Runs jobs for tests: when told to, one after the other, on a clock that is moved by hand.
 *
 * What runs is a handler as a worker would call it, and what becomes of the job is decided and written as a worker
 * would. Schedules fire at their ticks, and what was not started in time expires. There are no leases that lapse and no draws: a backoff is always its ceiling, so that a test can say when the
 * retry is due. While a handler does real work the clock stands; one that waits for the clock is left running until time
 * has moved that far.
 */
import { Clock, Context, Duration, Effect, FiberSet, Layer, Schema } from "effect"
import { TestClock } from "effect/testing"
import { type Claim, Epoch } from "../../domain/Claim.ts"
import type { ClaimedJob } from "../../domain/Job.ts"
import type { JobId } from "../../domain/JobId.ts"
import * as JobState from "../../domain/JobState.ts"
import { settlement } from "../../domain/Outcome.ts"
import { JobStore } from "../../ports/JobStore.ts"
import type { LeaseRegister } from "../../ports/LeaseRegister.ts"
import { Schedules } from "../../ports/Schedules.ts"
import type { Transport } from "../../ports/Transport.ts"
import * as Views from "../client/Views.ts"
import * as Scheduler from "../keeper/Scheduler.ts"
import { Handlers } from "../worker/Handlers.ts"
import { LeaseIds } from "../worker/LeaseIds.ts"
import * as Notes from "../worker/Notes.ts"
import * as Run from "../worker/Run.ts"

/** The test asks for something that will not happen. */
export class TestStuck extends Schema.TaggedError<TestStuck>()("TestStuck", { message: Schema.String }) {}

export class Runner extends Context.Service<Runner, {
  /** Runs what is due now until nothing is, and answers the jobs as they were after their run. */
  readonly drain: Effect.Effect<ReadonlyArray<Views.Job>, TestStuck>
  /** Moves time on, and runs what becomes due on the way at its time. */
  readonly advance: (time: Duration.Input) => Effect.Effect<ReadonlyArray<Views.Job>, TestStuck>
  /** Moves time until this job has ended. */
  readonly untilEnded: (id: JobId, within?: Duration.Input) => Effect.Effect<Views.Job, TestStuck>
}>()("deadman/programs/testing/Runner") {}

/** Real time that a handler may take. */
const patienceMs = 5_000
/** Real time for which a handler has to do nothing but wait for the clock, until it is moved for it. */
const restMs = 40
/** More runs than this in one go are a loop. */
const runsMax = 2_000
const withinDefault = "60 days"
const worker = "test"
const leaseMs = 3_600_000
const batchMax = 1_000

interface Flight {
  readonly job: ClaimedJob
  /** When its attempt has taken too long. */
  readonly deadlineMs: number
  readonly interrupt: () => void
}

/** The clock as handlers see it: it also says who waits for it, and until when. */
export class HandlersClock extends Context.Service<HandlersClock, {
  readonly service: Clock.Clock
  readonly sleeps: ReadonlyMap<symbol, number>
}>()("deadman/programs/testing/Runner/HandlersClock") {}

const watched = (clock: Clock.Clock) => {
  const sleeps = new Map<symbol, number>()
  const service: Clock.Clock = {
    currentTimeMillisUnsafe: () => clock.currentTimeMillisUnsafe(),
    currentTimeMillis: clock.currentTimeMillis,
    currentTimeNanosUnsafe: () => clock.currentTimeNanosUnsafe(),
    currentTimeNanos: clock.currentTimeNanos,
    monotonicTimeNanosUnsafe: () => clock.monotonicTimeNanosUnsafe(),
    monotonicTimeNanos: clock.monotonicTimeNanos,
    sleep: (duration) =>
      Effect.suspend(() => {
        const sleep = Symbol("sleep")
        sleeps.set(sleep, clock.currentTimeMillisUnsafe() + Duration.toMillis(duration))
        return Effect.ensuring(clock.sleep(duration), Effect.sync(() => sleeps.delete(sleep)))
      })
  }
  return { service, sleeps }
}

const stuck = (message: string) => new TestStuck({ message })

const make = Effect.gen(function*() {
  const store = yield* JobStore
  const handlers = yield* Handlers
  const schedules = yield* Schedules
  const scheduler = yield* Scheduler.make
  const drawLease = yield* LeaseIds
  const clock = yield* Clock.Clock
  const { service, sleeps } = yield* HandlersClock
  const context = Context.add(yield* Effect.context<never>(), Clock.Clock, service)
  const fork = yield* FiberSet.makeRuntime<never, void, never>()
  const notes = Notes.make({ store, now: () => clock.currentTimeMillisUnsafe() })
  const starter = Run.starter(worker, context, notes, false)
  const flights = new Map<JobId, Flight>()
  let ran: Array<JobId> = []

  const now = Effect.map(Clock.currentTimeMillis, Math.floor)

  const settle = Effect.fnUntraced(function*(claim: Claim, job: ClaimedJob, ending: Run.Ending) {
    yield* notes.flush(patienceMs)
    if (ending !== null) {
      // The highest draw there is: the backoff's ceiling.
      yield* store.settle([settlement(claim, job, ending, 1)])
    }
    yield* store.endLeases([claim.lease])
  })

  const begin = (job: ClaimedJob, claim: Claim) => {
    const handler = handlers.get(job.type)
    if (handler === undefined) {
      return
    }
    let interrupt: (reason: string) => void = () => {}
    const ended = Effect.callback<() => Run.Ending>((resume) => {
      interrupt = starter.start(handler, claim, job, (ending) => resume(Effect.succeed(ending))) ?? interrupt
      return Effect.sync(() => interrupt("the run was interrupted"))
    })
    const timed = job.timeoutMs === null ? ended : Effect.timeoutOrElse(ended, {
      duration: job.timeoutMs,
      orElse: () => Effect.succeed(() => Run.timedOut(job.timeoutMs ?? 0))
    })
    flights.set(job.id, {
      job,
      deadlineMs: job.timeoutMs === null ? Number.POSITIVE_INFINITY : clock.currentTimeMillisUnsafe() + job.timeoutMs,
      interrupt: () => interrupt("the job was taken away")
    })
    fork(timed.pipe(
      Effect.flatMap((ending) => settle(claim, job, ending())),
      Effect.catchCause((cause) => Effect.logError(`the run of ${job.type} could not be recorded`, cause)),
      Effect.ensuring(Effect.sync(() => {
        flights.delete(job.id)
        ran.push(job.id)
      }))
    ))
  }

  /** Waits, in real time, until nothing runs any more, or all that runs waits for the clock, or for as long as it may. */
  const rest = Effect.gen(function*() {
    for (let turn = 0; turn < 20 && flights.size > 0; turn++) {
      yield* Effect.yieldNow
    }
    let resting = 0
    for (let waited = 0; waited < patienceMs && resting < restMs && flights.size > 0; waited++) {
      yield* TestClock.withLive(Effect.sleep("1 millis"))
      resting = sleeps.size > 0 ? resting + 1 : 0
    }
  })

  /** Interrupts what was cancelled while it ran: nobody else tells it. */
  const heed = Effect.gen(function*() {
    if (flights.size > 0) {
      const jobs = yield* Effect.orDie(store.get([...flights.keys()]))
      const cancelled = jobs.filter(({ state }) => state !== "running")
      for (const { id } of cancelled) {
        flights.get(id)?.interrupt()
      }
      if (cancelled.length > 0) {
        yield* rest
      }
    }
  })

  /** One job that is due, begun; `false` if there is none. */
  const beginNext = Effect.gen(function*() {
    const lease = drawLease()
    const [job] = yield* store.claim({
      lease,
      leaseMs,
      worker,
      types: handlers.types,
      limit: 1,
      freeSlots: 1,
      bytes: Number.MAX_SAFE_INTEGER
    })
    if (job === undefined) {
      return false
    }
    begin(job, { id: job.id, epoch: Epoch.make(job.epoch), lease })
    return true
  }).pipe(Effect.orDie)

  /** Makes ready what is due, and says how long until the next one is. */
  const promote = Effect.gen(function*() {
    while (true) {
      const { jobs, nextInMs } = yield* store.promote(batchMax)
      if (jobs.length < batchMax) {
        return nextInMs
      }
    }
  }).pipe(Effect.orDie)

  /** Ends what was not started in time, and says how long until the next one would be. */
  const expire = Effect.gen(function*() {
    while (true) {
      const { jobs, nextInMs } = yield* store.expire(batchMax)
      if (jobs < batchMax) {
        return nextInMs
      }
    }
  }).pipe(Effect.orDie)

  /** Fires the schedules that are due, and says how long until the next one is. */
  const fire = Effect.gen(function*() {
    while (true) {
      const { nextInMs, schedules: due } = yield* schedules.due(1)
      if (due.length === 0) {
        return nextInMs
      }
      yield* scheduler.round
    }
  }).pipe(Effect.orDie)

  const stillRunning = () =>
    stuck(
      `${[...flights.values()].map(({ job }) => job.type).join(", ")} has not ended` + (sleeps.size > 0
        ? ": it waits for the clock, so move that with advance()"
        : ` within ${patienceMs} ms: a promise that never settles needs a timeout of its own`)
    )

  /** Runs all that is due, and says how long until more is. What waits for the clock is left running. */
  const sweep = Effect.gen(function*() {
    yield* heed
    yield* rest
    for (let runs = 0; runs < runsMax; runs++) {
      const expireInMs = yield* expire
      const fireInMs = yield* fire
      const promoteInMs = yield* promote
      // What a schedule has cancelled may be running here.
      yield* heed
      if (!(yield* beginNext)) {
        const nextMs = Math.min(...[expireInMs, fireInMs, promoteInMs].map((ms) => ms ?? Number.POSITIVE_INFINITY))
        return Number.isFinite(nextMs) ? nextMs : null
      }
      yield* rest
    }
    return yield* stuck(
      `there were ${runsMax} runs in one go: does a handler submit its own job again, or ask for \`again(0)\`?`
    )
  })

  /** The jobs that ran since it was last asked. */
  const takeRan = Effect.suspend(() => {
    const ids = ran
    ran = []
    return Effect.map(Effect.orDie(store.get(ids)), (jobs) => {
      const found = new Map(jobs.map((job) => [job.id, job]))
      return ids.flatMap((id) => found.get(id) ?? []).map(Views.ofJob)
    })
  })

  const drain = Effect.gen(function*() {
    yield* sweep
    return flights.size > 0 ? yield* stillRunning() : yield* takeRan
  })

  /** How long until the next thing that only time brings; `null` where there is none. */
  const nextMs = (dueInMs: number | null, nowMs: number): number | null => {
    const instants = [...sleeps.values(), ...[...flights.values()].map(({ deadlineMs }) => deadlineMs)]
    if (dueInMs !== null) {
      instants.push(nowMs + Math.ceil(dueInMs))
    }
    const next = Math.min(...instants)
    return Number.isFinite(next) ? Math.max(1, next - nowMs) : null
  }

  const advance = Effect.fnUntraced(function*(time: Duration.Input) {
    const until = (yield* now) + Duration.toMillis(Duration.fromInputUnsafe(time))
    while (true) {
      const dueInMs = yield* sweep
      const nowMs = yield* now
      if (nowMs >= until) {
        return yield* takeRan
      }
      yield* TestClock.adjust(Math.min(until - nowMs, nextMs(dueInMs, nowMs) ?? Number.POSITIVE_INFINITY))
    }
  })

  const untilEnded = Effect.fnUntraced(function*(id: JobId, within: Duration.Input = withinDefault) {
    const until = (yield* now) + Duration.toMillis(Duration.fromInputUnsafe(within))
    while (true) {
      const dueInMs = yield* sweep
      const [job] = yield* Effect.orDie(store.get([id]))
      if (job === undefined) {
        return yield* stuck(`there is no job ${id}`)
      }
      if (JobState.isFinal(job.state)) {
        return Views.ofJob(job)
      }
      const nowMs = yield* now
      const next = nextMs(dueInMs, nowMs)
      if (handlers.get(job.type) === undefined && job.startByMs === null) {
        return yield* stuck(`nothing runs ${job.type}: give its handler to start()`)
      }
      if (next === null) {
        return yield* flights.size > 0
          ? stillRunning()
          : stuck(`${job.type} is ${job.state}, and nothing is due any more: is its queue paused?`)
      }
      if (nowMs + next > until) {
        return yield* stuck(
          `${job.type} will not have ended within ${Duration.format(Duration.fromInputUnsafe(within))}: does it ask ` +
            "for `again` for ever?"
        )
      }
      yield* TestClock.adjust(next)
    }
  })

  yield* Effect.addFinalizer(() => Effect.sync(() => flights.forEach(({ interrupt }) => interrupt())))

  return Runner.of({ drain, advance, untilEnded })
})

export const layerClock: Layer.Layer<HandlersClock> = Layer.effect(HandlersClock, Effect.map(Clock.Clock, watched))

/** Below the handlers alone: they keep the context in which they are put together, and their clock has to be in it. */
export const layerBelowHandlers: Layer.Layer<never, never, HandlersClock> = Layer.effect(
  Clock.Clock,
  Effect.map(HandlersClock, ({ service }) => service)
)

export const layer: Layer.Layer<
  Runner,
  never,
  JobStore | Schedules | Transport | LeaseRegister | Handlers | HandlersClock
> = Layer.effect(Runner, make)
