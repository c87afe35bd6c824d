/**
 * The schema, as numbered steps that run once each and in order.
 *
 * Any number of processes may start at once on an empty database: one of them migrates and the others wait for it. A
 * process whose schema is right runs no DDL and needs no right to. Effect's Migrator is not used, because it keeps a
 * table of its own outside our schema and locks it on each start, and because it takes a schema that is newer than
 * the program for one that is up to date.
 *
 * The processes of the version before go on meanwhile, over tables of any size. So each step is a transaction of its own,
 * recorded with it, that waits for no lock for long, since whoever comes after it waits with it; and indexes are made
 * without locking out those who write. Whoever is killed half-way leaves a version in between, and the next goes on there.
 *
 * Steps are imported, not read from a directory, so that they survive bundling. A published step is never edited.
 */
import { PgClient } from "@effect/sql-pg"
import { Duration, Effect, Layer, Random, type Redacted, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import type { Pem } from "../../domain/Pem.ts"
import core from "./migrations/0001_core.ts"
import guards from "./migrations/0002_guards.ts"
import queues from "./migrations/0003_queues.ts"
import terms from "./migrations/0004_terms.ts"
import schedules from "./migrations/0005_schedules.ts"
import handlers from "./migrations/0006_handlers.ts"
import indexes, { type Index } from "./migrations/0007_indexes.ts"
import instants from "./migrations/0008_instants.ts"
import delays from "./migrations/0009_delays.ts"
import * as Target from "./Target.ts"

/** What is done in one transaction, or indexes, each of which is there or not. */
const steps: ReadonlyArray<Effect.Effect<void, SqlError.SqlError, SqlClient.SqlClient> | ReadonlyArray<Index>> = [
  core,
  guards,
  queues,
  terms,
  schedules,
  handlers,
  indexes,
  instants,
  delays
]

/** The version of the schema that this program reads and writes. */
export const schemaVersion = steps.length

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
    return `Postgres ${this.found} is too old: Deadman needs ${Target.serverMin} or newer. Upgrade it, or name another one ` +
      `in DEADMAN_DATABASE_URL.`
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
  reason: Schema.String,
  /** Where that Postgres is. */
  place: Schema.optionalKey(Schema.NullOr(Schema.String))
}) {
  override get message(): string {
    const advice = Target.adviceOf(this.code, this.reason)
    if (advice === null && Target.isSilent(this.code, this.reason)) {
      const { place = null } = this
      return `Postgres${place === null ? "" : ` at ${place}`} does not answer: ${this.reason}`
    }
    // A right is missing to somebody who is in.
    const what = advice === null || this.code === "42501"
      ? "The database schema could not be brought up to date"
      : "The database cannot be used"
    return `${what}: ${this.reason}${advice === null ? "" : `. ${advice}.`}`
  }
}

/** What is stored is JSON, with any character there is. */
export class EncodingUnfit extends Schema.TaggedError<EncodingUnfit>()("EncodingUnfit", { found: Schema.String }) {
  override get message(): string {
    return `The database has the encoding ${this.found} and cannot hold every text that a job may have: make one with ` +
      `CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0.`
  }
}

export type MigrationError = SchemaTooNew | ServerTooOld | SettingsNotKept | EncodingUnfit | MigrationFailed

/** Whether no waiting cures it. */
export const isHopeless = (error: MigrationError): boolean =>
  error._tag !== "MigrationFailed" || Target.isRefusal(error.code, error.reason)

const failed = (error: SqlError.SqlError, place: string | null = null) => {
  const cause = error.reason.cause as { code?: unknown; message?: unknown } | undefined
  return new MigrationFailed({
    code: typeof cause?.code === "string" ? cause.code : null,
    reason: (Target.reasonOf(cause) ?? error.message).slice(0, 300),
    place
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

const record = (version: number) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    sql.unsafe(
      `INSERT INTO deadman.meta (schema_version, created_at_ms) VALUES (${version}, deadman.now_ms())
       ON CONFLICT (only_row) DO UPDATE SET schema_version = EXCLUDED.schema_version`
    ))

/** Within a transaction. Whoever lost the session's lock with its connection must not go on beside the next one. */
const confirm = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const [lock] = yield* sql.unsafe<{ ours: boolean }>(`SELECT pg_try_advisory_xact_lock(${advisoryLock}) AS ours`)
  if (lock?.ours !== true) {
    return yield* new MigrationFailed({ code: null, reason: "another process has taken over" })
  }
})

