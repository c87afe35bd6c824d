/**
 * Which adapter stands behind each port. The only file that knows them all.
 *
 * Behaviours ask for ports; entry points give them these. A database that is away at the start is waited for, so that
 * services may come up in any order; one that can never be used (a wrong password, a newer schema) ends the start at
 * once. Nothing listens before the schema is there: a start that waits says so in the log.
 */
import { type Config, Context, Effect, Layer, type Redacted, Schedule } from "effect"
import { resolve } from "node:path"
import * as EmbeddedPostgres from "../adapters/embedded/EmbeddedPostgres.ts"
import * as Database from "../adapters/postgres/Database.ts"
import * as DelayedJobsPostgres from "../adapters/postgres/DelayedJobsPostgres.ts"
import * as GuardedEffectsPostgres from "../adapters/postgres/GuardedEffectsPostgres.ts"
import * as Installation from "../adapters/postgres/Installation.ts"
import * as JobStorePostgres from "../adapters/postgres/JobStorePostgres.ts"
import * as LeaseRegisterPostgres from "../adapters/postgres/LeaseRegisterPostgres.ts"
import * as Migrations from "../adapters/postgres/Migrations.ts"
import * as QueuesPostgres from "../adapters/postgres/QueuesPostgres.ts"
import * as SchedulesPostgres from "../adapters/postgres/SchedulesPostgres.ts"
import * as SessionsPostgres from "../adapters/postgres/SessionsPostgres.ts"
import type { Server } from "../adapters/postgres/Target.ts"
import * as TransportPostgres from "../adapters/postgres/TransportPostgres.ts"
import type { DelayedJobs } from "../ports/DelayedJobs.ts"
import type { LeaseRegister } from "../ports/LeaseRegister.ts"
import type { Transport } from "../ports/Transport.ts"
import * as KafkaConfig from "./KafkaConfig.ts"
import * as Flagged from "./process/Flagged.ts"
import { Loops } from "./process/Loops.ts"
import { RhythmPhase } from "./process/RhythmPhase.ts"
import * as Variables from "./process/Variables.ts"
import * as RedisConfig from "./RedisConfig.ts"
import * as StoreConfig from "./StoreConfig.ts"

/** For the banner and `/stats`. */
export class Adapters extends Context.Service<Adapters, {
  readonly profile: string
  /** Where Deadman's own Postgres lives; `null` with another one. */
  readonly dataDir: string | null
  /** By port. */
  readonly names: Readonly<Record<string, string>>
}>()("deadman/programs/Adapters") {}

/** The Postgres with the jobs, Deadman's own included. Its own never changes its port while a process is a member. */
export class DatabaseUrl
  extends Context.Service<DatabaseUrl, Redacted.Redacted>()("deadman/programs/Adapters/DatabaseUrl")
{}

const names = {
  JobStore: "Postgres",
  LeaseRegister: "Postgres (rows of leases)",
  Transport: "Postgres (LISTEN/NOTIFY)",
  DelayedJobs: "Postgres (query)"
}

const waitEvery = "1 second"
const sayEvery = 5
const waitTimes = 120

const migrated = ({ pem, url }: Server) => {
  let failures = 0
  return Migrations.migrate(url, pem).pipe(
    Effect.tapError((error) => {
      failures += 1
      return Migrations.isHopeless(error) || failures % sayEvery !== 1
        ? Effect.void
        : Effect.logWarning(`waiting for the database: ${error.message}`)
    }),
    Effect.retry({
      while: (error) => !Migrations.isHopeless(error),
      schedule: Schedule.spaced(waitEvery),
      times: waitTimes
    }),
    Effect.mapError((error) => new StoreConfig.StoreFailed({ message: error.message }))
  )
}

const serverOf = (profile: StoreConfig.Profile) =>
  profile._tag === "embedded"
    ? Effect.map(EmbeddedPostgres.acquire({ dataDir: profile.dataDir }), ({ url }): Server => ({ url }))
    : Effect.as(
      Effect.forEach(
        profile.ignored,
        (name) => Effect.logWarning(`${name} in DEADMAN_DATABASE_URL has no effect and is ignored`),
        { discard: true }
      ),
      { url: profile.url, pem: profile.pem }
    )

/** The database of the chosen profile, brought up to date, and the rest of its configuration. */
const connected = Effect.fnUntraced(function*(program: string, queued: boolean) {
  const config = yield* StoreConfig.fromEnv
  const server = yield* serverOf(config.profile)
  yield* migrated(server)
  const database = Database.layer({
    ...server,
    storePool: config.storePool,
    handlerPool: config.handlerPool,
    hotTimeoutMs: config.statementMs,
    applicationName: `deadman-${program}`
  })
  const store = JobStorePostgres.layer({ wake: true, queued, keyTtlMs: config.keyTtlMs })
  const dataDir = config.profile._tag === "embedded" ? resolve(config.profile.dataDir) : null
  return { profile: config.profile._tag, url: server.url, dataDir, database, store, keyTtlMs: config.keyTtlMs }
})

