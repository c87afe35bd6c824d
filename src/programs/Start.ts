/**
 * Deadman for programs that know nothing of Effect: promises in front of the Layers.
 *
 * What it rejects with are errors with a message for people and a `_tag` for programs. It never touches the process:
 * signals are the caller's, unless `stopOnSignals` is asked for.
 */
import { Cause, Context, Effect, Exit, Layer, ManagedRuntime, Redacted } from "effect"
import type { Readiness } from "../ports/Status.ts"
import { DatabaseUrl } from "./Adapters.ts"
import * as Client from "./client/Client.ts"
import type { Jobs } from "./client/Promises.ts"
import type { SubmitOptions } from "./client/SubmitOptions.ts"
import { Health } from "./Health.ts"
import * as Layers from "./Layers.ts"
import * as Logging from "./Logging.ts"
import * as Given from "./Options.ts"

export interface StartOptions extends Layers.Options {
  /** SIGINT and SIGTERM call `stop`, and then end the process; a second signal ends it at once. */
  readonly stopOnSignals?: boolean | undefined
}

/** A process that takes part: it submits, and runs the jobs that it has handlers for. */
export interface Deadman extends Jobs {
  /** The Postgres with the jobs, Deadman's own included, for transactions of one's own. It holds a password. */
  readonly databaseUrl: string
  /** Whether this process is well: its loops make progress, and the database answers. For a probe of readiness. */
  readonly ready: () => Promise<Readiness>
  /** What this process has counted since its start, as Prometheus text. */
  readonly metrics: () => Promise<string>
  /** Claims nothing more, lets running jobs finish within `drainMs`, hands back the others, and closes all connections. */
  readonly stop: () => Promise<void>
}

/** Rejects with the error itself, rather than with what Effect wraps around it. */
export const settled = <A, E>(exit: Promise<Exit.Exit<A, E>>): Promise<A> =>
  exit.then((ended) => Exit.isSuccess(ended) ? ended.value : Promise.reject(Cause.squash(ended.cause)))

/** `context` is kept, so that handlers can go on submitting while the drain gives them time. */
export const facade = (context: Context.Context<Client.Client>): Jobs => {
  const service = Context.get(context, Client.Client)
  const runExit = Effect.runPromiseExitWith(context)
  const client = <A, E>(use: (client: Client.Client["Service"]) => Effect.Effect<A, E>): Promise<A> =>
    settled(runExit(use(service)))
  const submit = (job: string, payload: unknown, options?: SubmitOptions) =>
    client((service) => service.submit(job, payload, options))
  return {
    submit: submit as Jobs["submit"],
    submitAll: (entries) => client((service) => service.submitAll(entries)),
    get: (job) => client((service) => service.get(job)),
    wait: (job, options) => client((service) => service.wait(job, options)),
    cancel: (job) => client((service) => service.cancel(job)),
    retry: (job) => client((service) => service.retry(job)),
    resubmit: (job) => client((service) => service.resubmit(job)),
    list: (options) => client((service) => service.list(options)),
    schedule: (name, entry) => client((service) => service.schedule(name, entry)),
    unschedule: (name) => client((service) => service.unschedule(name)),
    schedules: {
      put: (name, entry) => client(({ schedules }) => schedules.put(name, entry)),
      get: (name) => client(({ schedules }) => schedules.get(name)),
      list: (options) => client(({ schedules }) => schedules.list(options)),
      pause: (name) => client(({ schedules }) => schedules.pause(name)),
      resume: (name) => client(({ schedules }) => schedules.resume(name)),
      run: (name, options) => client(({ schedules }) => schedules.run(name, options)),
      delete: (name) => client(({ schedules }) => schedules.delete(name))
    },
    queues: {
      list: (options) => client(({ queues }) => queues.list(options)),
      get: (name) => client(({ queues }) => queues.get(name)),
      set: (name, change) => client(({ queues }) => queues.set(name, change)),
      pause: (name) => client(({ queues }) => queues.pause(name)),
      resume: (name) => client(({ queues }) => queues.resume(name))
    },
    stats: () => client(({ stats }) => stats)
  }
}

const signals = { SIGINT: 2, SIGTERM: 15 } as const
/** Ctrl-C under npm arrives twice, from the terminal and from npm. */
const echoMs = 250

const stopOnSignals = (stop: () => Promise<void>): () => void => {
  let toldMs: number | null = null
  const told = (signal: NodeJS.Signals) => {
    if (toldMs !== null && performance.now() - toldMs > echoMs) {
      process.exit(128 + signals[signal as keyof typeof signals])
    }
    if (toldMs === null) {
      toldMs = performance.now()
      void stop().then(() => process.exit(0), () => process.exit(1))
    }
  }
  const names = Object.keys(signals) as ReadonlyArray<NodeJS.Signals>
  names.forEach((name) => process.on(name, told))
  return () => names.forEach((name) => process.off(name, told))
}

/**
 * Starts taking part, and resolves when everything is up: the database has its schema, and jobs are being claimed.
 *
 * Without options it is a Postgres of Deadman's own, in `.deadman`, shared by all processes of this folder. With
 * `handlers` it runs jobs, without any it only submits; it does the chores unless `keeper` is `false`. Nothing ends the
 * process: call `stop()`, or say `stopOnSignals`.
 *
 * Rejects with `StartFailed`, whose message names the option to change. A database that is away is waited for: for two
 * minutes where its address refuses, for up to eight where nobody answers at all.
 *
 * ```ts
 * const deadman = await Deadman.start({ databaseUrl: "postgres://user@host:5432/name", handlers: [greeter], slots: 8 })
 * const job = await deadman.submit(greet, { name: "Ada" })
 * await deadman.stop()
 * ```
 */
export const start = (options: StartOptions = {}): Promise<Deadman> => {
  const given: unknown = options
  if (typeof given !== "object" || given === null) {
    const message =
      "the options are an object, as in Deadman.start({ databaseUrl: \"postgres://user@host:5432/name\" })"
    return Promise.reject(new Given.StartFailed({ message }))
  }
  const { stopOnSignals: trap, ...rest } = options
  const log = Logging.layer(process.stderr).pipe(
    Layer.provide(
      Given.layer({
        logLevel: rest.logLevel ?? (process.env["DEADMAN_LOG_LEVEL"] ? undefined : "warn"),
        logFormat: rest.logFormat
      })
    ),
    Layer.catch((error) => Layer.effectContext(Effect.fail(Given.startFailed(rest, error))))
  )
  const runtime = ManagedRuntime.make(Layers.layer(rest).pipe(Layer.provideMerge(log)))
  let stopped: Promise<void> | undefined
  const stop = (): Promise<void> => stopped ??= runtime.dispose().finally(() => untrap())
  let untrap = () => {}
  return settled(runtime.runPromiseExit(Effect.context<Client.Client | DatabaseUrl | Health>())).then(
    (context) => {
      untrap = trap === true ? stopOnSignals(stop) : untrap
      const url = Redacted.value(Context.get(context, DatabaseUrl))
      const health = Context.get(context, Health)
      const run = Effect.runPromiseWith(context)
      const deadman = {
        ...facade(context),
        databaseUrl: url,
        ready: () => run(health.ready),
        metrics: () => run(health.metrics),
        stop
      }
      // Not enumerable, so that whoever prints it prints no password.
      return Object.defineProperty(deadman, "databaseUrl", { enumerable: false })
    },
    (error: unknown) => runtime.dispose().then(() => Promise.reject(error))
  )
}
