/**
 * Deadman for programs that know nothing of Effect: promises in front of the Layers.
 *
 * What it rejects with are errors with a message for people and a `_tag` for programs. It never touches the process:
 * signals are the caller's, unless `stopOnSignals` is asked for.
 */
import { Cause, Context, Effect, Exit, Layer, ManagedRuntime } from "effect"
import type { Job } from "../domain/Job.ts"
import type { Schedule } from "../domain/Schedule.ts"
import type { ListPage } from "../ports/JobStore.ts"
import * as Client from "./client/Client.ts"
import type { SubmitOptions } from "./client/SubmitOptions.ts"
import type { Definition } from "./job/Definition.ts"
import * as Layers from "./Layers.ts"
import * as Logging from "./Logging.ts"
import * as Given from "./Options.ts"

export interface StartOptions extends Layers.Options {
  /** SIGINT and SIGTERM call `stop`, and then end the process; a second signal ends it at once. */
  readonly stopOnSignals?: boolean | undefined
}

/** A process that takes part: it submits, and runs the jobs that it has handlers for. */
export interface Deadman {
  /** Stores a job; resolves after the commit. */
  readonly submit: {
    <Payload, Value>(
      job: Definition<string, Payload, Value>,
      payload: NoInfer<Payload>,
      options?: SubmitOptions
    ): Promise<Client.Submission<Value>>
    (type: string, payload?: unknown, options?: SubmitOptions): Promise<Client.Submission>
  }
  /** Stores all of them or none, in one commit. */
  readonly submitAll: (entries: ReadonlyArray<Client.Entry>) => Promise<ReadonlyArray<Client.Submission>>
  /** The job as it is at present; `null` if there is none of this id. */
  readonly get: (job: string | Client.Submission) => Promise<Job | null>
  /** Waits until the job is `completed` or `dead`, whichever; rejects after `timeoutMs`, a minute if nothing is said. */
  readonly wait: <Value = unknown>(
    job: string | Client.Submission<Value>,
    options?: Client.WaitOptions
  ) => Promise<Client.Ended<Value>>
  /** Ends the job: it is `dead`, and a handler that runs is interrupted. */
  readonly cancel: (job: string | Client.Submission) => Promise<Job>
  /** Makes a waiting job due now. */
  readonly retry: (job: string | Client.Submission) => Promise<Job>
  /** A new job from one that has ended. */
  readonly resubmit: (job: string | Client.Submission) => Promise<Job>
  /** One page, newest first. */
  readonly list: (options?: Client.ListOptions) => Promise<ListPage>
  /** Stores a schedule under its name, or changes it: any number of processes may say the same at their start. */
  readonly schedule: (name: string, entry: Client.ScheduleEntry) => Promise<Schedule>
  /** Removes a schedule, and says whether there was one. Its jobs stay. */
  readonly unschedule: (name: string) => Promise<boolean>
  /** Claims nothing more, lets running jobs finish within `drainMs`, hands back the others, and closes all connections. */
  readonly stop: () => Promise<void>
}

/** Rejects with the error itself, rather than with what Effect wraps around it. */
export const settled = <A, E>(exit: Promise<Exit.Exit<A, E>>): Promise<A> =>
  exit.then((ended) => Exit.isSuccess(ended) ? ended.value : Promise.reject(Cause.squash(ended.cause)))

/** `context` is kept, so that handlers can go on submitting while the drain gives them time. */
export const facade = (context: Context.Context<Client.Client>): Omit<Deadman, "stop"> => {
  const service = Context.get(context, Client.Client)
  const runExit = Effect.runPromiseExitWith(context)
  const client = <A, E>(use: (client: Client.Client["Service"]) => Effect.Effect<A, E>): Promise<A> =>
    settled(runExit(use(service)))
  const submit = (job: string, payload: unknown, options?: SubmitOptions) =>
    client((service) => service.submit(job, payload, options))
  return {
    submit: submit as Deadman["submit"],
    submitAll: (entries) => client((service) => service.submitAll(entries)),
    get: (job) => client((service) => service.get(job)),
    wait: (job, options) => client((service) => service.wait(job, options)),
    cancel: (job) => client((service) => service.cancel(job)),
    retry: (job) => client((service) => service.retry(job)),
    resubmit: (job) => client((service) => service.resubmit(job)),
    list: (options) => client((service) => service.list(options)),
    schedule: (name, entry) => client((service) => service.schedule(name, entry)),
    unschedule: (name) => client((service) => service.unschedule(name))
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
 * Without options it is a Postgres of Deadman's own, in `.deadman`, shared by all processes of this folder.
 */
export const start = (options: StartOptions = {}): Promise<Deadman> => {
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
  return settled(runtime.runPromiseExit(Effect.context<Client.Client>())).then(
    (context) => {
      untrap = trap === true ? stopOnSignals(stop) : untrap
      return { ...facade(context), stop }
    },
    (error: unknown) => runtime.dispose().then(() => Promise.reject(error))
  )
}
