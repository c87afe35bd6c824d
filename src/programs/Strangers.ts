/** Variables of the environment that are called like one of Deadman's and are none: most likely a typing error. */
import { Effect } from "effect"
import { distance } from "../domain/Spelling.ts"

/** What the README lists. */
export const known: ReadonlyArray<string> = [
  "DEADMAN_API_TOKEN",
  "DEADMAN_DATABASE_URL",
  "DEADMAN_DATA_DIR",
  "DEADMAN_DRAIN_MS",
  "DEADMAN_HANDLERS",
  "DEADMAN_HANDLER_POOL",
  "DEADMAN_HOST",
  "DEADMAN_KAFKA_BROKERS",
  "DEADMAN_KAFKA_PREFIX",
  "DEADMAN_KAFKA_SASL_MECHANISM",
  "DEADMAN_KAFKA_SASL_PASSWORD",
  "DEADMAN_KAFKA_SASL_USERNAME",
  "DEADMAN_KAFKA_SSL",
  "DEADMAN_KAFKA_SSL_CA",
  "DEADMAN_KAFKA_SSL_CERT",
  "DEADMAN_KAFKA_SSL_KEY",
  "DEADMAN_KEY_TTL_MS",
  "DEADMAN_LEASE_MS",
  "DEADMAN_LOG_FORMAT",
  "DEADMAN_LOG_LEVEL",
  "DEADMAN_MAX_LEASE_LOSSES",
  "DEADMAN_METRICS_PORT",
  "DEADMAN_PORT",
  "DEADMAN_REDIS_PREFIX",
  "DEADMAN_REDIS_SSL_CA",
  "DEADMAN_REDIS_SSL_CERT",
  "DEADMAN_REDIS_SSL_KEY",
  "DEADMAN_REDIS_URL",
  "DEADMAN_RETAIN_COMPLETED_MS",
  "DEADMAN_RETAIN_DEAD_MS",
  "DEADMAN_STORE_POOL",
  "DEADMAN_URL",
  "DEADMAN_WORKER_NAME",
  "DEADMAN_WORKER_THREADS"
]

const prefix = "DEADMAN_"
/** What tests, the services for trying, and the programs that torment and measure are told. */
export const reserved = /^DEADMAN_(TEST|SERVICES|SIEGE|CHAOS|BENCH)(_|$)/
const saidMax = 10
const nameMax = 60

const nearest = (name: string): string => {
  const away = (other: string) => distance(name.slice(prefix.length), other.slice(prefix.length))
  return known.reduce((best, other) => away(other) < away(best) ? other : best)
}

/** A line for each, bounded. Their values are never shown. */
export const lines = (names: ReadonlyArray<string>): ReadonlyArray<string> => {
  const strange = names.filter((name) => name.startsWith(prefix) && !known.includes(name) && !reserved.test(name))
    .sort()
  const said = strange.slice(0, saidMax).map((name) => {
    const shown = name.slice(0, nameMax)
    return `${shown} is not a variable of Deadman and is ignored: is ${nearest(shown)} meant?`
  })
  return strange.length > saidMax ? [...said, `${strange.length - saidMax} more such variables are ignored`] : said
}

/** Says each of those that this process has. */
export const say: Effect.Effect<void> = Effect.suspend(() =>
  Effect.forEach(lines(Object.keys(process.env)), (line) => Effect.logWarning(line), { discard: true })
)
