/**
 * Reading jobs.
 *
 * A page examines a bounded number of rows, so that no filter makes a list slow
 * on millions of rows, and shows a bounded number of bytes, so that no list of
 * large jobs fills the memory: it may be short, and then its cursor goes on from
 * where it stopped. Which rows are walked depends on the state asked for: what is
 * rare has an index (`mark`), what runs is found through the leases, and
 * everything else is walked by id, newest first.
 */
import { Effect } from "effect"
import { type Backoff, defaults } from "../../../domain/Backoff.ts"
import type { Job, JobError, JobEvent, JobType, Queue } from "../../../domain/Job.ts"
import type { JobId } from "../../../domain/JobId.ts"
import { deadReasons, type JobState, jobStates } from "../../../domain/JobState.ts"
import type { Unique } from "../../../domain/Unique.ts"
import type { Counts, JobStore, ListRequest } from "../../../ports/JobStore.ts"
import { type Database, uuids } from "../Database.ts"
import { mark, orUnavailable, state } from "./Rows.ts"
import * as Tally from "./Tally.ts"

/** Rows that one page looks at, beyond what its offset skips. */
export const examineMax = 10_000

/**
 * Bytes of one page, of payloads as they came and all else as Postgres writes it; but always one job. As objects they
 * are several times as much.
 */
export const pageBytesMax = 16 * 1_048_576

const idMin = "00000000-0000-0000-0000-000000000000"

/** Above every id. */
const idMax = "ffffffff-ffff-ffff-ffff-ffffffffffff"

interface JobRow {
  readonly id: string
  readonly type: string
  readonly queue: string
  readonly priority: number
  readonly state: number
  readonly payload: unknown
  readonly tags: ReadonlyArray<string> | null
  readonly attempts: number
  readonly max_attempts: number
  readonly backoff: unknown
  readonly timeout_ms: number | null
  readonly start_by_ms: number | null
  readonly retain_ms: number | null
  readonly uniqueness: unknown
  readonly run_at_ms: number
  readonly created_at_ms: number
  readonly started_at_ms: number | null
  readonly finished_at_ms: number | null
  readonly worker: string | null
  readonly epoch: number
  readonly deliveries: number
  readonly losses: number
  readonly stale: number
  readonly reason: number | null
  readonly resubmitted_from: string | null
  readonly result: unknown
  readonly errors: ReadonlyArray<ErrorEntry> | null
  readonly errors_total: number | null
  readonly events: ReadonlyArray<EventEntry> | null
  readonly events_total: number | null
  readonly progress: unknown
  readonly logs: ReadonlyArray<LogEntry> | null
  readonly logs_total: number | null
  readonly resubmitted_as: string | null
  readonly schedule: string | null
  readonly tick_ms: number | null
}

interface ErrorEntry {
  readonly attempt: number
  readonly epoch: number
  readonly worker: string
  readonly claimed_at_ms: number
  readonly at_ms: number
  readonly name: string
  readonly message: string
}

interface LogEntry {
  readonly attempt: number
  readonly at_ms: number
  readonly line: string
}

interface EventEntry {
  readonly kind: JobEvent["kind"]
  readonly epoch: number
  readonly worker: string | null
  readonly at_ms: number
  readonly claimed_at_ms?: number
  readonly last_seen_ms?: number
  readonly counted?: boolean
  readonly outcome?: string
  readonly current_epoch?: number
}

const toError = (entry: ErrorEntry): JobError => ({
  attempt: entry.attempt,
  epoch: entry.epoch,
  worker: entry.worker,
  claimedAtMs: entry.claimed_at_ms,
  atMs: entry.at_ms,
  name: entry.name,
  message: entry.message
})

/** What a kind of event does not say is absent, not `undefined`. */
const said = <K extends keyof JobEvent>(name: K, value: JobEvent[K] | null | undefined): Partial<JobEvent> =>
  value === null || value === undefined ? {} : { [name]: value }

const toEvent = (entry: EventEntry): JobEvent => ({
  kind: entry.kind,
  epoch: entry.epoch,
  worker: entry.worker ?? null,
  atMs: entry.at_ms,
  ...said("claimedAtMs", entry.claimed_at_ms),
  ...said("lastSeenMs", entry.last_seen_ms),
  ...said("counted", entry.counted),
  ...said("outcome", entry.outcome),
  ...said("currentEpoch", entry.current_epoch)
})

