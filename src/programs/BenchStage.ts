/** The stage of the bench: a Postgres, a fresh database in it for each case, and the built programs over that. */
import { ConfigProvider, Context, Deferred, Effect, Layer, Redacted, type Scope } from "effect"
import { randomBytes } from "node:crypto"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as EmbeddedPostgres from "../adapters/embedded/EmbeddedPostgres.ts"
import * as Database from "../adapters/postgres/Database.ts"
import type { Server } from "../adapters/postgres/Target.ts"
import { JobType, plainJob } from "../domain/Job.ts"
import { JobStore } from "../ports/JobStore.ts"
import { Submitter } from "../ports/Submitter.ts"
import * as Adapters from "./Adapters.ts"
import { BenchFailed, type Reading, type Site, Stage } from "./bench/Stage.ts"
import * as Work from "./bench/Work.ts"
import * as BenchHandlers from "./BenchHandlers.ts"
import * as Processes from "./BenchProcesses.ts"
import * as Loops from "./process/Loops.ts"
import * as StoreConfig from "./StoreConfig.ts"
import * as GroupCommit from "./submit/GroupCommit.ts"

const failed = (what: string) => (error: { readonly message: string }) =>
  new BenchFailed({ message: `${what}: ${error.message}` })

const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "deadman-bench-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true, maxRetries: 3 }))
)

/** The database of that name on the server that `url` is of. */
export const at = (url: string, name: string): string => {
  const parsed = new URL(url)
  parsed.pathname = `/${name}`
  parsed.searchParams.delete("dbname")
  return parsed.href
}

/** What the programs of the bench are given besides what is theirs. */
const inherited = (): Record<string, string> => {
  const env: Record<string, string> = {}
  for (const [key, value] of Object.entries(process.env)) {
    if (value !== undefined && key !== "DEADMAN_DATA_DIR" && key !== "DEADMAN_PORT") {
      env[key] = value
    }
  }
  return env
}

/** Read as each program reads its own: over TLS or a socket too. */
export const serverOf = (url: string): Effect.Effect<Server, BenchFailed> =>
  StoreConfig.fromEnv.pipe(
    Effect.provide(
      ConfigProvider.layer(ConfigProvider.fromEnv({ env: { ...inherited(), DEADMAN_DATABASE_URL: url } }))
    ),
    Effect.map(({ profile }): Server =>
      profile._tag === "postgres" ? { url: profile.url, pem: profile.pem } : { url: Redacted.make(url) }
    ),
    Effect.mapError(({ message }) =>
      new BenchFailed({ message: message.replaceAll("DEADMAN_DATABASE_URL", "DEADMAN_BENCH_DATABASE_URL") })
    )
  )

type Db = Database.Database["Service"]

const sql = <Row extends object>(database: Db, text: string, params: ReadonlyArray<unknown> = []) =>
  database.query<Row>("handler", text, params).pipe(Effect.mapError(failed("the database of the bench")))

/** Statements that take long. */
const slowly = (database: Db, texts: ReadonlyArray<readonly [text: string, params?: ReadonlyArray<unknown>]>) =>
  database.transaction(
    "handler",
    (session) =>
      Effect.gen(function*() {
        yield* session.query(`SET LOCAL statement_timeout = 0`)
        for (const [text, params] of texts) {
          yield* session.query(text, params)
        }
      }),
    { deadlineMs: 240_000 }
  ).pipe(Effect.mapError(failed("the database of the bench")))

const seedSql = (kind: "future" | "finished") =>
  `WITH x AS MATERIALIZED (
     SELECT gen_random_uuid() AS id, deadman.statement_ms() + n * 1000 AS at_ms FROM generate_series(1, $1::int) n
   ), b AS (
     INSERT INTO deadman.body (id, payload, created_at_ms, max_attempts) SELECT id, $2::jsonb, at_ms, 10 FROM x
   ), t AS (
     INSERT INTO deadman.tally (route, state, n) SELECT r.id, ${kind === "future" ? 0 : 3}, $1::int
     FROM deadman.route r WHERE r.type = $3
   )
   INSERT INTO deadman.job (id, route, bytes, run_at_ms, ${
    kind === "future" ? "wait_ms" : "started_at_ms, finished_at_ms, state, epoch, deliveries, lease, worker"
  })
   SELECT x.id, r.id, 110, ${
    kind === "future"
      ? "x.at_ms + 31536000000, x.at_ms + 31536000000"
      : "x.at_ms - 86400000, x.at_ms - 86400000, x.at_ms - 86400000, 3, 1, 1, gen_random_uuid(), 'worker-0a1b2c3d'"
  }
   FROM x CROSS JOIN deadman.route r WHERE r.type = $3`

