/**
 * What a program of one's own may say when it starts Deadman.
 *
 * Each option stands for a variable of the environment and goes before it, so that all of the rules, the defaults and
 * the checks are those of the shipped programs. What is wrong is said in the words of whoever said it.
 */
import { Config, ConfigProvider, Effect, type Layer, Schema } from "effect"
import * as Spelling from "../domain/Spelling.ts"
import * as Variables from "./process/Variables.ts"

/** Where the jobs are kept, and how they travel. */
export interface StoreOptions {
  /**
   * A Postgres, by an address as psql takes it (`sslmode` and `sslrootcert` too); without it (and without
   * `DEADMAN_DATABASE_URL`) one of Deadman's own is started from npm.
   */
  readonly databaseUrl?: string | undefined
  /** Where Deadman's own Postgres keeps its data: `.deadman` if nothing is said. */
  readonly dataDir?: string | undefined
  /** A Redis for leases and delays; without it Postgres does it. `rediss:` for TLS. */
  readonly redisUrl?: string | undefined
  /** What every key begins with: `deadman:` if nothing is said. Installations that share a Redis need one each. */
  readonly redisPrefix?: string | undefined
  /** A PEM file with the authority to trust, for `rediss:`, instead of the well-known ones. */
  readonly redisSslCa?: string | undefined
  /** PEM files with a client certificate and its key, for a Redis that asks for one. */
  readonly redisSslCert?: string | undefined
  /** The key of `redisSslCert`, not encrypted. */
  readonly redisSslKey?: string | undefined
  /** `host:port`, with commas between: a Kafka that spreads the jobs; without it Postgres does it. */
  readonly kafkaBrokers?: string | undefined
  /** What the names of topics and group begin with. Installations that share a Kafka need one each. */
  readonly kafkaPrefix?: string | undefined
  /** Whether those brokers are spoken to over TLS. */
  readonly kafkaSsl?: boolean | undefined
  /** A PEM file with the authority to trust instead of the well-known ones. */
  readonly kafkaSslCa?: string | undefined
  /** PEM files with a client certificate and its key, for brokers that ask for one. */
  readonly kafkaSslCert?: string | undefined
  /** The key of `kafkaSslCert`, not encrypted. */
  readonly kafkaSslKey?: string | undefined
  /** How those brokers are logged in to, with `kafkaSaslUsername` and `kafkaSaslPassword`; `none` if nothing is said. */
  readonly kafkaSaslMechanism?: "plain" | "scram-sha-256" | "scram-sha-512" | "none" | undefined
  readonly kafkaSaslUsername?: string | undefined
  /** In no log, error or answer. */
  readonly kafkaSaslPassword?: string | undefined
  /** Connections for submits, claims and settles, 1 to 100: 4 if nothing is said. */
  readonly storePool?: number | undefined
  /** Connections for transactions that handlers take part in, 1 to 100: 3 if nothing is said. */
  readonly handlerPool?: number | undefined
  /** How long, in milliseconds, an idempotencyKey outlives its job's end: a day if nothing is said. */
  readonly keyTtlMs?: number | undefined
}

/** How jobs are run. */
export interface WorkerOptions {
  /**
   * Jobs run at once by this process, of all types together, 1 to 1,024: 4 if nothing is said. Many for handlers that
   * wait, about one for handlers that compute. A queue's own limit is its `concurrency`.
   */
  readonly slots?: number | undefined
  /** For people; a random suffix is added. */
  readonly workerName?: string | undefined
  /**
   * How long, in milliseconds, this process may be quiet before its jobs are another's, 500 to 3,600,000: 5,000 if
   * nothing is said. It is no limit of a run: the lease is renewed while the process lives.
   */
  readonly leaseMs?: number | undefined
  /**
   * How long, in milliseconds, running jobs may take to finish once the process is told to stop: 10,000 if nothing is
   * said. Then they are interrupted and handed back, at no cost.
   */
  readonly drainMs?: number | undefined
}

/** How the chores are done. */
export interface KeeperOptions {
  /** A job that takes this many workers down is dead as a crash loop: 7 if nothing is said. */
  readonly maxLeaseLosses?: number | undefined
  /** How long, in milliseconds, completed jobs are kept, a minute at least: 7 days if nothing is said. */
  readonly retainCompletedMs?: number | undefined
  /** How long, in milliseconds, dead jobs are kept, a minute at least: 30 days if nothing is said. */
  readonly retainDeadMs?: number | undefined
}