const toJob = (row: JobRow): Job => ({
  id: row.id as JobId,
  type: row.type as JobType,
  queue: row.queue as Queue,
  priority: row.priority,
  state: jobStates[row.state] ?? "pending",
  payload: row.payload,
  tags: row.tags ?? [],
  attempts: row.attempts,
  maxAttempts: row.max_attempts,
  // The default is not stored.
  backoff: row.backoff === null ? defaults : row.backoff as Backoff,
  timeoutMs: row.timeout_ms,
  startByMs: row.start_by_ms,
  retainMs: row.retain_ms,
  unique: row.uniqueness as Unique | null,
  runAtMs: row.run_at_ms,
  createdAtMs: row.created_at_ms,
  startedAtMs: row.started_at_ms,
  finishedAtMs: row.finished_at_ms,
  worker: row.worker,
  epoch: row.epoch,
  deliveries: row.deliveries,
  leaseLosses: row.losses,
  staleWrites: row.stale,
  reason: row.reason === null ? null : deadReasons[row.reason] ?? null,
  result: row.result,
  errors: (row.errors ?? []).map(toError),
  errorsOmitted: Math.max(0, (row.errors_total ?? 0) - (row.errors?.length ?? 0)),
  events: (row.events ?? []).map(toEvent),
  eventsOmitted: Math.max(0, (row.events_total ?? 0) - (row.events?.length ?? 0)),
  progress: row.progress,
  logs: (row.logs ?? []).map(({ at_ms, attempt, line }) => ({ attempt, atMs: at_ms, line })),
  logsOmitted: Math.max(0, (row.logs_total ?? 0) - (row.logs?.length ?? 0)),
  resubmittedFrom: row.resubmitted_from as JobId | null,
  resubmittedAs: row.resubmitted_as as JobId | null,
  schedule: row.schedule,
  tickMs: row.tick_ms
})

const columns = `j.id, r.type, r.queue, j.priority, j.state, b.payload, b.tags, j.attempts, b.max_attempts, b.backoff,
  b.timeout_ms, b.start_by_ms::float8, j.retain_ms::float8, b.uniqueness, j.run_at_ms::float8, b.created_at_ms::float8, j.started_at_ms::float8, j.finished_at_ms::float8,
  j.worker, j.epoch, j.deliveries, j.losses, j.stale, j.reason, b.resubmitted_from, g.result, g.errors,
  g.errors_total, g.events, g.events_total, g.progress, g.logs, g.logs_total, g.resubmitted_as, b.schedule, b.tick_ms::float8`

/** Found by key, row by row, whatever the planner believes about the size of a table. */
const wholeOf = (job: string) =>
  `CROSS JOIN LATERAL (SELECT * FROM deadman.job WHERE id = ${job}.id LIMIT 1) j
   JOIN deadman.route r ON r.id = j.route
   CROSS JOIN LATERAL (SELECT * FROM deadman.body WHERE id = j.id LIMIT 1) b
   LEFT JOIN LATERAL (SELECT * FROM deadman.journal WHERE id = j.id LIMIT 1) g ON true`

const getSql = `SELECT ${columns} FROM (SELECT DISTINCT id FROM unnest($1::uuid[]) x(id)) x ${wholeOf("x")}`

/** Ids in descending order below $1, at most $2. Row comparisons walk the index of marks without statistics. */
const walkOf = (wanted: JobState | undefined): string => {
  const marked = (value: number) =>
    `(SELECT id, state, route, bytes FROM deadman.job
      WHERE (mark, id) < (${value}::smallint, $1::uuid) AND (mark, id) >= (${value}::smallint, '${idMin}'::uuid)
        AND mark IS NOT NULL
      ORDER BY mark DESC, id DESC LIMIT $2::int)`
  switch (wanted) {
    case "failed":
      return marked(mark.failed)
    case "dead":
      return `SELECT id, state, route, bytes FROM (${marked(mark.dead)} UNION ALL ${marked(mark.deadUnannounced)}) m
              ORDER BY id DESC LIMIT $2::int`
    case "running":
      // A lease names its jobs as long as it lives: some may be pruned by now, and some be named by a later one too.
      return `SELECT x.id, j.state, j.route, j.bytes
              FROM (SELECT DISTINCT i.id FROM deadman.lease l CROSS JOIN LATERAL unnest(l.job_ids) i(id)
                    WHERE i.id < $1::uuid ORDER BY i.id DESC LIMIT $2::int) x
              LEFT JOIN LATERAL (SELECT state, route, bytes FROM deadman.job WHERE id = x.id LIMIT 1) j ON true`
    case undefined:
    case "pending":
    case "completed":
      return `SELECT id, state, route, bytes FROM deadman.job WHERE id < $1::uuid ORDER BY id DESC LIMIT $2::int`
  }
}

