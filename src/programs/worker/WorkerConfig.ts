/** What a process that runs jobs is told at start, and the relations that must hold. */
import { Config, Context, Duration, Effect, Layer, Random, Schema } from "effect"
import { namePattern } from "../../domain/Job.ts"
import { heartbeatMs } from "../../domain/Watch.ts"

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
  lossesMax: 5,
  poll: Duration.seconds(1)
}

export class WorkerMisconfigured extends Schema.TaggedError<WorkerMisconfigured>()("WorkerMisconfigured", {
  message: Schema.String
}) {}

export const slotsMax = 1_024

const refuse = (message: string) => new WorkerMisconfigured({ message })

const check = Effect.fnUntraced(function*(config: Settings): Effect.fn.Return<Settings, WorkerMisconfigured> {
  const lease = Duration.toMillis(config.lease)
  const drain = Duration.toMillis(config.drain)
  if (!Number.isInteger(config.slots) || config.slots < 1 || config.slots > slotsMax) {
    return yield* refuse(`DEADMAN_WORKER_THREADS must be a whole number from 1 to ${slotsMax}, not ${config.slots}`)
  }
  if (!Number.isInteger(lease) || lease < 500 || lease > 3_600_000) {
    return yield* refuse(`DEADMAN_LEASE_MS must be a whole number from 500 to 3600000, not ${lease}`)
  }
  if (!Number.isInteger(drain) || drain < 0 || drain > 3_600_000) {
    return yield* refuse(`DEADMAN_DRAIN_MS must be a whole number from 0 to 3600000, not ${drain}`)
  }
  if (!Number.isInteger(config.lossesMax) || config.lossesMax < 1 || config.lossesMax > 1_000) {
    return yield* refuse(`DEADMAN_MAX_LEASE_LOSSES must be a whole number from 1 to 1000, not ${config.lossesMax}`)
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

const whole = (name: string, otherwise: number) =>
  Config.String(name).pipe(
    Config.withDefault(String(otherwise)),
    // Set to nothing counts as not set, as with every other variable: `Number("")` would be 0.
    Config.map((text) => (text.trim() === "" ? otherwise : Number(text)))
  )

/** From `DEADMAN_*` variables, which the README lists. */
export const layerFromEnv = (
  about: Pick<Settings, "role" | "version">
): Layer.Layer<WorkerConfig, WorkerMisconfigured | Config.ConfigError> =>
  Layer.effect(
    WorkerConfig,
    Effect.gen(function*() {
      const env = yield* Config.all({
        name: Config.String("WORKER_NAME").pipe(Config.withDefault(about.role)),
        slots: whole("WORKER_THREADS", defaults.slots),
        leaseMs: whole("LEASE_MS", Duration.toMillis(defaults.lease)),
        drainMs: whole("DRAIN_MS", Duration.toMillis(defaults.drain)),
        lossesMax: whole("MAX_LEASE_LOSSES", defaults.lossesMax)
      }).pipe(Config.nested("DEADMAN"))
      const suffix = Math.floor((yield* Random.next) * 2 ** 32).toString(16).padStart(8, "0")
      const length = (name: string, ms: number) =>
        Number.isFinite(ms)
          ? Effect.succeed(Duration.millis(ms))
          : refuse(`${name} must be a whole number of milliseconds`)
      return yield* check({
        ...defaults,
        ...about,
        name: `${env.name}-${suffix}`,
        slots: env.slots,
        lossesMax: env.lossesMax,
        lease: yield* length("DEADMAN_LEASE_MS", env.leaseMs),
        drain: yield* length("DEADMAN_DRAIN_MS", env.drainMs)
      })
    })
  )
