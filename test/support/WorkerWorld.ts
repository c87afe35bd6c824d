/**
 * A worker pool on memory adapters, with a fault to switch on for each operation of the store and of the register.
 *
 * `away` fails at once, `silent` fails when the adapter's deadline is over, `lost` does the work and loses the answer.
 */
import { Clock, Context, Duration, Effect, Exit, Layer, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as DelayedJobsMemory from "../../src/adapters/memory/DelayedJobsMemory.ts"
import * as GuardedEffectsMemory from "../../src/adapters/memory/GuardedEffectsMemory.ts"
import * as JobStoreMemory from "../../src/adapters/memory/JobStoreMemory.ts"
import * as LeaseRegisterMemory from "../../src/adapters/memory/LeaseRegisterMemory.ts"
import * as QueuesMemory from "../../src/adapters/memory/QueuesMemory.ts"
import * as SessionsMemory from "../../src/adapters/memory/SessionsMemory.ts"
import * as TransportMemory from "../../src/adapters/memory/TransportMemory.ts"
import { JobType, type NewJob } from "../../src/domain/Job.ts"
import type { JobId } from "../../src/domain/JobId.ts"
import { DelayedJobs } from "../../src/ports/DelayedJobs.ts"
import { JobStore, JobStoreUnavailable } from "../../src/ports/JobStore.ts"
import { LeaseRegister, LeaseRegisterUnavailable } from "../../src/ports/LeaseRegister.ts"
import { Queues, QueuesUnavailable } from "../../src/ports/Queues.ts"
import { Sessions } from "../../src/ports/Sessions.ts"
import { Transport } from "../../src/ports/Transport.ts"
import * as Loops from "../../src/programs/process/Loops.ts"
import type { Handler } from "../../src/programs/worker/HandlerApi.ts"
import * as Handlers from "../../src/programs/worker/Handlers.ts"
import * as WorkerConfig from "../../src/programs/worker/WorkerConfig.ts"
import * as WorkerPool from "../../src/programs/worker/WorkerPool.ts"
import * as Jobs from "./Jobs.ts"

export type Fault = "away" | "silent" | "lost"

/** How long the adapters of this world let a caller wait. */
const deadline = Duration.seconds(2)

type Method = (...args: ReadonlyArray<never>) => Effect.Effect<unknown, unknown>

interface Call {
  readonly operation: string
  readonly atMs: number
  readonly arguments: ReadonlyArray<unknown>
}

/** `service` with a fault in front of each of `operations`, and each call written down. */
const faulty = <S extends object>(
  service: S,
  operations: ReadonlyArray<keyof S & string>,
  faults: Map<string, Fault>,
  calls: Array<Call>,
  nowMs: () => number,
  unavailable: (operation: string) => unknown
): S => {
  const wrapped = { ...service } as Record<string, unknown>
  for (const operation of operations) {
    const method = service[operation] as unknown as Method
    wrapped[operation] = (...args: ReadonlyArray<never>) =>
      Effect.suspend(() => {
        calls.push({ operation, atMs: nowMs(), arguments: args })
        const fail = Effect.fail(unavailable(operation))
        switch (faults.get(operation)) {
          case undefined:
            return method(...args)
          case "away":
            return fail
          case "silent":
            return Effect.andThen(Effect.sleep(deadline), fail)
          case "lost":
            return Effect.andThen(method(...args), fail)
        }
      })
  }
  return wrapped as S
}

export interface World {
  readonly store: JobStore["Service"]
  readonly register: LeaseRegister["Service"]
  readonly transport: Transport["Service"]
  readonly sessions: Sessions["Service"]
  readonly queues: Queues["Service"]
  readonly loops: Loops.Loops["Service"]
  readonly delayed: DelayedJobs["Service"]
  readonly faults: Map<string, Fault>
  readonly calls: Array<Call>
  /** Added to the worker's monotonic clock: what a frozen process sees when it wakes. */
  readonly frozen: { ms: number }
  /** Forgets every entry of the register. */
  readonly forget: Effect.Effect<void>
  /** Starts a pool. Closing its scope stops it. */
  readonly start: (
    handlers: Readonly<Record<string, Handler>>,
    config?: Partial<WorkerConfig.WorkerConfig["Service"]>
  ) => Effect.Effect<Pool>
  readonly submit: (type: string, change?: Partial<NewJob>) => Effect.Effect<JobId>
  readonly job: (id: JobId) => ReturnType<typeof one>
}

export interface Pool {
  readonly service: WorkerPool.WorkerPool["Service"]
  readonly stop: Effect.Effect<void>
}

const one = (store: JobStore["Service"], id: JobId) =>
  Effect.orDie(Effect.flatMap(
    store.get([id]),
    ([job]) => job === undefined ? Effect.die(new Error(`no job ${id}`)) : Effect.succeed(job)
  ))

const Adapters = (delivering: boolean) =>
  Layer.mergeAll(
    Layer.merge(GuardedEffectsMemory.layer, QueuesMemory.layer).pipe(Layer.provideMerge(JobStoreMemory.layer)),
    delivering ? TransportMemory.layerDelivering : TransportMemory.layer,
    DelayedJobsMemory.layer,
    SessionsMemory.layer,
    Loops.layer
  )

/** A world of its own for each test. */
export const make = Effect.fnUntraced(function*(options: {
  readonly delivering?: boolean
  /** Changes the store under the faults. */
  readonly store?: (store: JobStore["Service"]) => JobStore["Service"]
  readonly transport?: (transport: Transport["Service"]) => Transport["Service"]
  /** Changes the register under the faults. */
  readonly register?: (register: LeaseRegister["Service"]) => LeaseRegister["Service"]
} = {}) {
  const adapters = yield* Layer.build(Adapters(options.delivering ?? false))
  const clock = yield* Clock.Clock
  const faults = new Map<string, Fault>()
  const calls: Array<Call> = []
  const frozen = { ms: 0 }
  const nowMs = () => Number(clock.monotonicTimeNanosUnsafe() / 1_000_000n)
  const raw = options.store?.(Context.get(adapters, JobStore)) ?? Context.get(adapters, JobStore)
  const memory = yield* LeaseRegisterMemory.makeForgetful
  const transport = options.transport?.(Context.get(adapters, Transport)) ?? Context.get(adapters, Transport)
  const store = faulty(
    raw,
    ["claim", "claimIds", "recall", "abandon", "settle", "endLeases", "verify"],
    faults,
    calls,
    nowMs,
    (operation) => new JobStoreUnavailable({ operation, cause: new Error("fault") })
  )
  const rawQueues = Context.get(adapters, Queues)
  const queues = Queues.of({
    ...rawQueues,
    limits: Effect.suspend(() => {
      calls.push({ operation: "limits", atMs: nowMs(), arguments: [] })
      return faults.has("limits")
        ? Effect.fail(new QueuesUnavailable({ operation: "limits", cause: new Error("fault") }))
        : rawQueues.limits
    })
  })
  const register = faulty(
    options.register?.(memory.service) ?? memory.service,
    ["hold", "renew", "release"],
    faults,
    calls,
    nowMs,
    () => new LeaseRegisterUnavailable({ operation: "renew", cause: new Error("fault") })
  )
  const monotonicTimeNanosUnsafe = () => clock.monotonicTimeNanosUnsafe() + BigInt(frozen.ms) * 1_000_000n
  const skewed: Clock.Clock = {
    currentTimeMillisUnsafe: () => clock.currentTimeMillisUnsafe(),
    currentTimeMillis: clock.currentTimeMillis,
    currentTimeNanosUnsafe: () => clock.currentTimeNanosUnsafe(),
    currentTimeNanos: clock.currentTimeNanos,
    sleep: (duration) => clock.sleep(duration),
    monotonicTimeNanosUnsafe,
    monotonicTimeNanos: Effect.sync(monotonicTimeNanosUnsafe)
  }

  const start: World["start"] = Effect.fnUntraced(function*(handlers, config = {}) {
    const scope = yield* Scope.make()
    const built = yield* Layer.buildWithScope(
      WorkerPool.layer.pipe(
        Layer.provide(Layer.mergeAll(
          Layer.succeed(JobStore, store),
          Layer.succeed(LeaseRegister, register),
          Layer.succeed(Transport, transport),
          Layer.succeed(Sessions, Context.get(adapters, Sessions)),
          Layer.succeed(Queues, queues),
          Layer.succeed(DelayedJobs, Context.get(adapters, DelayedJobs)),
          Layer.succeed(Loops.Loops, Context.get(adapters, Loops.Loops)),
          Handlers.layer(handlers),
          WorkerConfig.layer(config)
        ))
      ),
      scope
    ).pipe(Effect.provideService(Clock.Clock, skewed), Effect.orDie)
    return { service: Context.get(built, WorkerPool.WorkerPool), stop: Scope.close(scope, Exit.void) }
  })

  const submit: World["submit"] = Effect.fnUntraced(function*(type, change = {}) {
    const job = yield* Jobs.job({ type: JobType.make(type), ...change })
    yield* Effect.orDie(raw.submit([job], { atomic: false }))
    yield* Effect.orDie(transport.publish([job]))
    return job.id
  })

  const world: World = {
    store: raw,
    register: memory.service,
    transport,
    sessions: Context.get(adapters, Sessions),
    queues,
    loops: Context.get(adapters, Loops.Loops),
    delayed: Context.get(adapters, DelayedJobs),
    faults,
    calls,
    frozen,
    forget: memory.forget,
    start,
    submit,
    job: (id) => one(raw, id)
  }
  return world
})

/** Lets time pass in small steps, and everything that is due in between happen. */
export const pass = Effect.fnUntraced(function*(ms: number, stepMs = 50) {
  for (let passed = 0; passed < ms; passed += stepMs) {
    yield* TestClock.adjust(Math.min(stepMs, ms - passed))
    yield* settle
  }
})

/** A few turns of the event loop: what is due happens, and what that starts. */
export const settle: Effect.Effect<void> = Effect.forEach(
  Array.from({ length: 6 }),
  () => Effect.promise(() => new Promise<void>((resolve) => setImmediate(resolve))),
  { discard: true }
)
