/**
 * A look at Postgres for people: version, settings, rights, clock, what keeps it from vacuuming, and our own tables.
 *
 * It changes nothing and runs alone, on one connection with short timeouts. Where the schema is another program's, only
 * the server is looked at.
 */
import { PgClient } from "@effect/sql-pg"
import { Clock, Effect, Layer, type Redacted, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { because } from "../../domain/Because.ts"
import type { Pem } from "../../domain/Pem.ts"
import type { OldTransaction, PostgresFacts, ReplicaFacts, SchemaFacts } from "../../ports/Checkups.ts"
import * as Migrations from "./Migrations.ts"
import * as Target from "./Target.ts"

/** No look was possible. */
export class CheckupFailed extends Schema.TaggedError<CheckupFailed>()("CheckupFailed", {
  message: Schema.String,
  /** What to do about it, where that is known. */
  advice: Schema.NullOr(Schema.String),
  /** No waiting cures it. */
  refused: Schema.Boolean
}) {}

const statementMs = "5000"
const sessionStaleMs = 15_000
const typesMax = 50
const processesMax = 200

const serverSql = `
  SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number,
         pg_is_in_recovery() AS replica, current_user AS "user",
         (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
         pg_notification_queue_usage()::float8 AS notifications,
         (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()) AS encrypted,
         inet_client_addr() IS NULL OR EXISTS (
           SELECT FROM unnest('{127.0.0.0/8,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,100.64.0.0/10,169.254.0.0/16,::1/128,'
             'fc00::/7,fe80::/10}'::inet[]) near WHERE inet_client_addr() <<= near) AS near,
         (SELECT setting FROM pg_settings WHERE name = 'statement_timeout') AS statement_ms,
         (SELECT jsonb_object_agg(name, setting) FROM pg_settings WHERE name IN
           ('autovacuum', 'fsync', 'full_page_writes', 'synchronous_commit', 'max_connections', 'track_counts',
            'default_transaction_read_only', 'server_encoding')) AS settings`

// The adapter's own functions may not be there.
const clockSql = `SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS ms`

const presentSql = `
  SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE n.nspname = 'deadman' AND c.relname = 'meta') AS present,
         (SELECT has_schema_privilege(n.oid, 'USAGE') FROM pg_namespace n WHERE n.nspname = 'deadman') AS usage`

const rightsSql = `
  SELECT r.word || ' on deadman.' || c.relname AS missing
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace,
       unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r(word)
  WHERE n.nspname = 'deadman' AND c.relkind = 'r' AND c.relname <> 'meta' AND NOT has_table_privilege(c.oid, r.word)
  ORDER BY 1 LIMIT 20`

const oldestSql = `
  SELECT age_ms, pid, application, state FROM (
    SELECT (extract(epoch FROM clock_timestamp() - xact_start) * 1000)::float8 AS age_ms, pid,
           coalesce(application_name, '') AS application, coalesce(state, 'not to be seen') AS state
    FROM pg_stat_activity
    WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()
      AND backend_type <> 'autovacuum worker'
    UNION ALL
    SELECT (extract(epoch FROM clock_timestamp() - prepared) * 1000)::float8, 0, gid, 'prepared transaction'
    FROM pg_prepared_xacts WHERE database = current_database()
  ) t ORDER BY age_ms DESC LIMIT 1`

// Besides transactions these keep dead rows, and a slot the log too. What a role may not see is NULL, and left out.
const replicasSql = `
  SELECT * FROM (
    SELECT slot_name::text AS name, true AS "isSlot", active,
           greatest(coalesce(age(xmin), 0), coalesce(age(catalog_xmin), 0))::float8 AS transactions,
           coalesce(CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) END, 0)::float8
             AS "logBytes"
    FROM pg_replication_slots
    UNION ALL
    SELECT coalesce(nullif(application_name, ''), 'process ' || pid), false, true, age(backend_xmin)::float8, 0
    FROM pg_stat_replication WHERE backend_xmin IS NOT NULL
  ) r ORDER BY transactions DESC, "logBytes" DESC LIMIT 20`

const unfrozenSql = `
  SELECT max(greatest(age(datfrozenxid), mxid_age(datminmxid)))::float8 AS unfrozen FROM pg_database`

const tablesSql = `
  SELECT relname AS name, n_live_tup::float8 AS live, n_dead_tup::float8 AS dead,
         pg_total_relation_size(relid)::float8 AS bytes
  FROM pg_stat_user_tables WHERE schemaname = 'deadman' ORDER BY pg_total_relation_size(relid) DESC`

const processesSql = `
  SELECT name, detail, (deadman.now_ms() - seen_at_ms)::float8 AS seen_ms_ago
  FROM deadman.session
  WHERE NOT gone AND seen_at_ms > deadman.now_ms() - ${sessionStaleMs} AND name <> ''
  ORDER BY name LIMIT ${processesMax}`

// By the tally and by one probe of the ready index per route: nothing is walked, however many jobs there are.
const waitingSql = `
  SELECT r.type, sum(t.n)::float8 AS jobs, max(deadman.now_ms() - o.run_at_ms)::float8 AS oldest_ms_ago
  FROM (SELECT route, sum(n) AS n FROM deadman.tally WHERE state = 0 GROUP BY route) t
  JOIN deadman.route r ON r.id = t.route
  LEFT JOIN LATERAL (
    SELECT j.run_at_ms FROM deadman.job j WHERE j.route = t.route AND j.rank IS NOT NULL ORDER BY j.rank, j.id LIMIT 1
  ) o ON true
  WHERE t.n > 0 GROUP BY r.type ORDER BY 2 DESC LIMIT ${typesMax}`

const countsSql = `
  SELECT coalesce((SELECT sum(n) FROM deadman.tally WHERE state = 1), 0)::float8 AS running,
         (SELECT count(*)::int FROM deadman.lease
          WHERE greatest(seen_at_ms, claimed_at_ms) < deadman.now_ms() - 3 * lease_ms - 10000) AS overdue,
         (SELECT count(*)::int FROM (
            SELECT 1 FROM deadman.job WHERE mark = 3 AND finished_at_ms < deadman.now_ms() - 60000 LIMIT 1000) d
         ) AS unannounced`

interface Process {
  readonly name: string
  readonly detail: {
    readonly role: string
    readonly version: string
    readonly handlers: ReadonlyArray<string>
    readonly slots: number
    readonly runaways: number
  }
  readonly seen_ms_ago: number
}

const schemaFacts = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const tables = yield* sql.unsafe<SchemaFacts["tables"][number]>(tablesSql)
  const processes = yield* sql.unsafe<Process>(processesSql)
  const waiting = yield* sql.unsafe<{ type: string; jobs: number; oldest_ms_ago: number | null }>(waitingSql)
  const [counts] = yield* sql.unsafe<{ running: number; overdue: number; unannounced: number }>(countsSql)
  return {
    tables,
    processes: processes.map(({ detail, name, seen_ms_ago }) => ({
      name,
      role: detail.role,
      version: detail.version,
      handlers: detail.handlers,
      slots: detail.slots,
      runaways: detail.runaways,
      seenMsAgo: seen_ms_ago
    })),
    waiting: waiting.map(({ jobs, oldest_ms_ago, type }) => ({ type, jobs, oldestMsAgo: oldest_ms_ago })),
    running: counts?.running ?? 0,
    overdueLeases: counts?.overdue ?? 0,
    unannounced: counts?.unannounced ?? 0
  } satisfies SchemaFacts
})