const isLocked = (error: MigrationError | SqlError.SqlError): boolean =>
  error._tag === "SqlError" && failed(error).code === "55P03"

/** Who comes to a table while a step waits for it has to wait as well: shorter than the locks of jobs are waited for. */
const lockMs = 100
const triesMax = 60
/** An autovacuum lets go of a table, but only for whoever has waited for a second: before every so manyth try we do. */
const patientEvery = 12
const patientMs = 1_200

/**
 * Waits for the tables that an autovacuum is at, with a lock that nobody else's conflicts with, and of one at a time. A step
 * that waits for so long for its second table would hold the first one meanwhile: statements that hold the second and come
 * to the first are then ended as deadlocked.
 */
const clearTables = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const busy = yield* sql.unsafe<{ readonly name: string }>(
    `SELECT DISTINCT format('deadman.%I', c.relname) AS name
     FROM pg_catalog.pg_locks l
     JOIN pg_catalog.pg_class c ON c.oid = l.relation AND c.relkind = 'r'
     JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'deadman'
     JOIN pg_catalog.pg_database d ON d.oid = l.database AND d.datname = current_database()
     WHERE l.mode = 'ShareUpdateExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()`
  )
  yield* Effect.forEach(busy, ({ name }) =>
    Effect.andThen(
      sql.unsafe(`SET LOCAL lock_timeout = ${patientMs}`),
      sql.unsafe(`LOCK TABLE ${name} IN SHARE UPDATE EXCLUSIVE MODE`)
    ).pipe(
      sql.withTransaction,
      Effect.catchIf(isLocked, () => Effect.void)
    ), { discard: true })
})

const withLocks = <A>(body: Effect.Effect<A, MigrationError | SqlError.SqlError, SqlClient.SqlClient>) =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    for (let tries = 1;; tries++) {
      if (tries % patientEvery === 0) yield* clearTables
      const done = yield* Effect.andThen(sql.unsafe(`SET LOCAL lock_timeout = ${lockMs}`), body).pipe(
        sql.withTransaction,
        Effect.map((value) => ({ value })),
        Effect.catchIf((error) => isLocked(error) && tries < triesMax, () => Effect.succeed(null))
      )
      if (done !== null) return done.value
      yield* Effect.sleep(yield* Random.nextIntBetween(200, 600))
    }
  })

/** Where somebody with more rights has made it for us: with IF NOT EXISTS it would be asked for CREATE on the database. */
const makeSchema = `DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'deadman') THEN CREATE SCHEMA deadman; END IF;
END $$`

const takeStep = (index: number, step: Effect.Effect<void, SqlError.SqlError, SqlClient.SqlClient>) =>
  withLocks(Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    yield* confirm
    if (index === 0) yield* sql.unsafe(makeSchema)
    yield* step
    yield* record(index + 1)
  }))

/** A table that is read in no time is locked for that: CONCURRENTLY waits for every transaction there is. */
const smallBytes = 4_000_000

const create = ({ name, on, unique, what }: Index, concurrently: boolean) =>
  `CREATE ${unique === true ? "UNIQUE " : ""}INDEX ${
    concurrently ? "CONCURRENTLY " : ""
  }${name} ON deadman.${on} ${what}`

