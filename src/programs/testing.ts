/**
 * What `import * as Testing from "deadman/testing"` gives: Deadman in memory, for tests of one's own handlers and of
 * what submits to them. It belongs to no test runner.
 *
 * The store is the memory adapter, which is held to the same laws as Postgres; the client and the handlers are those
 * of production. Nothing runs by itself: `drain`, `advance` and `wait` run what is due, one job after the other, on a
 * clock that only they move.
 */
import { Clock, Context, Duration, Effect, Layer, ManagedRuntime, type Result } from "effect"
import { TestClock } from "effect/testing"
import * as DelayedJobsMemory from "../adapters/memory/DelayedJobsMemory.ts"
import * as GuardedEffectsMemory from "../adapters/memory/GuardedEffectsMemory.ts"
import * as JobStoreMemory from "../adapters/memory/JobStoreMemory.ts"
import * as LeaseRegisterMemory from "../adapters/memory/LeaseRegisterMemory.ts"
import * as QueuesMemory from "../adapters/memory/QueuesMemory.ts"
import * as SchedulesMemory from "../adapters/memory/SchedulesMemory.ts"
import * as SessionsMemory from "../adapters/memory/SessionsMemory.ts"
import * as TransportMemory from "../adapters/memory/TransportMemory.ts"
import type { JobId } from "../domain/JobId.ts"
import { Client } from "./client/Client.ts"
import { type Ended, idOf, patienceOf, type ToWait, type WaitOptions } from "./client/Contract.ts"
import type { Jobs } from "./client/Promises.ts"
import type { SubmitOptions } from "./client/SubmitOptions.ts"
import type { Job } from "./client/Views.ts"
import type { JobValueRefused } from "./job/Definition.ts"
import * as Layers from "./Layers.ts"
import type * as Given from "./Options.ts"
import * as Start from "./Start.ts"
import { Runner, TestStuck } from "./testing/Runner.ts"
import * as Running from "./testing/Runner.ts"
import { Handlers } from "./worker/Handlers.ts"

export { Runner, TestStuck }

/** All ports in memory: what `Deadman.layerClient`, `layerWorker` and `layerKeeper` can be given in a test. */
export const layerMemory: Layer.Layer<Layers.Ports> = Layer.mergeAll(
  Layer.mergeAll(GuardedEffectsMemory.layer, QueuesMemory.layer, SchedulesMemory.layer).pipe(
    Layer.provideMerge(JobStoreMemory.layer)
  ),
  LeaseRegisterMemory.layer,
  TransportMemory.layer,
  DelayedJobsMemory.layer,
  SessionsMemory.layer
)

/** The client, and a runner of `handlers`, in memory; on the `TestClock` that the test has. */
export const layer = <R = never>(options: {
  readonly handlers: Layers.HandlersOf<R>
}): Layer.Layer<Client | Runner, Given.StartFailed, Exclude<R, Client>> =>
  Running.layer.pipe(
    Layer.provide(
      // A test of what submits needs no handler.
      Object.keys(options.handlers).length === 0
        ? Layer.succeed(Handlers, { types: [], get: () => undefined })
        : Layer.provide(Layers.layerHandlers(options.handlers), Running.layerBelowHandlers)
    ),
    Layer.provideMerge(Layers.layerClient),
    Layer.provide(Running.layerClock),
    Layer.provide(layerMemory)
  ) as Layer.Layer<Client | Runner, Given.StartFailed, Exclude<R, Client>>

export interface TestOptions {
  readonly handlers?: Layers.HandlersOf<never> | undefined
  /** What the clock says at first; the real time if nothing is said. */
  readonly now?: Date | number | undefined
}

/** A definition, as far as its payload is concerned. */
export interface PayloadOf<Payload> {
  readonly type: string
  readonly decode: (json: unknown) => Result.Result<Payload, JobValueRefused>
}

/** A job as it was submitted. */
export type Submitted<Payload> = Omit<Job, "payload"> & { readonly payload: Payload }

