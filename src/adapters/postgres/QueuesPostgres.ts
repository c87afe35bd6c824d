/**
 * `Queues` in a table of its own, and on the routes, where claims read it.
 *
 * A put holds the queue's lock for two statements: routes that are added at the same time share it, so that a new one
 * has what was said about its queue, whoever adds it.
 *
 * A new step changes the place of every job that is ready and has a priority. They are ranked anew by a walk over the
 * ready index, a batch a call; what was stored by a statement or a transaction that began before the put is found by a
 * second walk, which begins when none of these is open any more. A user's transaction may stay open for long: it is
 * waited for by looking once in a while, up to an hour.
 */
import { Effect, Layer } from "effect"
import type { Queue } from "../../domain/Job.ts"
import { type JobState, jobStates } from "../../domain/JobState.ts"
import * as QueueSettings from "../../domain/QueueSettings.ts"
import * as Rank from "../../domain/Rank.ts"
import { Queues, QueuesUnavailable, type QueueView, TooManyLimits } from "../../ports/Queues.ts"
import { Database, long } from "./Database.ts"
import type { DatabaseFailed } from "./DatabaseFailed.ts"
import { wakeChannel } from "./store/Rows.ts"

/** Longer than any statement of a submit or a promotion may run. */
const statementsMs = 6_000
/** So long after the put the last walk begins, whoever still has a transaction open. It is about the order only. */
const transactionsMs = 3_600_000
/** While one is. */
const lookAgainMs = 10_000

interface ViewRow {
  readonly name: string
  readonly paused: boolean
  readonly concurrency: number | null
  readonly step_ms: number
  readonly created_at_ms: number | null
  readonly counts: Readonly<Record<string, number>>
}

// The names first, so that a page counts only its own queues.
const viewsOf = (names: string) =>
  `WITH m AS MATERIALIZED (${names})
   SELECT m.name, coalesce(q.paused, false) AS paused, q.concurrency,
          coalesce(q.step_ms, ${Rank.stepDefaultMs})::float8 AS step_ms, q.created_at_ms::float8 AS created_at_ms,
          coalesce(c.counts, '{}') AS counts
   FROM m
   LEFT JOIN deadman.queue q ON q.name = m.name
   LEFT JOIN (
     SELECT s.queue, jsonb_object_agg(s.state, s.n) AS counts
     FROM (
       SELECT r.queue, t.state, sum(t.n) AS n
       FROM deadman.tally t JOIN deadman.route r ON r.id = t.route
       WHERE r.queue = ANY (ARRAY(SELECT name FROM m))
       GROUP BY 1, 2
     ) s GROUP BY 1
   ) c ON c.queue = m.name
   ORDER BY m.name`

const listSql = viewsOf(
  `SELECT name FROM (SELECT name FROM deadman.queue UNION SELECT queue FROM deadman.route) n
   WHERE name COLLATE "C" > $1::text ORDER BY name COLLATE "C" LIMIT $2::int`
).replace("ORDER BY m.name", `ORDER BY m.name COLLATE "C"`)

const getSql = viewsOf(
  `SELECT $1::text AS name
   WHERE EXISTS (SELECT 1 FROM deadman.queue WHERE name = $1::text)
      OR EXISTS (SELECT 1 FROM deadman.route WHERE queue = $1::text)`
)

const lockSql = `SELECT pg_advisory_xact_lock(deadman.queue_lock($1::text))`

// $1 name, $2 paused or null, $3 whether concurrency is given, $4 concurrency, $5 step_ms or null. `o` is what was there.
const putSql = (wake: boolean) =>
  `WITH s AS MATERIALIZED (SELECT deadman.now_ms() AS now),
   o AS MATERIALIZED (SELECT * FROM deadman.queue WHERE name = $1::text),
   f AS MATERIALIZED (
     SELECT NOT $3::boolean OR $4::int IS NULL OR EXISTS (SELECT 1 FROM o WHERE o.concurrency IS NOT NULL)
            OR (SELECT count(*) FROM deadman.queue WHERE concurrency IS NOT NULL) < ${QueueSettings.limitedMax} AS fits
   ),
   w AS (
     INSERT INTO deadman.queue AS q (name, paused, concurrency, step_ms, created_at_ms, stepped_at_ms)
     SELECT $1::text, coalesce($2::boolean, false), CASE WHEN $3::boolean THEN $4::int END,
            coalesce($5::float8::bigint, ${Rank.stepDefaultMs}), s.now,
            CASE WHEN $5::float8 <> ${Rank.stepDefaultMs} THEN s.now END
     FROM s WHERE (SELECT fits FROM f)
     ON CONFLICT (name) DO UPDATE
     SET paused        = coalesce($2::boolean, q.paused),
         concurrency   = CASE WHEN $3::boolean THEN $4::int ELSE q.concurrency END,
         step_ms       = coalesce($5::float8::bigint, q.step_ms),
         stepped_at_ms = CASE WHEN $5::float8::bigint <> q.step_ms THEN (SELECT now FROM s) ELSE q.stepped_at_ms END
     RETURNING q.name, q.paused, q.step_ms
   ),
   u AS (
     UPDATE deadman.route r SET paused = coalesce($2::boolean, r.paused), step_ms = w.step_ms
     FROM w WHERE r.queue = w.name
       AND (r.paused, r.step_ms) IS DISTINCT FROM (coalesce($2::boolean, r.paused), w.step_ms)
   )
   SELECT (SELECT fits FROM f) AS fits,
          ${
    wake ? `(SELECT count(pg_notify('${wakeChannel}', k)) FROM w CROSS JOIN unnest(ARRAY['q', 'r']) k)` : "0"
  }::int
            AS woken`