const makeIndex = Effect.fnUntraced(function*(index: Index) {
  const sql = yield* SqlClient.SqlClient
  const [table] = yield* sql.unsafe<{ small: boolean; valid: boolean | null }>(
    `SELECT pg_table_size('deadman.${index.on}') <= ${smallBytes} AS small,
            (SELECT i.indisvalid FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
             WHERE c.relnamespace = 'deadman'::regnamespace AND c.relname = '${index.name}') AS valid`
  )
  if (table?.valid === true) return
  // What a process that was killed has left of it.
  if (table?.valid === false) yield* sql.unsafe(`DROP INDEX CONCURRENTLY deadman.${index.name}`)
  yield* table?.small === true
    ? withLocks(Effect.andThen(confirm, sql.unsafe(create(index, false))))
    : sql.unsafe(create(index, true))
})

/** It takes the time that it takes, and nobody waits behind it. */
const makeIndexes = (version: number, all: ReadonlyArray<Index>) =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    yield* sql.unsafe(`SET statement_timeout = 0`)
    yield* sql.unsafe(`SET lock_timeout = 0`)
    yield* Effect.forEach(all, makeIndex, { discard: true })
    yield* sql.unsafe(`RESET lock_timeout`)
    yield* sql.unsafe(`RESET statement_timeout`)
    yield* sql.withTransaction(Effect.andThen(confirm, record(version)))
  })

const waitMs = 30_000
const waitPollMs = 100

/**
 * The session's, so it lasts over the steps, and ends with the connection. It is asked for again and again, not waited
 * for: an index that is made waits for all statements under way, also for one that waits for this.
 */
const lock = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  for (let waited = 0; waited < waitMs; waited += waitPollMs) {
    const [lock] = yield* sql.unsafe<{ ours: boolean }>(`SELECT pg_try_advisory_lock(${advisoryLock}) AS ours`)
    if (lock?.ours === true) return
    yield* Effect.sleep(Duration.millis(waitPollMs))
  }
  return yield* new MigrationFailed({
    code: "55P03",
    reason: `another process still works on it after ${waitMs / 1_000} s; on a large database that takes time`
  })
})

const bringUp = Effect.gen(function*() {
  yield* lock
  // Others may have brought it up while this process waited, or a newer one may have gone further.
  const from = yield* found
  for (const [index, step] of steps.entries()) {
    if (index >= from) yield* Effect.isEffect(step) ? takeStep(index, step) : makeIndexes(index + 1, step)
  }
})

const transactionTimeoutSince = 170_000

/** A session's settings are tried with this one, and no other statement waits longer for a lock. */
const sessionWaitsMs = "30000"

const check = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const [server] = yield* sql.unsafe<{ number: string; name: string; encoding: string; waits_ms: string }>(
    `SELECT current_setting('server_version_num') AS number, current_setting('server_version') AS name,
            current_setting('server_encoding') AS encoding,
            (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'lock_timeout') AS waits_ms`
  )
  if (server !== undefined && Number(server.number) < Target.serverMin * 10_000) {
    return yield* new ServerTooOld({ found: server.name })
  }
  if (server?.waits_ms !== sessionWaitsMs) {
    return yield* new SettingsNotKept()
  }
  const from = yield* found
  if (from === schemaVersion) return
  // One that is in use already is the doctor's to tell.
  if (from === 0 && server.encoding !== "UTF8") return yield* new EncodingUnfit({ found: server.encoding })
  // A role's limit is for its queries. Older servers do not know it, and refuse what they do not know.
  if (Number(server.number) >= transactionTimeoutSince) yield* sql.unsafe(`SET transaction_timeout = 0`)
  yield* bringUp
})

/** Brings the schema up to date if it is not. */
export const migrate = (url: Redacted.Redacted, pem?: Pem): Effect.Effect<void, MigrationError> =>
  Layer.build(PgClient.layer({
    ...Target.options({ url, pem }, "deadman-migrate"),
    maxConnections: 1,
    startupParameters: {
      statement_timeout: "30000",
      lock_timeout: sessionWaitsMs,
      idle_in_transaction_session_timeout: "30000",
      idle_session_timeout: "0",
      jit: "off"
    }
  })).pipe(
    Effect.flatMap((connection) => Effect.provideContext(check, connection)),
    Effect.scoped,
    Effect.catchTag("SqlError", (error) => Effect.fail(failed(error, Target.placeOf(url))))
  )