/** A filter on what was walked, and what it is given. */
const filtersOf = (request: ListRequest): { readonly where: string; readonly params: ReadonlyArray<string> } => {
  const params: Array<string> = []
  const given = (value: string) => `$${4 + params.push(value)}::text`
  const filters: Array<string> = []
  if (request.state !== undefined) {
    filters.push(`w.state = ${state[request.state]}`)
  }
  if (request.type !== undefined || request.queue !== undefined) {
    const type = request.type === undefined ? "true" : `type = ${given(request.type)}`
    const queue = request.queue === undefined ? "true" : `queue = ${given(request.queue)}`
    filters.push(`w.route = ANY (ARRAY(SELECT id FROM deadman.route WHERE ${type} AND ${queue}))`)
  }
  if (request.tag !== undefined) {
    filters.push(
      `EXISTS (SELECT 1 FROM (SELECT tags FROM deadman.body WHERE id = w.id LIMIT 1) b
               WHERE ${given(request.tag)} = ANY (b.tags))`
    )
  }
  return { where: filters.length === 0 ? "true" : filters.join(" AND "), params }
}

/**
 * $3 limit, $4 offset. One job more than asked for says whether there is a next one. There is one row at least, which
 * carries `edge`: where the page goes on if it does not go on behind a full number of jobs, since the walk ended before
 * the last row without filling the page, or the page was full of bytes.
 */
const listSql = (wanted: JobState | undefined, where: string): string =>
  `WITH w AS MATERIALIZED (${walkOf(wanted)}),
    m AS MATERIALIZED (
      SELECT w.id, w.bytes FROM w WHERE ${where} ORDER BY w.id DESC OFFSET $4::int LIMIT $3::int + 1
    ),
    p AS MATERIALIZED (
      SELECT b.id FROM (
        SELECT m.id, row_number() OVER v AS n, sum(m.bytes + coalesce(g.bytes, 0)) OVER v AS total
        FROM m LEFT JOIN LATERAL (
          SELECT octet_length(q::text) AS bytes FROM deadman.journal q WHERE q.id = m.id LIMIT 1
        ) g ON true
        WINDOW v AS (ORDER BY m.id DESC)
      ) b
      WHERE b.n = 1 OR b.total <= ${pageBytesMax}
    )
    SELECT e.edge, x.*
    FROM (
      SELECT CASE WHEN (SELECT count(*) FROM p) < (SELECT count(*) FROM m)
                  THEN (SELECT id FROM p ORDER BY id LIMIT 1)
                  WHEN (SELECT count(*) FROM m) <= $3::int
                  THEN (SELECT id FROM w ORDER BY id DESC OFFSET $2::int - 1 LIMIT 1) END AS edge
    ) e
    LEFT JOIN LATERAL (SELECT ${columns} FROM p ${wholeOf("p")}) x ON true
    ORDER BY x.id DESC`

/** What `list` sends. */
export const listStatement = (
  request: ListRequest
): { readonly text: string; readonly params: ReadonlyArray<unknown> } => {
  const { params, where } = filtersOf(request)
  // Without a filter every row matches: the page itself and the one behind it.
  const examined = request.offset + request.limit + (where === "true" ? 1 : examineMax)
  return {
    text: listSql(request.state, where),
    params: [request.before ?? idMax, examined, request.limit, request.offset, ...params]
  }
}

/**
 * When the oldest job that may start was due. One entry of the ready index is read per route of which jobs wait, found as
 * claims find theirs: so it costs the same however many wait, and nothing for routes without any.
 */
