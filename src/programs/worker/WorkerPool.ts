/**
 * Runs jobs: claims them while slots are free, keeps their leases alive, and brings their outcomes to the store.
 *
 * Shutdown is the scope closing, and its order is `make` read upwards from its
 * end: claims stop and what has not started is handed back; handlers may finish
 * within the drain, the others are interrupted and their jobs handed back, each
 * when its handler has ended and the stubborn ones last; outcomes are flushed;
 * deliveries are acknowledged and the transport is left; the leases are ended;
 * the heartbeat stops; the process takes leave. Each step has a limit, so that
 * all of it is over within the drain and five seconds, whoever does not answer.
 *
 * Everything a process needs to run jobs is in this one scope, so a server with
 * slots and a worker are the same thing.
 */
import { Clock, Context, Duration, Effect, Fiber, Layer } from "effect"
import { suspectLosses } from "../../domain/Claim.ts"
import { heartbeatMs } from "../../domain/Watch.ts"
import { DelayedJobs } from "../../ports/DelayedJobs.ts"
import { JobStore } from "../../ports/JobStore.ts"
import { LeaseRegister } from "../../ports/LeaseRegister.ts"
import { Queues } from "../../ports/Queues.ts"
import * as Rhythm from "../../ports/Rhythm.ts"
import { type Session, Sessions } from "../../ports/Sessions.ts"
import { Transport } from "../../ports/Transport.ts"
import { Loops } from "../process/Loops.ts"
import * as Meters from "../process/Meters.ts"
import { RhythmPhase } from "../process/RhythmPhase.ts"
import * as Words from "../process/Words.ts"
import * as Calm from "./Calm.ts"
import * as ClaimLoop from "./ClaimLoop.ts"
import * as Deliveries from "./Deliveries.ts"
import { Handlers } from "./Handlers.ts"
import * as Heartbeat from "./Heartbeat.ts"
import * as LeaseEnds from "./LeaseEnds.ts"
import { LeaseIds } from "./LeaseIds.ts"
import * as Leases from "./Leases.ts"
import * as Limits from "./Limits.ts"
import * as Notes from "./Notes.ts"
import * as Reports from "./Reports.ts"
import * as Runs from "./Runs.ts"
import * as Settler from "./Settler.ts"
import * as Signal from "./Signal.ts"
import * as Slots from "./Slots.ts"
import * as Subscribing from "./Subscribing.ts"
import { WorkerConfig } from "./WorkerConfig.ts"

export class WorkerPool extends Context.Service<WorkerPool, {
  readonly name: string
  readonly slots: number
  readonly running: Effect.Effect<number>
  readonly runaways: Effect.Effect<number>
  /** Types of the jobs that run: for who looks for a culprit. */
  readonly runningTypes: Effect.Effect<ReadonlyArray<string>>
}>()("deadman/programs/worker/WorkerPool") {}

/** Without a good round for so long, a loop is not well. */
const loopLimitMs = 10_000
/** How long the last outcomes may take to be written when the process stops. */
const flushMs = 2_000
const lastCallMs = 500

