/**
 * Deadman as Layers, for a program of one's own: the store, a worker pool, the chores and a client, each to be taken
 * alone, replaced, or had together as `layer`.
 *
 * Any process may submit, run jobs, or do both. The chores (reclaiming what the dead left, promoting what is due,
 * pruning) are done by every process that is not told otherwise; at least one of a cluster has to.
 */
import { Context, Effect, Layer } from "effect"
import type { DelayedJobs } from "../ports/DelayedJobs.ts"
import type { JobStore } from "../ports/JobStore.ts"
import { Queues } from "../ports/Queues.ts"
import { Schedules } from "../ports/Schedules.ts"
import type { Sessions } from "../ports/Sessions.ts"
import { Status } from "../ports/Status.ts"
import type { Submitter } from "../ports/Submitter.ts"
import type { Transport } from "../ports/Transport.ts"
import * as Adapters from "./Adapters.ts"
import * as Client from "./client/Client.ts"
import { Drafts } from "./client/Drafts.ts"
import * as Health from "./Health.ts"
import { isTypedHandler, type TypedHandler } from "./job/TypedHandler.ts"
import * as Keeper from "./keeper/Keeper.ts"
import * as KeeperConfig from "./keeper/KeeperConfig.ts"
import * as Given from "./Options.ts"
import * as Loops from "./process/Loops.ts"
import * as Stopping from "./process/Stopping.ts"
import * as Variables from "./process/Variables.ts"
import * as Rules from "./Rules.ts"
import * as Presence from "./server/Presence.ts"
import * as StatusView from "./server/StatusView.ts"
import * as Strangers from "./Strangers.ts"
import * as GroupCommit from "./submit/GroupCommit.ts"
import { version } from "./Version.ts"
import type { Handler } from "./worker/HandlerApi.ts"
import * as Handlers from "./worker/Handlers.ts"
import * as WorkerConfig from "./worker/WorkerConfig.ts"
import * as WorkerPool from "./worker/WorkerPool.ts"

/** What stands behind every part of Deadman. */
export type Ports = Exclude<Layer.Success<ReturnType<typeof Adapters.layer>>, Adapters.Adapters | Adapters.DatabaseUrl>

/** Handlers of defined job types, or plain functions by type. */
export type HandlersOf<R> = ReadonlyArray<TypedHandler<R>> | Readonly<Record<string, Handler>>

const isList = <R>(handlers: HandlersOf<R>): handlers is ReadonlyArray<TypedHandler<R>> => Array.isArray(handlers)

export interface Options<R = never>
  extends Given.StoreOptions, Given.WorkerOptions, Given.KeeperOptions, Given.LogOptions
{
  /**
   * What this process runs: `[greet.handle(…)]`, or plain functions `(job, context) => …` by type. Without any it runs
   * nothing and only submits.
   */
  readonly handlers?: HandlersOf<R> | undefined
  /**
   * Whether this process does the chores: it takes back what dead workers held, makes due what waits, fires schedules,
   * prunes. `true` if nothing is said; some process has to.
   */
  readonly keeper?: boolean | undefined
}

const others = ["handlers", "keeper"]

type Spoken = Given.StoreOptions & Given.WorkerOptions & Given.KeeperOptions

const configured = <A, E extends { readonly message: string }, R>(
  options: Spoken,
  layer: Layer.Layer<A, E, R>
): Layer.Layer<A, Given.StartFailed, R> =>
  layer.pipe(
    Layer.provide(Given.layer(options)),
    Layer.catch((error) => Layer.effectContext(Effect.fail(Given.startFailed(options, error))))
  )

// Shared by all parts of one program, since a layer is built once.
const process = Layer.merge(Loops.layer, Stopping.layer)

/** Nothing but the adapters: embedded, one Postgres, or with Redis and Kafka, as the options and the environment say. */
export const layerPorts = (
  options: Given.StoreOptions = {}
): Layer.Layer<Ports | Adapters.Adapters | Adapters.DatabaseUrl, Given.StartFailed> =>
  configured(options, Layer.provide(Adapters.layer("app"), process))

/** Submits, and looks at jobs. Closing its scope refuses new submits and answers those under way. */
export const layerClient: Layer.Layer<
  Client.Client | Submitter,
  never,
  JobStore | Transport | DelayedJobs | Schedules | Queues | Sessions
> = Client
  .layer.pipe(Layer.provideMerge(GroupCommit.layer), Layer.provide(Layer.succeed(Drafts, Rules.rules)))

/** Which handler runs which type of job. */
export const layerHandlers = <R>(handlers: HandlersOf<R>): Layer.Layer<Handlers.Handlers, Given.StartFailed, R> =>
  configured({}, isList(handlers) ? Handlers.layerTyped(handlers) : Handlers.layer(handlers))