interface Coordination {
  readonly ports: Layer.Layer<LeaseRegister | DelayedJobs, Variables.Misconfigured, Database.Database | Loops>
  readonly names: Readonly<Record<string, string>>
  /** Whether anything but Postgres is needed for it. */
  readonly apart: boolean
}

/** Loaded, with the driver, only where it is used: a start without is quicker by that, and the process smaller. */
const adaptersOfRedis = Effect.promise(() =>
  Promise.all([
    import("../adapters/redis/Redis.ts"),
    import("../adapters/redis/LeaseRegisterRedis.ts"),
    import("../adapters/redis/DelayedJobsRedis.ts"),
    import("../adapters/redis/Owner.ts")
  ])
)

/** As with Redis. */
const adapterOfKafka = Effect.promise(() => import("../adapters/kafka/TransportKafka.ts"))

/** Leases and delays: in Redis where one is named, else in Postgres. */
const coordination = Effect.fnUntraced(function*(
  program: string
): Effect.fn.Return<Coordination, Variables.Misconfigured | Config.ConfigError> {
  const config = yield* RedisConfig.fromEnv
  if (config === null) {
    return {
      ports: Layer.merge(LeaseRegisterPostgres.layer, DelayedJobsPostgres.layer),
      names: {},
      apart: false
    }
  }
  const [Redis, LeaseRegisterRedis, DelayedJobsRedis, Owner] = yield* adaptersOfRedis
  const redis = Redis.layer({ ...config, name: `deadman-${program}` }).pipe(
    Layer.catchTag(
      "RedisRefused",
      ({ message }) =>
        Layer.effect(
          Redis.Redis,
          Effect.fail(Variables.wrong("DEADMAN_REDIS_URL", `is of no use: that Redis answers ${message}`))
        )
    )
  )
  const shown = Layer.effectDiscard(Effect.gen(function*() {
    yield* (yield* Loops).addService("redis", (yield* Redis.Redis).isUp)
    yield* Owner.watch(Installation.read)
  }))
  return {
    ports: Layer.mergeAll(LeaseRegisterRedis.layer, DelayedJobsRedis.layer, shown).pipe(Layer.provide(redis)),
    names: { LeaseRegister: "Redis", DelayedJobs: "Redis (sorted set, filled from Postgres)" },
    apart: true
  }
})

interface Carrying {
  readonly transport: Layer.Layer<Transport, never, Database.Database | Loops>
  readonly names: Readonly<Record<string, string>>
  /** Whether ids are published for what becomes ready in its turn. */
  readonly queued: boolean
}

/** Deliveries: by Kafka where brokers are named. Wakes go by Postgres in any case. */
const carrying: Effect.Effect<Carrying, Variables.Misconfigured | Config.ConfigError> = Effect.gen(function*() {
  const kafka = yield* KafkaConfig.fromEnv
  const byPostgres = TransportPostgres.layerWith({ phaseMs: yield* RhythmPhase })
  if (kafka === null) {
    return { transport: byPostgres, names: {}, queued: false }
  }
  const TransportKafka = yield* adapterOfKafka
  const shown = Layer.effectDiscard(Effect.gen(function*() {
    yield* (yield* Loops).addService("kafka", (yield* TransportKafka.Brokers).isUp)
  }))
  return {
    transport: shown.pipe(
      Layer.provideMerge(
        Layer.unwrap(
          Effect.map(Installation.read, (installation) => TransportKafka.layer({ ...kafka, installation }))
        )
      ),
      Layer.provide(byPostgres)
    ),
    names: { Transport: "Kafka (ids), Postgres (LISTEN/NOTIFY for wakes)" },
    queued: true
  }
})

const make = Effect.fnUntraced(function*(program: string) {
  const chosen = yield* coordination(program)
  const carried = yield* carrying
  const { dataDir, database, keyTtlMs, profile, store, url } = yield* connected(program, carried.queued)
  const ports = Layer.mergeAll(
    Flagged.layer.pipe(Layer.provide(store), Layer.provideMerge(chosen.ports)),
    carried.transport,
    SessionsPostgres.layer,
    QueuesPostgres.layer({ wake: true }),
    SchedulesPostgres.layer({ wake: true, queued: carried.queued, keyTtlMs }),
    GuardedEffectsPostgres.layer
  ).pipe(Layer.provide(database))
  return Layer.mergeAll(
    ports,
    Layer.succeed(DatabaseUrl, url),
    Layer.succeed(Adapters, {
      profile: chosen.apart || carried.queued ? "scale" : profile,
      dataDir,
      names: { ...names, ...chosen.names, ...carried.names }
    })
  )
})

export type Failed =
  | Variables.Misconfigured
  | Config.ConfigError
  | StoreConfig.StoreFailed
  | EmbeddedPostgres.EmbeddedPostgresFailed

export const layer = (program: "server" | "worker" | "app") => Layer.unwrap(make(program))

/** Only the store, which wakes for all that becomes ready since nobody publishes, and the database behind it for who counts its rows. */
export const storeLayer = (program: string) =>
  Layer.unwrap(Effect.map(connected(program, false), ({ database, store }) => Layer.provideMerge(store, database)))