const make = Effect.gen(function*() {
  const store = yield* JobStore
  const register = yield* LeaseRegister
  const transport = yield* Transport
  const delayed = yield* DelayedJobs
  const sessions = yield* Sessions
  const queues = yield* Queues
  const loops = yield* Loops
  const handlers = yield* Handlers
  const config = yield* WorkerConfig
  const clock = yield* Clock.Clock
  const drawLease = yield* LeaseIds
  const context = yield* Effect.context<never>()
  const runFork = Effect.runForkWith(context)

  const now = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
  const rhythm = Rhythm.make(yield* RhythmPhase, now)
  const stirred = Signal.make()
  const calm = Calm.make({ hinted: () => subscribing.hinted(), ended: stirred.notify, now })
  const leaseMs = Duration.toMillis(config.lease)
  const everyMs = heartbeatMs(leaseMs)
  // One more loss and it is dead as a crash loop: that one must be its own.
  const trialLosses = Math.max(suspectLosses, config.lossesMax - 1)
  let draining = false
  /** What ran when the drain began, and what the drain handed back. */
  let toFinish = 0
  let handedBack = 0

  const leases = Leases.make({ isRecord: register.isRecord })
  const deliveries = Deliveries.make({ arrived: () => claims.look() })
  const forget = (held: Leases.HeldJob) => {
    deliveries.done(held.claim.id)
    leases.forget(held)
    limits.left(held)
  }
  const limits: Limits.Limits = Limits.make({
    queues,
    leases,
    running: () => slots.active(),
    calm,
    now,
    rhythm,
    changed: () => {
      slots.trim()
      claims.wake()
    },
    room: () => claims.wake()
  })

  const settler = Settler.make({
    store,
    context,
    now,
    rhythm,
    loop: yield* loops.register("settle", loopLimitMs),
    settled: (held) => {
      held.forEach(forget)
      claims.freed()
    }
  })

  const notes = Notes.make({ store, now })

  const slots: Slots.Slots = Slots.make({
    slots: config.slots,
    worker: config.name,
    handlers,
    notes,
    context,
    now,
    freed: () => {
      claims.freed()
      deliveries.room.notify()
    },
    settle: (held, outcome) => {
      if (draining && outcome._tag === "Released") {
        handedBack += 1
      }
      settler.put(held, outcome)
    },
    forget,
    expire: (lease) => heartbeat.expire(lease),
    trialLosses,
    onTrialEnded: () => claims.wake(),
    limits: limits.all,
    onLeft: limits.left,
    onRunaways: (count, held) => {
      runFork(loops.setReason(
        "runaways",
        count === 0
          ? null
          : `${
            count === 1 ? "1 handler has" : `${count} handlers have`
          } not ended after interruption: restart this process if ` +
            `${count === 1 ? "it stays" : "they stay"}`
      ))
      if (held !== null) {
        runFork(Effect.andThen(
          Meters.add("runaways", 1),
          Effect.logError("a handler has not ended within a second of its interruption: make it heed its signal").pipe(
            Effect.annotateLogs({ job: held.claim.id, type: held.job?.type })
          )
        ))
      }
    }
  })

  const heartbeat: Heartbeat.Heartbeat = Heartbeat.make({
    store,
    register,
    leases,
    slots: () => slots,
    leaseMs,
    now,
    rhythm,
    loop: yield* loops.register("heartbeat", Math.max(loopLimitMs, 3 * everyMs)),
    log: (effect) => {
      runFork(effect)
    },
    handBack: (held) => settler.put(held, { _tag: "Released", started: false })
  })

  const claims: ClaimLoop.ClaimLoop = ClaimLoop.make({
    store,
    delayed,
    leases,
    slots,
    deliveries,
    limits,
    types: handlers.types,
    worker: config.name,
    leaseMs,
    trialLosses,
    poll: config.poll,
    calm,
    now,
    rhythm,
    drawLease,
    full: settler.full,
    loop: yield* loops.register("claim", loopLimitMs),
    context
  })

  const session = Effect.map(Meters.read, (counters): Session => ({
    name: config.name,
    role: config.role,
    version: config.version,
    handlers: handlers.types,
    slots: config.slots,
    running: slots.running(),
    runaways: slots.runaways(),
    draining,
    counters
  }))

  const subscribing: Subscribing.Subscribing = Subscribing.make({
    transport,
    loops,
    leases,
    deliveries,
    limits,
    slots,
    claims,
    wanted: () => draining ? 0 : Math.max(config.slots, slots.room().want, claims.reach()),
    now,
    rhythm
  })

  const leaseEnds = LeaseEnds.make({ store, register, leases, gatherMs: Math.min(everyMs, 1_000) })

  /** Until nothing runs any more, or for `ms`. */
  const awaitIdle = Effect.fnUntraced(function*(ms: number) {
    const untilMs = now() + ms
    while (slots.running() + slots.waiting() > 0 && now() < untilMs) {
      yield* slots.idle.wait(untilMs - now())
    }
  })

  yield* Effect.addFinalizer(() => Reports.leave(sessions, session))
  yield* Effect.forkScoped(heartbeat.run)
  yield* Effect.forkScoped(heartbeat.watch)
  yield* Effect.addFinalizer(() =>
    Effect.all([leaseEnds.end(lastCallMs), Effect.timeoutOption(heartbeat.abandon, lastCallMs)], {
      concurrency: 2,
      discard: true
    })
  )
  yield* Effect.forkScoped(leaseEnds.run)
  yield* Effect.forkScoped(deliveries.acknowledge)
  yield* Effect.forkScoped(subscribing.run)
  yield* Effect.addFinalizer(() => Effect.timeoutOption(deliveries.flush, lastCallMs))
  yield* Effect.forkScoped(notes.run)
  yield* Effect.addFinalizer(() => notes.flush(lastCallMs))
  yield* Effect.forkScoped(settler.run)
  yield* Effect.addFinalizer(() =>
    Effect.gen(function*() {
      const flushed = yield* settler.flush(flushMs)
      if (!flushed) {
        const n = settler.pending()
        yield* Effect.logError(
          `${Words.counted(n, "outcome")} could not be written: ${
            n === 1 ? "its job runs again when its lease lapses" : "their jobs run again when their leases lapse"
          }`
        )
      } else if (handedBack > 0) {
        yield* Effect.logInfo(
          `stopped: ${Words.counted(handedBack, "job")} ${handedBack === 1 ? "was" : "were"} handed back`
        )
      } else if (toFinish > 0) {
        yield* Effect.logInfo("stopped: all running jobs have finished")
      }
    })
  )
  yield* Effect.forkScoped(slots.pump)
  yield* Effect.forkScoped(slots.sweep)
  yield* Effect.forkScoped(limits.run)
  yield* Effect.forkScoped(Reports.run({
    sessions,
    session,
    stamp: () => `${Meters.stamp(context)} ${slots.running()} ${slots.runaways()} ${draining}`,
    quiet: () => calm.holds() && slots.running() + slots.waiting() === 0 && !draining,
    stirred,
    now,
    rhythm
  }))
  const claiming = yield* Effect.forkScoped(claims.run)
  yield* Effect.addFinalizer(Effect.fnUntraced(function*() {
    draining = true
    stirred.notify()
    claims.stop()
    slots.close()
    toFinish = slots.running()
    if (toFinish > 0) {
      yield* Effect.logInfo(
        `stopping: ${Words.counted(toFinish, "running job")} may take ${Duration.format(config.drain)} to finish`
      )
    }
    yield* Effect.all([
      awaitIdle(Duration.toMillis(config.drain)),
      Effect.timeoutOption(Fiber.await(claiming), Runs.graceMs)
    ], { concurrency: 2, discard: true })
    const underWay = claims.underWay()
    if (underWay !== null) {
      leases.doubt(underWay.lease, now(), leaseMs)
    }
    slots.stopAll("the process stops")
    yield* awaitIdle(Runs.graceMs)
    slots.abandonAll()
  }))

  return WorkerPool.of({
    name: config.name,
    slots: config.slots,
    running: Effect.sync(slots.running),
    runaways: Effect.sync(slots.runaways),
    runningTypes: Effect.sync(slots.runningTypes)
  })
})

export const layer: Layer.Layer<
  WorkerPool,
  never,
  JobStore | LeaseRegister | Transport | DelayedJobs | Sessions | Queues | Loops | Handlers | WorkerConfig
> = Layer.effect(WorkerPool, make)