const readySince = `SELECT min(f.run_at_ms)
  FROM (
    SELECT t.route FROM deadman.tally t JOIN deadman.route r ON r.id = t.route
    WHERE t.state IN (${state.pending}, ${state.failed}) AND NOT r.paused
    GROUP BY t.route HAVING sum(t.n) > 0
  ) w
  CROSS JOIN LATERAL (
    SELECT q.run_at_ms FROM deadman.job q
    WHERE (q.route, q.rank) >= (w.route, -9223372036854775808) AND (q.route, q.rank) <= (w.route, 9223372036854775807)
      AND q.rank IS NOT NULL
    ORDER BY q.route, q.rank, q.id
    LIMIT 1
  ) f`

/** What `counts` sends. */
export const countsSql = `SELECT deadman.now_ms()::float8 AS now_ms, (${readySince})::float8 AS ready_since_ms,
         c.type, c.queue, c.state, c.n
  FROM (SELECT 1) one
  LEFT JOIN (
    SELECT r.type, r.queue, t.state, sum(t.n)::float8 AS n
    FROM deadman.tally t JOIN deadman.route r ON r.id = t.route
    GROUP BY 1, 2, 3 HAVING sum(t.n) > 0
  ) c ON true`

interface CountRow {
  readonly now_ms: number
  readonly ready_since_ms: number | null
  readonly type: string | null
  readonly queue: string
  readonly state: number
  readonly n: number
}

export const make = (db: Database["Service"]): Pick<JobStore["Service"], "get" | "list" | "counts" | "now"> => {
  const get: JobStore["Service"]["get"] = (ids) =>
    ids.length === 0 ? Effect.succeed([]) : db.query<JobRow>("read", getSql, [uuids(ids)]).pipe(
      orUnavailable("get"),
      Effect.map((rows) => rows.map(toJob))
    )

  const list: JobStore["Service"]["list"] = (request) => {
    const { params, text } = listStatement(request)
    return db.query<JobRow & { readonly edge: string | null }>("read", text, params).pipe(
      orUnavailable("list"),
      Effect.map((rows) => {
        const found = rows.filter(({ id }) => id !== null)
        const jobs = found.slice(0, request.limit).map(toJob)
        // Where more than a page was found, the next one begins behind this; else behind all that was looked at.
        const next = found.length > request.limit ? jobs.at(-1)?.id ?? null : rows[0]?.edge as JobId | null ?? null
        return { jobs, next }
      })
    )
  }

  const counts: JobStore["Service"]["counts"] = db.query<CountRow>("read", countsSql).pipe(
    orUnavailable("counts"),
    Effect.map((rows): Counts => {
      const byState: Record<JobState, number> = { pending: 0, running: 0, failed: 0, completed: 0, dead: 0 }
      // Types and queues are named by users, and `__proto__` is no name, but `constructor` is.
      const byType = new Map<string, number>()
      const byQueue = new Map<string, number>()
      const pendingByType = new Map<string, number>()
      for (const { n, queue, state, type } of rows) {
        const name = type === null ? undefined : jobStates[state]
        if (type !== null && name !== undefined) {
          byState[name] += n
          byType.set(type, (byType.get(type) ?? 0) + n)
          byQueue.set(queue, (byQueue.get(queue) ?? 0) + n)
          if (name === "pending") {
            pendingByType.set(type, (pendingByType.get(type) ?? 0) + n)
          }
        }
      }
      const { now_ms: asOfMs = 0, ready_since_ms: since = null } = rows[0] ?? {}
      return {
        byState,
        byType: Object.fromEntries(byType),
        byQueue: Object.fromEntries(byQueue),
        pendingByType: Object.fromEntries(pendingByType),
        oldestReadyMs: since === null ? null : Math.max(0, asOfMs - since),
        asOfMs
      }
    }),
    Effect.tap(() => Tally.compact(db))
  )

  const now: JobStore["Service"]["now"] = db.query<{ ms: number }>("read", `SELECT deadman.now_ms()::float8 AS ms`)
    .pipe(
      orUnavailable("now"),
      Effect.map(([row]) => row?.ms ?? 0)
    )

  return { get, list, counts, now }
}