const limitsSql = `SELECT name AS queue, concurrency FROM deadman.queue WHERE concurrency IS NOT NULL`

interface SteppedRow {
  readonly name: string
  readonly stepped_at_ms: number
  readonly now_ms: number
  /** The oldest transaction that is open, and the next one to come. */
  readonly oldest: string
  readonly coming: string
}

// A transaction that has stored something has a number; what begins after the put was seen has a later one than that.
const steppedSql = `SELECT name, stepped_at_ms::float8, deadman.now_ms()::float8 AS now_ms,
         pg_snapshot_xmin(pg_current_snapshot())::text AS oldest, pg_snapshot_xmax(pg_current_snapshot())::text AS coming
  FROM deadman.queue
  WHERE stepped_at_ms IS NOT NULL ORDER BY stepped_at_ms, name LIMIT 100`

interface Place {
  readonly route: number
  readonly rank: string
  readonly id: string
}

interface WalkedRow {
  readonly route: number | null
  readonly looked: number
  readonly changed: number
  readonly rank: string | null
  readonly id: string | null
}

// $1 queue, $2 route, $3 rank and $4 id of where the walk is, $5 rows to look at. Only what stands wrong is locked.
const walkSql = `WITH r AS MATERIALIZED (
     SELECT id, step_ms FROM deadman.route WHERE queue = $1::text AND id >= $2::int ORDER BY id LIMIT 1
   ),
   w AS MATERIALIZED (
     SELECT q.* FROM r CROSS JOIN LATERAL (
       SELECT id, rank, run_at_ms - priority * r.step_ms AS right_rank FROM deadman.job
       WHERE (route, rank, id) > (r.id, CASE WHEN r.id = $2::int THEN $3::bigint ELSE ${"-9223372036854775808"} END, $4::uuid)
         AND (route, rank) <= (r.id, 9223372036854775807) AND rank IS NOT NULL
       ORDER BY route, rank, id LIMIT $5::int
     ) q
   ),
   o AS MATERIALIZED (
     SELECT id FROM deadman.job
     WHERE id = ANY (ARRAY(SELECT id FROM w WHERE rank <> right_rank)) AND rank IS NOT NULL
     ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
   ),
   u AS (
     UPDATE deadman.job j SET rank = j.run_at_ms - j.priority * r.step_ms
     FROM r WHERE j.id = ANY (ARRAY(SELECT id FROM o)) AND j.rank IS NOT NULL
     RETURNING j.id
   )
   SELECT (SELECT id FROM r) AS route, (SELECT count(*)::int FROM w) AS looked, (SELECT count(*)::int FROM u) AS changed,
          l.rank::text, l.id
   FROM (SELECT 1) one LEFT JOIN (SELECT rank, id FROM w ORDER BY rank DESC, id DESC LIMIT 1) l ON true`

// Unless it has got yet another step meanwhile.
const rerankedSql = `UPDATE deadman.queue SET stepped_at_ms = NULL
  WHERE name = $1::text AND stepped_at_ms = $2::float8::bigint`

const idMin = "00000000-0000-0000-0000-000000000000"
const start: Place = { route: 0, rank: "-9223372036854775808", id: idMin }

interface Walk {
  readonly steppedAtMs: number
  /** The first transaction of which it is certain that it began after the put. */
  readonly after: string
  /** Whether nothing older than the put was open when it began. */
  readonly last: boolean
  /** `null`: it has come to its end. */
  readonly place: Place | null
}

const toView = (row: ViewRow): QueueView => {
  const byState: Record<JobState, number> = { pending: 0, running: 0, failed: 0, completed: 0, dead: 0 }
  for (const [state, n] of Object.entries(row.counts)) {
    const name = jobStates[Number(state)]
    if (name !== undefined) {
      byState[name] = Math.max(0, n)
    }
  }
  return {
    name: row.name as Queue,
    paused: row.paused,
    concurrency: row.concurrency,
    stepMs: row.step_ms,
    createdAtMs: row.created_at_ms,
    byState
  }
}

