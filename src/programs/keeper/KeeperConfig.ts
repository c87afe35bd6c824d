/** How the chores are done, and the relations that must hold. */
import { type Config, Context, Duration, Effect, Layer } from "effect"
import { keptLeastMs } from "../../ports/JobStore.ts"
import * as Variables from "../process/Variables.ts"

export class KeeperConfig extends Context.Service<KeeperConfig, {
  /** Time between two looks at the leases. */
  readonly look: Duration.Duration
  /** The same while there are none. */
  readonly lookIdle: Duration.Duration
  /** The longest time until something that is due is noticed without being told. */
  readonly promotePoll: Duration.Duration
  /** The longest time until a job that was not started in time is noticed. */
  readonly expirePoll: Duration.Duration
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
  expirePoll: Duration.seconds(2),
  announcePoll: Duration.seconds(2),
  prunePoll: Duration.seconds(10),
  lossesMax: 7,
  retainCompleted: Duration.days(7),
  retainDead: Duration.days(30)
}

export const layer = (options: Partial<KeeperConfig["Service"]> = {}): Layer.Layer<KeeperConfig> =>
  Layer.succeed(KeeperConfig, { ...defaults, ...options })

/**
 * At least as long as a submit whose answer was lost may come again under its id: gone before, its job would run anew.
 * At most a hundred years: a wrong unit is more likely than a longer wish.
 */
const retainBounds = { minimum: keptLeastMs, maximum: 3_155_760_000_000 }

/** From `DEADMAN_MAX_LEASE_LOSSES`, `DEADMAN_RETAIN_COMPLETED_MS` and `DEADMAN_RETAIN_DEAD_MS`. */
export const fromEnv: Effect.Effect<
  KeeperConfig["Service"],
  Variables.Misconfigured | Config.ConfigError
> = Effect.gen(function*() {
  const retain = (name: string, otherwise: Duration.Duration) =>
    Effect.map(Variables.whole(name, Duration.toMillis(otherwise), retainBounds), Duration.millis)
  return {
    ...defaults,
    lossesMax: yield* Variables.whole("DEADMAN_MAX_LEASE_LOSSES", defaults.lossesMax, { minimum: 1, maximum: 1_000 }),
    retainCompleted: yield* retain("DEADMAN_RETAIN_COMPLETED_MS", defaults.retainCompleted),
    retainDead: yield* retain("DEADMAN_RETAIN_DEAD_MS", defaults.retainDead)
  }
})