/** Runs jobs. Closing its scope drains: running jobs may finish within `drainMs`, the others are handed back. */
export const layerWorker = <R = never>(
  options: Given.WorkerOptions & { readonly handlers: HandlersOf<R>; readonly maxLeaseLosses?: number | undefined }
): Layer.Layer<WorkerPool.WorkerPool, Given.StartFailed, Ports | R> => {
  const config = Layer.effect(WorkerConfig.WorkerConfig, WorkerConfig.fromEnv({ role: "worker", version }))
  return configured(
    options,
    WorkerPool.layer.pipe(Layer.provide(Layer.mergeAll(layerHandlers<R>(options.handlers), config, process)))
  )
}

/** The chores. Any number of processes may do them. */
export const layerKeeper = (
  options: Given.KeeperOptions = {}
): Layer.Layer<never, Given.StartFailed, Ports> =>
  configured(
    options,
    Keeper.layer.pipe(
      Layer.provide(Layer.merge(Layer.effect(KeeperConfig.KeeperConfig, KeeperConfig.fromEnv), process))
    )
  )

const identity = Layer.effect(
  StatusView.Identity,
  Effect.map(Adapters.Adapters, ({ names, profile }) => ({ version, profile, adapters: names }))
)

/** A process that runs nothing is listed too, so that its counters are in the totals. */
const presence = Presence.layer.pipe(Layer.provide(identity), Layer.provide(process))

/** What a server says of all jobs there are: its gauges, and in the log the types that nobody has a handler for. */
const watch = Layer.effectDiscard(Status).pipe(
  Layer.provide(StatusView.layer),
  Layer.provide(identity),
  Layer.provide(process)
)

/** What a program finds when it takes part. */
export type Found = Client.Client | Schedules | Queues | Adapters.DatabaseUrl | Health.Health

const found = Layer.effectContext(
  Effect.map(
    Effect.context<Found>(),
    Context.pick(Client.Client, Schedules, Queues, Adapters.DatabaseUrl, Health.Health)
  )
)

/** What of it the handlers find, too: they are there before the process can be said to be well. */
type HandlersFind = Exclude<Found, Health.Health>

const given = <R>(handlers: HandlersOf<R> | undefined): handlers is HandlersOf<R> => handlers !== undefined

/** JavaScript has no types that would say it. */
const isHandlers = (handlers: unknown): boolean =>
  handlers === undefined || Array.isArray(handlers) ||
  (typeof handlers === "object" && handlers !== null && !isTypedHandler(handlers) &&
    !Object.values(handlers).some(isTypedHandler))

/** What is wrong is said by every process, whatever it does with it: another one would start with the same. */
const check = Effect.fnUntraced(function*(
  options: { readonly handlers?: unknown; readonly keeper?: unknown },
  slotsMin: number
) {
  yield* Given.refuseUnknown(options, others)
  if (!isHandlers(options.handlers)) {
    return yield* Variables.wrong(
      "handlers",
      "must be an array of what handle() makes, or an object of functions by type"
    )
  }
  if (options.keeper !== undefined && typeof options.keeper !== "boolean") {
    return yield* Variables.wrong("keeper", "must be true or false")
  }
  yield* Strangers.say
  yield* WorkerConfig.fromEnv({ role: "worker", version }, slotsMin)
  yield* KeeperConfig.fromEnv
})

/**
 * All of it: the client, the handlers' worker pool if there are handlers, and the chores.
 *
 * Handlers find the client, the ports of schedules and queues, and the address of the database, so that they can submit.
 * Shutdown is the scope closing: the process is not ready from then on, the pool drains first, what the handlers submit
 * meanwhile is stored, the connections go last.
 */
export const layer = <R = never>(
  options: Options<R> = {}
): Layer.Layer<Found, Given.StartFailed, Exclude<R, HandlersFind>> => {
  const { handlers } = options
  const checked = configured(options, Layer.effectDiscard(check(options, given(handlers) ? 1 : 0)))
  const workers: Layer.Layer<never, Given.StartFailed, Ports | Adapters.Adapters | R> = given(handlers)
    ? layerWorker<R>({ ...options, handlers })
    : presence
  const keeper = options.keeper === false ? Layer.empty : Layer.merge(layerKeeper(options), watch)
  const composed = found.pipe(
    Layer.provide(Layer.provide(Health.layer, process)),
    Layer.provide(workers),
    Layer.provideMerge(layerClient),
    Layer.provide(keeper),
    Layer.provide(layerPorts(options)),
    Layer.provide(checked)
  )
  return composed as Layer.Layer<Found, Given.StartFailed, Exclude<R, HandlersFind>>
}
