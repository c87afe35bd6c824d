/**
 * Whose keys these are: one installation's. A second one beside it would take away what is due from the first, and each
 * would find its jobs late, by the scan of Postgres; nothing else would say why.
 */
import { Effect, type Scope } from "effect"
import { Redis, script } from "./Redis.ts"

const everyMs = 600_000
/** Until it is tried again, where Postgres or Redis did not answer. */
const againMs = 10_000
/** So long after the last process of an installation its keys may be another's. */
const keptMs = 3 * everyMs
const deadlineMs = 1_000

/** KEYS the owner. ARGV who asks, its ms to live, who that was before. Answers who has them. */
const own = script(`
  local owner = redis.call('GET', KEYS[1])
  if owner and owner ~= ARGV[1] and owner ~= ARGV[3] then return owner end
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return ARGV[1]`)

/**
 * Takes the keys, again and again, and says it once if they are another's. Who asks is found out each time: a database may
 * be replaced under a process that goes on, by a restore behind the same address.
 */
export const watch = <R>(
  installation: Effect.Effect<string | null, never, R>
): Effect.Effect<void, never, R | Redis | Scope.Scope> =>
  Effect.gen(function*() {
    const redis = yield* Redis
    let before = ""
    let said = false
    /** Answers when the next one is due. */
    const round = Effect.gen(function*() {
      const now = yield* installation
      if (now === null) {
        return againMs
      }
      const owner = yield* redis.run(own, [`${redis.prefix}owner`], [now, keptMs, before], deadlineMs)
      before = now
      if (owner !== now && !said) {
        said = true
        yield* Effect.logWarning(
          "another installation of Deadman uses this Redis with the same keys: each takes away what is due from the " +
            "other, and jobs start late. Give each of them a DEADMAN_REDIS_PREFIX, or a database number, of its own"
        )
      }
      return everyMs
    })
    yield* Effect.forkScoped(
      Effect.forever(Effect.flatMap(Effect.orElseSucceed(round, () => againMs), (ms) => Effect.sleep(ms)))
    )
  })