export interface TestDeadman extends Omit<Jobs, "wait"> {
  /** What was submitted of this type, oldest first, whatever became of it. */
  readonly submitted: {
    <Payload>(job: PayloadOf<Payload>): Promise<ReadonlyArray<Submitted<Payload>>>
    (type: string): Promise<ReadonlyArray<Job>>
  }
  /** Runs what is due now until nothing is, and answers the jobs as they were after their run. */
  readonly drain: () => Promise<ReadonlyArray<Job>>
  /** Moves time on, and runs what becomes due on the way at its time. */
  readonly advance: (ms: number) => Promise<ReadonlyArray<Job>>
  /** Moves time until this job has ended: its retries are due when they are due. */
  readonly wait: <Value = unknown>(
    job: ToWait<Value>,
    options?: { /** Of the clock of the test; 60 days if nothing is said. */ readonly timeoutMs?: number | undefined }
  ) => Promise<Ended<Value>>
  /** What the clock of the test says, in milliseconds since the epoch. */
  readonly now: () => number
  readonly stop: () => Promise<void>
}

const pageMax = 500

/** Deadman in memory, for a test that knows nothing of Effect. */
export const start = (options: TestOptions = {}): Promise<TestDeadman> => {
  const clock = TestClock.layer({ warningDelay: Duration.days(1) })
  const handlers = options.handlers ?? {}
  const runtime = ManagedRuntime.make(layer({ handlers }).pipe(Layer.provideMerge(clock)))
  return Start.settled(runtime.runPromiseExit(Effect.context<Client | Runner>())).then((context) => {
    const runner = Context.get(context, Runner)
    const runExit = Effect.runPromiseExitWith(context)
    const run = <A, E>(effect: Effect.Effect<A, E>): Promise<A> => Start.settled(runExit(effect))
    const time = Effect.runSyncWith(context)(TestClock.testClockWith(Effect.succeed))
    const facade = Start.facade(context)

    const all = Effect.fnUntraced(function*(type: string) {
      const client = Context.get(context, Client)
      const jobs: Array<Job> = []
      let before: string | null = null
      do {
        const page: { readonly jobs: ReadonlyArray<Job>; readonly next: string | null } = yield* client.list({
          type,
          limit: pageMax,
          ...(before === null ? {} : { before })
        })
        jobs.push(...page.jobs)
        before = page.next
      } while (before !== null)
      return jobs.toReversed()
    })

    const submitted = (job: string | PayloadOf<unknown>) =>
      run(Effect.flatMap(all(typeof job === "string" ? job : job.type), (jobs) =>
        typeof job === "string"
          ? Effect.succeed(jobs)
          : Effect.forEach(jobs, (one) =>
            Effect.map(Effect.fromResult(job.decode(one.payload)), (payload) => ({ ...one, payload })))))

    const wait = (job: ToWait, options: WaitOptions = {}) =>
      run(Effect.suspend(() => {
        const withinMs = patienceOf(options)
        return runner.untilEnded(idOf(job) as JobId, options.timeoutMs === undefined ? undefined : withinMs)
      })).then(() => facade.wait(job))

    const started: TestDeadman = {
      ...facade,
      submitted: submitted as TestDeadman["submitted"],
      drain: () => run(runner.drain),
      advance: (ms) => run(runner.advance(ms)),
      wait: wait as TestDeadman["wait"],
      now: () => Math.floor(time.currentTimeMillisUnsafe()),
      stop: () => runtime.dispose()
    }
    return run(TestClock.setTime(Number(options.now ?? Effect.runSync(Clock.currentTimeMillis)))).then(() => started)
  })
}

/**
 * Runs one job of one handler once, and answers the job as it is then: `completed`; `failed` or `dead` with its errors;
 * or `pending`, if it asked for `again`. The payload is JSON, as it would be in the database.
 */
export const runOnce = (
  handlers: Layers.HandlersOf<never>,
  type: string,
  payload?: unknown,
  options?: SubmitOptions
): Promise<Job> =>
  start({ handlers }).then((deadman) =>
    deadman.submit(type, payload, options)
      .then(({ id }) => deadman.drain().then((jobs) => jobs.find((job) => job.id === id)))
      .then((job) => job ?? Promise.reject(new TestStuck({ message: `nothing runs ${type}: is it due, and handled?` })))
      .finally(() => deadman.stop())
  )
