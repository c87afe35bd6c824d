/** What a process that runs jobs is told at start, and the relations that must hold. */
import { type Config, Context, Duration, Effect, Layer, Random, Schema } from "effect"
import { namePattern } from "../../domain/Job.ts"
import { heartbeatMs } from "../../domain/Watch.ts"
import * as Variables from "../process/Variables.ts"

export class WorkerConfig extends Context.Service<WorkerConfig, {
  /** Random per boot: a restarted process must never be taken for its predecessor. */
  readonly name: string
  readonly role: "server" | "worker"
  readonly version: string
  /** Jobs run at once. */
  readonly slots: number
  /** How long a lease lives without a renewal. A fifth of it lies between two heartbeats. */
  readonly lease: Duration.Duration
  /** How long running jobs may take to finish once the process is told to stop. */
  readonly drain: Duration.Duration
  /** Counted losses after which a job is dead as a crash loop: the last but one is its trial. */
  readonly lossesMax: number
  /** Time between claims of an idle worker that nobody woke; jittered. */
  readonly poll: Duration.Duration
}>()("deadman/programs/worker/WorkerConfig") {}

type Settings = WorkerConfig["Service"]

export const defaults: Omit<Settings, "name"> = {
  role: "worker",
  version: "0.0.0",
  slots: 4,
  lease: Duration.seconds(5),
  drain: Duration.seconds(10),
  lossesMax: 7,
  poll: Duration.seconds(1)
}

export class WorkerMisconfigured extends Schema.TaggedError<WorkerMisconfigured>()("WorkerMisconfigured", {
  message: Schema.String
}) {}

export const slotsMax = 1_024
const leaseMinMs = 500
const lengthMaxMs = 3_600_000
const lossesCap = 1_000

const refuse = (message: string) => new WorkerMisconfigured({ message })

const check = Effect.fnUntraced(function*(
  config: Settings,
  slotsMin = 1
): Effect.fn.Return<Settings, WorkerMisconfigured> {
  const lease = Duration.toMillis(config.lease)
  const drain = Duration.toMillis(config.drain)
  if (!Number.isInteger(config.slots) || config.slots < slotsMin || config.slots > slotsMax) {
    return yield* refuse(
      `DEADMAN_WORKER_THREADS must be a whole number from ${slotsMin} to ${slotsMax}, not ${config.slots}`
    )
  }
  if (!Number.isInteger(lease) || lease < leaseMinMs || lease > lengthMaxMs) {
    return yield* refuse(`DEADMAN_LEASE_MS must be a whole number from ${leaseMinMs} to ${lengthMaxMs}, not ${lease}`)
  }
  if (!Number.isInteger(drain) || drain < 0 || drain > lengthMaxMs) {
    return yield* refuse(`DEADMAN_DRAIN_MS must be a whole number from 0 to ${lengthMaxMs}, not ${drain}`)
  }
  if (!Number.isInteger(config.lossesMax) || config.lossesMax < 1 || config.lossesMax > lossesCap) {
    return yield* refuse(
      `DEADMAN_MAX_LEASE_LOSSES must be a whole number from 1 to ${lossesCap}, not ${config.lossesMax}`
    )
  }
  if (!namePattern.test(config.name)) {
    return yield* refuse(
      `DEADMAN_WORKER_NAME must be 1 to 119 characters of A-Z a-z 0-9 . _ : -, beginning with a letter or digit`
    )
  }
  return config
})

export const heartbeat = (config: Settings): Duration.Duration =>
  Duration.millis(heartbeatMs(Duration.toMillis(config.lease)))

/** For tests and for embedding: the defaults, with some replaced. */
export const layer = (options: Partial<Settings>): Layer.Layer<WorkerConfig, WorkerMisconfigured> =>
  Layer.effect(WorkerConfig, check({ ...defaults, name: "worker", ...options }))

/** From `DEADMAN_*` variables, which the README lists. `slotsMin`: 0 where a process may run nothing. */
export const fromEnv = Effect.fnUntraced(function*(
  about: Pick<Settings, "role" | "version">,
  slotsMin = 1
): Effect.fn.Return<Settings, WorkerMisconfigured | Variables.Misconfigured | Config.ConfigError> {
  const name = (yield* Variables.text("DEADMAN_WORKER_NAME")) ?? about.role
  const length = (variable: string, otherwise: Duration.Duration, minimum: number) =>
    Effect.map(
      Variables.whole(variable, Duration.toMillis(otherwise), { minimum, maximum: lengthMaxMs }),
      Duration.millis
    )
  const suffix = Math.floor((yield* Random.next) * 2 ** 32).toString(16).padStart(8, "0")
  return yield* check({
    ...defaults,
    ...about,
    name: `${name}-${suffix}`,
    slots: yield* Variables.whole("DEADMAN_WORKER_THREADS", defaults.slots, { minimum: slotsMin, maximum: slotsMax }),
    lossesMax: yield* Variables.whole("DEADMAN_MAX_LEASE_LOSSES", defaults.lossesMax, {
      minimum: 1,
      maximum: lossesCap
    }),
    lease: yield* length("DEADMAN_LEASE_MS", defaults.lease, leaseMinMs),
    drain: yield* length("DEADMAN_DRAIN_MS", defaults.drain, 0)
  }, slotsMin)
})
