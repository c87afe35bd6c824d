/**
 * A place for sieges: a Postgres, servers and workers of its own, all real, all
 * on loopback, all gone when the scope closes.
 */
import { PgClient } from "@effect/sql-pg"
import { Clock, Context, type Duration, Effect, Redacted, Scope } from "effect"
import { SqlClient } from "effect/sql"
import type * as ApiClient from "../support/ApiClient.ts"
import * as KafkaServer from "../support/KafkaServer.ts"
import * as PostgresServer from "../support/PostgresServer.ts"
import * as Processes from "../support/Processes.ts"
import * as RedisServer from "../support/RedisServer.ts"
import * as Servers from "../support/Servers.ts"

/** What stands beside Postgres. */
export const Profile = Context.Reference<"postgres" | "scale">("deadman/test/siege/Profile", {
  defaultValue: () => "postgres"
})

export interface Arena {
  /** Only on the scale profile. */
  readonly redis: RedisServer.RedisServer | null
  readonly kafka: KafkaServer.KafkaServer | null
  readonly postgres: PostgresServer.PostgresServer
  readonly server: (env?: Readonly<Record<string, string>>) => Effect.Effect<Server, unknown>
  readonly worker: (name: string, env?: Readonly<Record<string, string>>) => Effect.Effect<Processes.Program, unknown>
  /** Rows of a query, as the database sees them. For judging, never for driving. */
  readonly rows: <Row extends object>(text: string) => Effect.Effect<ReadonlyArray<Row>>
}

export interface Server {
  readonly program: Processes.Program
  readonly api: ApiClient.ApiClient
}

export const make = Effect.fn("Arena.make")(function*(options: {
  readonly leaseMs: number
  readonly threads: number
  readonly env?: Readonly<Record<string, string>>
}) {
  const scope = yield* Effect.scope
  const postgres = yield* PostgresServer.start()
  const scale = (yield* Profile) === "scale"
  const redis = scale ? yield* RedisServer.start() : null
  const kafka = scale ? yield* KafkaServer.start({ quick: false }) : null
  const base = {
    ...(redis === null ? {} : { DEADMAN_REDIS_URL: redis.url }),
    ...(kafka === null ? {} : { DEADMAN_KAFKA_BROKERS: kafka.brokers }),
    DEADMAN_DATABASE_URL: Redacted.value(postgres.url),
    DEADMAN_LEASE_MS: String(options.leaseMs),
    ...options.env
  }
  const server: Arena["server"] = (env = {}) =>
    Servers.started({ ...base, ...env }).pipe(Effect.provideService(Scope.Scope, scope))
  const worker: Arena["worker"] = (name, env = {}) =>
    Processes.start("worker", {
      ...base,
      DEADMAN_WORKER_NAME: name,
      DEADMAN_WORKER_THREADS: String(options.threads),
      ...env
    }).pipe(Effect.provideService(Scope.Scope, scope))
  const judge = PgClient.layer({ url: postgres.url, maxConnections: 1, applicationName: "siege" })
  const rows: Arena["rows"] = <Row extends object>(text: string) =>
    Effect.flatMap(SqlClient.SqlClient, (sql) => sql.unsafe<Row>(text)).pipe(
      Effect.provide(judge),
      Effect.orDie
    )
  return { postgres, redis, kafka, server, worker, rows } satisfies Arena
})

/** Milliseconds on this machine's clock, which the database of an arena shares. */
export const nowMs = Clock.currentTimeMillis

/** Posts every body, `width` at a time; all must be taken. Answers the ids in order. */
export const submitAll = Effect.fn("Arena.submitAll")(function*(
  api: ApiClient.ApiClient,
  bodies: ReadonlyArray<object>,
  width = 32
) {
  return yield* Effect.forEach(
    bodies,
    (body) =>
      Effect.flatMap(api.send("POST", "/jobs", body), (answer) =>
        answer.status === 201
          ? Effect.succeed(String(answer.body.id))
          : Effect.die(new Error(`POST /jobs answered ${answer.status}: ${JSON.stringify(answer.body)}`))),
    { concurrency: width }
  )
})