const facts = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const [server] = yield* sql.unsafe<{
    version: string
    number: number
    replica: boolean
    user: string
    connections: number
    notifications: number
    encrypted: boolean | null
    near: boolean
    statement_ms: string
    settings: Record<string, string>
  }>(serverSql)
  const before = yield* Clock.currentTimeMillis
  const [clock] = yield* sql.unsafe<{ ms: number }>(clockSql)
  const after = yield* Clock.currentTimeMillis
  const [here] = yield* sql.unsafe<{ present: boolean; usage: boolean | null }>(presentSql)
  const present = here?.present === true
  const readable = present && here?.usage === true
  const rights = readable ? yield* sql.unsafe<{ missing: string }>(rightsSql) : []
  const missing = present && !readable ? ["USAGE on schema deadman"] : rights.map(({ missing }) => missing)
  const [meta] = readable
    ? yield* sql.unsafe<{ schema_version: number }>(`SELECT schema_version FROM deadman.meta`)
    : []
  const [oldest] = yield* sql.unsafe<
    { age_ms: number; pid: number; application: string; state: string }
  >(oldestSql)
  const replicas = yield* sql.unsafe<ReplicaFacts>(replicasSql)
  const [frozen] = yield* sql.unsafe<{ unfrozen: number }>(unfrozenSql)
  const version = meta?.schema_version ?? null
  const ours = version === Migrations.schemaVersion && missing.length === 0
  return {
    version: server?.version ?? "",
    versionNumber: server?.number ?? 0,
    settings: server?.settings ?? {},
    isReplica: server?.replica === true,
    keepsSettings: server?.statement_ms === statementMs,
    isOpen: server?.encrypted !== true && server?.near === false,
    user: server?.user ?? "",
    connections: server?.connections ?? 0,
    notifications: server?.notifications ?? 0,
    schemaVersion: version,
    missingRights: missing,
    clockAheadMs: Math.round((clock?.ms ?? before) - (before + after) / 2),
    clockExactMs: Math.ceil((after - before) / 2),
    oldest: oldest === undefined ? null : {
      ageMs: oldest.age_ms,
      pid: oldest.pid,
      application: oldest.application,
      state: oldest.state
    } satisfies OldTransaction,
    replicas,
    unfrozen: frozen?.unfrozen ?? 0,
    schema: ours ? yield* schemaFacts : null
  } satisfies PostgresFacts
})

const failed = (error: SqlError.SqlError) => {
  const { cause } = error.reason
  const message = because(Target.reasonOf(cause) ?? error.message)
  const { code: given } = Object(cause) as { readonly code?: unknown }
  const code = typeof given === "string" ? given : null
  return new CheckupFailed({
    message,
    advice: Target.adviceOf(code, message),
    refused: Target.isRefusal(code, message)
  })
}

export const look = (url: Redacted.Redacted, pem?: Pem): Effect.Effect<PostgresFacts, CheckupFailed> =>
  Layer.build(PgClient.layer({
    ...Target.options({ url, pem }, "deadman-doctor"),
    maxConnections: 1,
    startupParameters: { statement_timeout: statementMs, lock_timeout: "1000", jit: "off" }
  })).pipe(
    Effect.flatMap((connection) => Effect.provideContext(facts, connection)),
    Effect.scoped,
    Effect.mapError(failed),
    Effect.timeoutOrElse({
      duration: "20 seconds",
      orElse: () => Effect.fail(new CheckupFailed({ message: "no answer within 20 s", advice: null, refused: false }))
    })
  )
