/** How the chores are done, and the relations that must hold. */
import { Config, Context, Duration, Effect, Layer, Schema } from "effect"

export class KeeperConfig extends Context.Service<KeeperConfig, {
  /** Time between two looks at the leases. */
  readonly look: Duration.Duration
  /** The same while there are none. */
  readonly lookIdle: Duration.Duration
  /** The longest time until something that is due is noticed without being told. */
  readonly promotePoll: Duration.Duration
  readonly announcePoll: Duration.Duration
  readonly prunePoll: Duration.Duration
  /** Counted losses after which a job is dead as a crash loop. */
  readonly lossesMax: number
  readonly retainCompleted: Duration.Duration
  readonly retainDead: Duration.Duration
}>()("deadman/programs/keeper/KeeperConfig") {}

export const defaults: KeeperConfig["Service"] = {
  look: Duration.millis(200),
  // What a job waits longest for its rescue is this, a lease and a fifth, one look, and the delay after a loss:
  // for the default lease of 5 s that is within lease + 2 s.
  lookIdle: Duration.millis(400),
  promotePoll: Duration.seconds(1),
  announcePoll: Duration.seconds(2),
  prunePoll: Duration.seconds(10),
  lossesMax: 5,
  retainCompleted: Duration.days(7),
  retainDead: Duration.days(30)
}

export const layer = (options: Partial<KeeperConfig["Service"]> = {}): Layer.Layer<KeeperConfig> =>
  Layer.succeed(KeeperConfig, { ...defaults, ...options })

/** Up to a hundred years: a wrong unit is more likely than a longer wish. */
const RetainMs = Schema.Int.check(Schema.isBetween({ minimum: 1_000, maximum: 3_155_760_000_000 }))
const LossesMax = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 1_000 }))
const fromText = <S extends Schema.Codec<number, number>>(schema: S) =>
  Schema.NumberFromString.pipe(Schema.decodeTo(schema))

/** From `DEADMAN_MAX_LEASE_LOSSES`, `DEADMAN_RETAIN_COMPLETED_MS` and `DEADMAN_RETAIN_DEAD_MS`. */
export const layerFromEnv = Layer.effect(
  KeeperConfig,
  Effect.gen(function*() {
    const env = yield* Config.all({
      lossesMax: Config.schema(fromText(LossesMax), "MAX_LEASE_LOSSES").pipe(Config.withDefault(defaults.lossesMax)),
      retainCompleted: Config.schema(fromText(RetainMs), "RETAIN_COMPLETED_MS").pipe(
        Config.withDefault(Duration.toMillis(defaults.retainCompleted))
      ),
      retainDead: Config.schema(fromText(RetainMs), "RETAIN_DEAD_MS").pipe(
        Config.withDefault(Duration.toMillis(defaults.retainDead))
      )
    }).pipe(Config.nested("DEADMAN"))
    return {
      ...defaults,
      lossesMax: env.lossesMax,
      retainCompleted: Duration.millis(env.retainCompleted),
      retainDead: Duration.millis(env.retainDead)
    }
  })
)