export interface JobCounts {
  readonly pending: number
  readonly running: number
  readonly failed: number
  readonly completed: number
  readonly dead: number
}

/** How many jobs are in which state, by counting rows. */
export const states = (arena: Arena): Effect.Effect<JobCounts> =>
  Effect.map(
    arena.rows<JobCounts>(
      `SELECT count(*) FILTER (WHERE state = 0)::int AS pending, count(*) FILTER (WHERE state = 1)::int AS running,
              count(*) FILTER (WHERE state = 2)::int AS failed,  count(*) FILTER (WHERE state = 3)::int AS completed,
              count(*) FILTER (WHERE state = 4)::int AS dead FROM deadman.job`
    ),
    ([counts]) => counts ?? { pending: 0, running: 0, failed: 0, completed: 0, dead: 0 }
  )

/** Waits until no job is outstanding. */
export const drained = (arena: Arena, within: Duration.Input) =>
  Processes.eventually(
    "every job is final",
    Effect.map(states(arena), ({ failed, pending, running }) => pending + running + failed === 0),
    within,
    "250 millis"
  )

export interface Finding {
  readonly law: string
  readonly held: boolean
  readonly detail: string
}

/** What must hold after any siege, whatever was done to whom. */
export const judgeAll = Effect.fn("Arena.judgeAll")(function*(arena: Arena, accepted: ReadonlyArray<string>) {
  const finding = (law: string, broken: ReadonlyArray<object>, detail = ""): Finding => ({
    law,
    held: broken.length === 0,
    detail: broken.length === 0 ? detail : `${broken.length} broken, first: ${JSON.stringify(broken[0])}`
  })
  const findings: Array<Finding> = []
  const present = new Set(
    (yield* arena.rows<{ id: string }>(`SELECT id::text FROM deadman.job`)).map(({ id }) => id)
  )
  findings.push(finding("every accepted job exists", accepted.filter((id) => !present.has(id)).map((id) => ({ id }))))
  findings.push(
    finding(
      "no job is outstanding",
      yield* arena.rows(`SELECT id::text, state FROM deadman.job WHERE state IN (0, 1, 2)`)
    )
  )
  // Ended leases are let go of once a second or so; what lapsed takes a length and a bit.
  const leases = arena.rows(`SELECT id::text, worker, lease_ms FROM deadman.lease`)
  yield* Effect.ignore(Processes.eventually("no lease", Effect.map(leases, ({ length }) => length === 0), "15 seconds"))
  findings.push(finding("no lease is left over", yield* leases))
  findings.push(finding(
    "every completed side effect fired exactly once",
    yield* arena.rows(
      `SELECT j.id::text FROM deadman.job j JOIN deadman.route r ON r.id = j.route
       LEFT JOIN deadman.effect e ON e.job = j.id
       WHERE r.type = 'side-effect' AND j.state = 3 GROUP BY j.id HAVING count(e.key) <> 1`
    )
  ))
  findings.push(finding(
    "no write was called stale whose claim was not lost",
    yield* arena.rows(
      `SELECT id::text, stale, losses FROM deadman.job WHERE stale > 0 AND losses = 0 AND reason IS DISTINCT FROM 2`
    )
  ))
  findings.push(finding(
    "deliveries are epochs",
    yield* arena.rows(`SELECT id::text, epoch, deliveries FROM deadman.job WHERE epoch <> deliveries`)
  ))
  findings.push(finding(
    "the tally is the truth",
    yield* arena.rows(
      `SELECT coalesce(t.route, j.route) AS route, coalesce(t.state, j.state) AS state, t.n, j.n AS counted
       FROM (SELECT route, state, sum(n) AS n FROM deadman.tally GROUP BY 1, 2 HAVING sum(n) <> 0) t
       FULL JOIN (SELECT route, state, count(*) AS n FROM deadman.job GROUP BY 1, 2) j
         ON j.route = t.route AND j.state = t.state
       WHERE t.n IS DISTINCT FROM j.n`
    )
  ))
  return findings
})
