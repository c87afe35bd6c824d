/** Remote workers over memory adapters, with faults to switch on for single operations, and every call written down. */
import { Context, Deferred, Effect, Layer, type Scope } from "effect"
import * as JobStoreMemory from "../../../src/adapters/memory/JobStoreMemory.ts"
import * as LeaseRegisterMemory from "../../../src/adapters/memory/LeaseRegisterMemory.ts"
import * as QueuesMemory from "../../../src/adapters/memory/QueuesMemory.ts"
import * as SessionsMemory from "../../../src/adapters/memory/SessionsMemory.ts"
import * as TransportMemory from "../../../src/adapters/memory/TransportMemory.ts"
import type { Claim, LeaseId } from "../../../src/domain/Claim.ts"
import type { JobType, NewJob, Queue } from "../../../src/domain/Job.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import { JobStore, JobStoreUnavailable } from "../../../src/ports/JobStore.ts"
import { LeaseRegister, LeaseRegisterUnavailable } from "../../../src/ports/LeaseRegister.ts"
import { Queues } from "../../../src/ports/Queues.ts"
import { type RemoteClaims, type RemoteRequest, RemoteWorkers } from "../../../src/ports/RemoteWorkers.ts"
import { Sessions } from "../../../src/ports/Sessions.ts"
import { Transport } from "../../../src/ports/Transport.ts"
import * as Flagged from "../../../src/programs/process/Flagged.ts"
import * as Stopping from "../../../src/programs/process/Stopping.ts"
import * as Remote from "../../../src/programs/remote/RemoteWorkers.ts"
import * as Jobs from "../../support/Jobs.ts"

/** `lost` does the work and loses the answer; a gate holds the answer back until it is opened. */
export type Fault = "away" | "lost" | Deferred.Deferred<void>

type Method = (...args: ReadonlyArray<never>) => Effect.Effect<unknown, unknown>

export interface World {
  readonly store: JobStore["Service"]
  readonly register: LeaseRegister["Service"]
  readonly transport: Transport["Service"]
  readonly sessions: Sessions["Service"]
  readonly stopping: Stopping.Stopping["Service"]
  readonly faults: Map<string, Fault>
  readonly calls: Map<string, number>
  readonly limit: (queue: Queue, concurrency: number) => Effect.Effect<unknown>
  readonly type: JobType
  readonly submit: (change?: Partial<NewJob>) => Effect.Effect<JobId>
  /** One that is claimed, with its claim. */
  readonly job: (id: JobId) => Effect.Effect<Effect.Success<ReturnType<JobStore["Service"]["get"]>>[number]>
  readonly request: (change?: Partial<RemoteRequest>) => RemoteRequest
  /** Another process over the same adapters. */
  readonly process: Effect.Effect<RemoteWorkers["Service"], never, Scope.Scope>
  /** The same over a store that behaves otherwise. */
  readonly processOver: (
    change: (store: JobStore["Service"]) => JobStore["Service"]
  ) => Effect.Effect<RemoteWorkers["Service"], never, Scope.Scope>
}

const memory = Layer.mergeAll(
  Layer.provideMerge(
    Layer.merge(Flagged.layer, QueuesMemory.layer),
    Layer.merge(JobStoreMemory.layer, LeaseRegisterMemory.layer)
  ),
  TransportMemory.layer,
  SessionsMemory.layer,
  Stopping.layer
)

export const make = Effect.gen(function*() {
  const context = yield* Layer.build(Layer.fresh(memory))
  const faults = new Map<string, Fault>()
  const calls = new Map<string, number>()
  const store = Context.get(context, JobStore)
  const register = Context.get(context, LeaseRegister)
  const transport = Context.get(context, Transport)

  const faulty = <S extends object>(
    service: S,
    names: ReadonlyArray<keyof S & string>,
    fail: (name: string) => unknown
  ) => {
    const wrapped = { ...service } as Record<string, unknown>
    for (const name of names) {
      const method = service[name] as unknown as Method
      wrapped[name] = (...args: ReadonlyArray<never>) =>
        Effect.suspend(() => {
          calls.set(name, (calls.get(name) ?? 0) + 1)
          const fault = faults.get(name)
          switch (fault) {
            case undefined:
              return method(...args)
            case "away":
              return Effect.fail(fail(name))
            case "lost":
              return Effect.andThen(method(...args), Effect.fail(fail(name)))
            default:
              return Effect.tap(method(...args), () => Deferred.await(fault))
          }
        })
    }
    return wrapped as S
  }

  const ports = context.pipe(
    Context.add(
      JobStore,
      faulty(
        store,
        ["claim", "recall", "abandon", "handBack", "settle", "verify", "endLeases", "get"],
        (operation) => new JobStoreUnavailable({ operation, cause: "away" })
      )
    ),
    Context.add(
      LeaseRegister,
      faulty(
        register,
        ["renew", "hold"],
        (operation) => new LeaseRegisterUnavailable({ operation: operation as "renew", cause: "away" })
      )
    )
  )
  const type = yield* Jobs.freshType

  const world: World = {
    store,
    register,
    transport,
    sessions: Context.get(context, Sessions),
    stopping: Context.get(context, Stopping.Stopping),
    faults,
    calls,
    limit: (queue, concurrency) => Effect.orDie(Context.get(context, Queues).put(queue, { concurrency })),
    type,
    submit: Effect.fnUntraced(function*(change = {}) {
      const job = yield* Jobs.job({ type, ...change })
      yield* Effect.orDie(store.submit([job], { atomic: false }))
      yield* Effect.orDie(transport.wake([{ _tag: "Ready" }]))
      return job.id
    }),
    job: (id) => Effect.orDie(Effect.map(store.get([id]), ([job]) => job!)),
    request: (change = {}) => ({
      worker: "py",
      lease: null,
      leaseMs: 5_000,
      types: [type],
      queues: null,
      limit: 10,
      waitMs: 0,
      ...change
    }),
    processOver: (change) =>
      Effect.map(
        Layer.build(
          Layer.fresh(Remote.layer).pipe(
            Layer.provide(Layer.succeedContext(Context.add(ports, JobStore, change(Context.get(ports, JobStore)))))
          )
        ),
        (built) => Context.get(built, RemoteWorkers)
      ),
    get process() {
      return this.processOver((store) => store)
    }
  }
  return world
})

/** The claim of one of the jobs that were taken; the first, if none is named. */
export const claimOf = ({ jobs, lease }: RemoteClaims, id?: JobId): Claim => {
  const job = id === undefined ? jobs[0]! : jobs.find((one) => one.id === id)!
  return { id: job.id, epoch: job.epoch, lease } as Claim
}

export const lease = (): LeaseId => crypto.randomUUID() as LeaseId