const makeSite = Effect.fnUntraced(function*(
  admin: Db,
  server: Server,
  modulePath: string
): Effect.fn.Return<Site, BenchFailed, Scope.Scope> {
  const suffix = randomBytes(4).toString("hex")
  const name = `deadman_bench_${suffix}`
  const type = JobType.make(`bench-${suffix}`)
  yield* Effect.acquireRelease(
    sql(admin, `CREATE DATABASE ${name} TEMPLATE template0`),
    () => Effect.ignore(sql(admin, `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`))
  )
  const own = at(Redacted.value(server.url), name)
  const env: Record<string, string> = { ...inherited(), DEADMAN_DATABASE_URL: own }
  if ((env["DEADMAN_REDIS_URL"] ?? "").trim() !== "") {
    // Each database is an installation of its own, and a real one may have these keys.
    env["DEADMAN_REDIS_PREFIX"] = `${(env["DEADMAN_REDIS_PREFIX"] ?? "").trim() || "deadman:"}${suffix}:`
  }
  Object.assign(env, {
    DEADMAN_LOG_LEVEL: process.env["DEADMAN_LOG_LEVEL"] ?? "error",
    DEADMAN_LOG_FORMAT: "json",
    DEADMAN_HANDLERS: modulePath,
    [BenchHandlers.typeVariable]: type
  })
  const services = yield* Layer.build(
    GroupCommit.layer.pipe(
      Layer.provideMerge(Adapters.layer("server")),
      Layer.provide(Loops.layer),
      Layer.provide(ConfigProvider.layer(ConfigProvider.fromEnv({ env }))),
      Layer.merge(Database.layer({ ...server, url: Redacted.make(own), applicationName: "deadman-bench" }))
    )
  ).pipe(Effect.mapError(failed("the ports of the bench")))
  const database = Context.get(services, Database.Database)
  const store = Context.get(services, JobStore)
  const submitter = Context.get(services, Submitter)
  const [backend] = yield* sql<{ pid: number }>(database, `SELECT pg_backend_pid() AS pid`)
  const postmaster = Processes.parentOf(backend?.pid ?? 0)

  const reading = Effect.gen(function*() {
    const [row] = yield* sql<{ wal: number; commits: number }>(
      database,
      `SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::float8 AS wal,
              pg_snapshot_xmax(pg_current_snapshot())::text::float8 AS commits`
    )
    const { system, user } = process.cpuUsage()
    const read: Reading = {
      clientMs: (user + system) / 1_000,
      serverMs: postmaster === null ? null : Processes.familyMs(postmaster),
      walBytes: row?.wal ?? Number.NaN,
      commits: row?.commits ?? Number.NaN
    }
    return read
  })

  const outstanding = Effect.map(
    sql<{ left: number }>(
      database,
      `SELECT coalesce(sum(t.n), 0)::float8 AS left FROM deadman.tally t WHERE t.state IN (0, 1, 2)`
    ),
    ([row]) => row?.left ?? Number.NaN
  )
  let future = 0

  return {
    store,
    submitter,
    type,
    reading,
    transactions: Effect.map(
      sql<{ n: number }>(
        admin,
        `SELECT (xact_commit + xact_rollback)::float8 AS n FROM pg_stat_database WHERE datname = '${name}'`
      ),
      ([row]) => row?.n ?? Number.NaN
    ),
    worker: (work, more = {}) =>
      Processes.worker(
        { ...env, ...more, [BenchHandlers.workVariable]: work },
        submitter.submit(plainJob(type, Work.payload(0))).pipe(
          Effect.mapError((error) => new BenchFailed({ message: `the first job was not stored: ${error.reason}` })),
          Effect.asVoid
        )
      ),
    server: Processes.server({ ...env, DEADMAN_WORKER_THREADS: "0" }),
    pause: Effect.asVoid(sql(database, `UPDATE deadman.route SET paused = true WHERE type = $1`, [type])),
    resume: Effect.asVoid(sql(
      database,
      `WITH r AS (UPDATE deadman.route SET paused = false WHERE type = $1 RETURNING id)
       SELECT pg_notify('deadman_wake', 'r') FROM r`,
      [type]
    )),
    outstanding: Effect.suspend(() => Effect.map(outstanding, (left) => left - future)),
    seed: Effect.fnUntraced(function*(kind, count) {
      yield* slowly(database, [[seedSql(kind), [count, Work.payload(1), type]], [`ANALYZE`]])
      future += kind === "future" ? count : 0
    }),
    settle: Effect.gen(function*() {
      yield* sql(database, `CHECKPOINT`)
      yield* Effect.sleep(300)
    }),
    pinned: Effect.gen(function*() {
      const begun = yield* Deferred.make<void>()
      yield* Effect.forkScoped(database.transaction(
        "handler",
        (session) =>
          Effect.gen(function*() {
            yield* session.query(`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
            yield* session.query(`SET LOCAL idle_in_transaction_session_timeout = 0`)
            yield* session.query(`SELECT count(*) FROM pg_class`)
            yield* Deferred.succeed(begun, undefined)
            return yield* Effect.never
          }),
        { deadlineMs: 600_000 }
      ))
      yield* Deferred.await(begun).pipe(Effect.timeoutOrElse({
        duration: "10 seconds",
        orElse: () => Effect.fail(new BenchFailed({ message: "the old transaction did not begin" }))
      }))
    }),
    http: Processes.http
  }
})

/** Over the server at `url`, or over one of its own that is gone afterwards. */
export const layer = (url: string | null): Layer.Layer<Stage, BenchFailed> =>
  Layer.effect(
    Stage,
    Effect.gen(function*() {
      const path = yield* folder
      const modulePath = join(path, "handlers.mjs")
      writeFileSync(modulePath, BenchHandlers.source)
      const server = url === null
        ? yield* EmbeddedPostgres.acquire({ dataDir: join(path, "data") }).pipe(
          Effect.mapError(failed("a Postgres for the bench"))
        )
        : yield* serverOf(url)
      const services = yield* Layer.build(Database.layer({ ...server, applicationName: "deadman-bench" }))
      const admin = Context.get(services, Database.Database)
      return Stage.of({
        site: makeSite(admin, server, modulePath),
        hello: Effect.map(Processes.hello, ({ port }) => port),
        nowMs: Effect.sync(() => Number(process.hrtime.bigint()) / 1e6)
      })
    })
  )