export interface LogOptions {
  /** From `debug` to `none`. `warn` if nothing is said (the shipped programs: `info`). To stderr. */
  readonly logLevel?: "debug" | "info" | "warn" | "error" | "none" | undefined
  /** Lines for people, or one JSON document each; by whether stdout is a terminal if nothing is said. */
  readonly logFormat?: "pretty" | "json" | undefined
}

type Options = StoreOptions & WorkerOptions & KeeperOptions & LogOptions

const variables: Readonly<Record<keyof Options, string>> = {
  databaseUrl: "DEADMAN_DATABASE_URL",
  dataDir: "DEADMAN_DATA_DIR",
  redisUrl: "DEADMAN_REDIS_URL",
  redisPrefix: "DEADMAN_REDIS_PREFIX",
  redisSslCa: "DEADMAN_REDIS_SSL_CA",
  redisSslCert: "DEADMAN_REDIS_SSL_CERT",
  redisSslKey: "DEADMAN_REDIS_SSL_KEY",
  kafkaBrokers: "DEADMAN_KAFKA_BROKERS",
  kafkaPrefix: "DEADMAN_KAFKA_PREFIX",
  kafkaSsl: "DEADMAN_KAFKA_SSL",
  kafkaSslCa: "DEADMAN_KAFKA_SSL_CA",
  kafkaSslCert: "DEADMAN_KAFKA_SSL_CERT",
  kafkaSslKey: "DEADMAN_KAFKA_SSL_KEY",
  kafkaSaslMechanism: "DEADMAN_KAFKA_SASL_MECHANISM",
  kafkaSaslUsername: "DEADMAN_KAFKA_SASL_USERNAME",
  kafkaSaslPassword: "DEADMAN_KAFKA_SASL_PASSWORD",
  storePool: "DEADMAN_STORE_POOL",
  handlerPool: "DEADMAN_HANDLER_POOL",
  keyTtlMs: "DEADMAN_KEY_TTL_MS",
  slots: "DEADMAN_WORKER_THREADS",
  workerName: "DEADMAN_WORKER_NAME",
  leaseMs: "DEADMAN_LEASE_MS",
  drainMs: "DEADMAN_DRAIN_MS",
  maxLeaseLosses: "DEADMAN_MAX_LEASE_LOSSES",
  retainCompletedMs: "DEADMAN_RETAIN_COMPLETED_MS",
  retainDeadMs: "DEADMAN_RETAIN_DEAD_MS",
  logLevel: "DEADMAN_LOG_LEVEL",
  logFormat: "DEADMAN_LOG_FORMAT"
}

const names = Object.keys(variables) as ReadonlyArray<keyof Options>

/** These two exclude each other: an option must not be contradicted by the environment. */
const hides: Partial<Record<keyof Options, keyof Options>> = { databaseUrl: "dataDir", dataDir: "databaseUrl" }

/** The configuration with `options` in front of what there is already. */
export const layer = (options: Options): Layer.Layer<never> => {
  const given: Record<string, string> = {}
  for (const name of names) {
    const value = options[name]
    const hidden = hides[name]
    if (value !== undefined) {
      given[variables[name]] = String(value)
      if (hidden !== undefined && options[hidden] === undefined) {
        // Set to nothing is what stands for a variable that is left out.
        given[variables[hidden]] = ""
      }
    }
  }
  return ConfigProvider.layerAdd(ConfigProvider.fromEnvRecord(given, { preserveEmptyStrings: true }), {
    asPrimary: true
  })
}

/** Deadman could not be started as it was asked to: change what the message names. */
export class StartFailed extends Schema.TaggedError<StartFailed>()("StartFailed", { message: Schema.String }) {}

/** An option is called what its writer called it, whatever variable it stands for. */
export const startFailed = (options: Options, error: { readonly message: string }): StartFailed => {
  const text = error instanceof Config.ConfigError ? `the configuration is wrong: ${error.message}` : error.message
  return new StartFailed({
    message: names.reduce(
      // Some begin as others do.
      (said, name) =>
        options[name] === undefined ? said : said.replaceAll(new RegExp(`${variables[name]}(?![A-Z_])`, "g"), name),
      text
    )
  })
}

/** A misspelt option would silently be the default. */
export const refuseUnknown = (options: object, others: ReadonlyArray<string>) =>
  Effect.suspend(() => {
    const known: ReadonlyArray<string> = [...names, ...others]
    const strange = Object.keys(options).find((name) => !known.includes(name))
    if (strange === undefined) return Effect.void
    const near = Spelling.meant(strange, known)
    const asked = near === null ? "" : `. Is ${near} meant?`
    return Effect.fail(Variables.wrong(strange, `is not an option; these are: ${known.join(", ")}${asked}`))
  })
