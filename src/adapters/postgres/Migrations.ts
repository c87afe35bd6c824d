/**
 * The schema, as numbered steps that run once each and in order.
 *
 * Any number of processes may start at once on an empty database: one of them migrates and the others wait for it. A
 * process whose schema is right runs no DDL and needs no right to. Effect's Migrator is not used, because it keeps a
 * table of its own outside our schema and locks it on each start, and because it takes a schema that is newer than
 * the program for one that is up to date.
 *
 * Steps are imported, not read from a directory, so that they survive bundling. A published step is never edited.
 */
import { PgClient } from "@effect/sql-pg"
import { Effect, Layer, type Redacted, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import core from "./migrations/0001_core.ts"
import guards from "./migrations/0002_guards.ts"
import queues from "./migrations/0003_queues.ts"
import terms from "./migrations/0004_terms.ts"
import schedules from "./migrations/0005_schedules.ts"
import handlers from "./migrations/0006_handlers.ts"

const steps: ReadonlyArray<Effect.Effect<void, SqlError.SqlError, SqlClient.SqlClient>> = [
  core,
  guards,
  queues,
  terms,
  schedules,
  handlers
]

/** The version of the schema that this program reads and writes. */
export const schemaVersion = steps.length

/** The first major version with what the statements need. */
const serverMin = 15

/** Somebody ran a newer program on this database. An older one could write what the newer one cannot read. */
export class SchemaTooNew extends Schema.TaggedError<SchemaTooNew>()("SchemaTooNew", {
  found: Schema.Int,
  known: Schema.Int
}) {
  override get message(): string {
    return `The database has schema version ${this.found} and this program knows ${this.known}: ` +
      `start the newer program, or use another database.`
  }
}

export class ServerTooOld extends Schema.TaggedError<ServerTooOld>()("ServerTooOld", { found: Schema.String }) {
  override get message(): string {
    return `Postgres ${this.found} is too old: Deadman needs ${serverMin} or newer.`
  }
}

/**
 * What stands between here and Postgres takes the settings of a session and does not pass them on, or gives the next
 * statement another session. Locks would be waited for without end, and wakes would not arrive: half of it would work.
 */
export class SettingsNotKept extends Schema.TaggedError<SettingsNotKept>()("SettingsNotKept", {}) {
  override get message(): string {
    return `The database does not keep the settings of a session: this looks like a pooler in front of Postgres. ` +
      `Connect to Postgres itself.`
  }
}

/** The schema could not be looked at or brought up to date. */
export class MigrationFailed extends Schema.TaggedError<MigrationFailed>()("MigrationFailed", {
  code: Schema.NullOr(Schema.String),
  reason: Schema.String
}) {
  override get message(): string {
    return this.code === "08P01" && this.reason.includes("startup parameter")
      ? `${this.reason}: this looks like a pooler in front of Postgres. Connect to Postgres itself.`
      : `The database schema could not be brought up to date: ${this.reason}`
  }
}

export type MigrationError = SchemaTooNew | ServerTooOld | SettingsNotKept | MigrationFailed

const failed = (error: SqlError.SqlError) => {
  const cause = error.reason.cause as { code?: unknown; message?: unknown } | undefined
  return new MigrationFailed({
    code: typeof cause?.code === "string" ? cause.code : null,
    reason: String(cause?.message ?? error.message).slice(0, 300)
  })
}

/** Any number, as long as it stays the same: the bytes of "dead". */
const advisoryLock = 0x64656164

const found = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  // From the catalogue, not by to_regclass: that may still answer from this session's cache of before the lock.
  const [table] = yield* sql.unsafe<{ present: boolean }>(
    `SELECT EXISTS (
       SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
       WHERE n.nspname = 'deadman' AND c.relname = 'meta'
     ) AS present`
  )
  if (table?.present !== true) return 0
  const [row] = yield* sql.unsafe<{ schema_version: number }>(`SELECT schema_version FROM deadman.meta`)
  const version = row?.schema_version ?? 0
  return version > schemaVersion ? yield* new SchemaTooNew({ found: version, known: schemaVersion }) : version
})

const bringUp = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  // Before anything else, and held until the commit: CREATE SCHEMA IF NOT EXISTS races by itself.
  yield* sql.unsafe(`SELECT pg_advisory_xact_lock(${advisoryLock})`)
  // Others may have brought it up while this process waited, or a newer one may have gone further.
  const from = yield* found
  if (from === schemaVersion) return
  if (from === 0) yield* sql.unsafe(`CREATE SCHEMA IF NOT EXISTS deadman`)
  for (const step of steps.slice(from)) {
    yield* step
  }
  yield* sql.unsafe(
    `INSERT INTO deadman.meta (schema_version, created_at_ms) VALUES (${schemaVersion}, deadman.now_ms())
     ON CONFLICT (only_row) DO UPDATE SET schema_version = EXCLUDED.schema_version`
  )
})

/** What waits behind another's migration fails rather than hangs. */
const waitsMs = "30000"

const check = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const [server] = yield* sql.unsafe<{ number: string; name: string; waits_ms: string }>(
    `SELECT current_setting('server_version_num') AS number, current_setting('server_version') AS name,
            (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'lock_timeout') AS waits_ms`
  )
  if (server !== undefined && Number(server.number) < serverMin * 10_000) {
    return yield* new ServerTooOld({ found: server.name })
  }
  if (server?.waits_ms !== waitsMs) {
    return yield* new SettingsNotKept()
  }
  if ((yield* found) < schemaVersion) yield* sql.withTransaction(bringUp)
})

/** Brings the schema up to date if it is not. */
export const migrate = (url: Redacted.Redacted): Effect.Effect<void, MigrationError> =>
  Layer.build(PgClient.layer({
    url,
    maxConnections: 1,
    applicationName: "deadman-migrate",
    connectTimeout: 3_000,
    startupParameters: { statement_timeout: "30000", lock_timeout: waitsMs, jit: "off" }
  })).pipe(
    Effect.flatMap((connection) => Effect.provideContext(check, connection)),
    Effect.scoped,
    Effect.catchTag("SqlError", (error) => Effect.fail(failed(error)))
  )