export interface Options {
  /** Whether workers are woken by the statements themselves, because the transport is Postgres too. */
  readonly wake: boolean
}

const make = Effect.fnUntraced(function*(options: Options) {
  const database = yield* Database
  const statement = putSql(options.wake)
  const walks = new Map<string, Walk>()

  const failed = (operation: QueuesUnavailable["operation"]) => (cause: DatabaseFailed) =>
    new QueuesUnavailable({ operation, cause })

  const query = <Row extends object>(
    operation: QueuesUnavailable["operation"],
    text: string,
    params: ReadonlyArray<unknown> = []
  ) => Effect.mapError(database.query<Row>("read", text, params), failed(operation))

  const list: Queues["Service"]["list"] = Effect.fn("QueuesPostgres.list")(function*({ after, limit }) {
    const rows = yield* query<ViewRow>("list", listSql, [after ?? "", limit + 1])
    return { queues: rows.slice(0, limit).map(toView), more: rows.length > limit }
  })

  const get: Queues["Service"]["get"] = (name) =>
    Effect.map(query<ViewRow>("get", getSql, [name]), ([row]) => row === undefined ? null : toView(row))

  const put: Queues["Service"]["put"] = Effect.fn("QueuesPostgres.put")(function*(name, change) {
    const { concurrency, paused = null, stepMs = null } = change
    const answer = yield* database.transaction("read", (session) =>
      Effect.gen(function*() {
        yield* session.query(lockSql, [name])
        const [row] = yield* session.query<{ readonly fits: boolean; readonly woken: number }>(statement, [
          name,
          paused,
          concurrency !== undefined,
          concurrency ?? null,
          long(stepMs)
        ])
        return row
      })).pipe(
        // A route is added in a moment, unless somebody's transaction stays open.
        Effect.retry({ times: 4, while: ({ kind }) => kind === "locked" || kind === "deadlock" }),
        Effect.mapError(failed("put"))
      )
    if (answer?.fits !== true) {
      return yield* new TooManyLimits({ most: QueueSettings.limitedMax })
    }
    const queue = yield* get(name)
    return queue === null
      ? yield* new QueuesUnavailable({ operation: "put", cause: new Error("the queue is gone: ask again") })
      : { queue, announced: answer.woken > 0 }
  })

  const limits = Effect.map(
    query<{ readonly queue: string; readonly concurrency: number }>("limits", limitsSql),
    (rows) => rows.map(({ concurrency, queue }) => ({ queue: queue as Queue, concurrency }))
  )

  /** One batch of a walk. */
  const walked = Effect.fnUntraced(function*({ name, stepped_at_ms }: SteppedRow, walk: Walk, limit: number) {
    const place = walk.place ?? start
    const [row] = yield* query<WalkedRow>("rerank", walkSql, [name, place.route, place.rank, place.id, limit])
    const next = row === undefined || row.route === null
      ? null
      : row.looked < limit || row.rank === null || row.id === null
      ? { ...start, route: row.route + 1 }
      : { route: row.route, rank: row.rank, id: row.id }
    walks.set(name, { ...walk, place: next })
    if (next === null && walk.last) {
      walks.delete(name)
      yield* query("rerank", rerankedSql, [name, long(stepped_at_ms)])
    }
    return { jobs: row?.changed ?? 0, againInMs: 0 }
  })

  const rerank: Queues["Service"]["rerank"] = Effect.fn("QueuesPostgres.rerank")(function*(limit) {
    const stepped = yield* query<SteppedRow>("rerank", steppedSql)
    let againInMs: number | null = null
    for (const row of stepped) {
      const known = walks.get(row.name)
      const walk = known?.steppedAtMs === row.stepped_at_ms ? known : null
      const ageMs = row.now_ms - row.stepped_at_ms
      const after = walk?.after ?? row.coming
      const ended = BigInt(row.oldest) >= BigInt(after)
      const last = ageMs >= statementsMs && (ended || ageMs >= transactionsMs)
      if (walk === null || walk.place !== null || last) {
        const begun = walk !== null && walk.place !== null
          ? walk
          : { steppedAtMs: row.stepped_at_ms, after, last, place: start }
        return yield* walked(row, begun, limit)
      }
      againInMs = Math.min(againInMs ?? Infinity, ageMs < statementsMs ? statementsMs - ageMs : lookAgainMs)
    }
    return { jobs: 0, againInMs }
  })

  return Queues.of({ list, get, put, limits, rerank })
})

export const layer = (options: Options): Layer.Layer<Queues, never, Database> => Layer.effect(Queues, make(options))
