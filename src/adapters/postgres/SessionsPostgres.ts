/**
 * `Sessions` in one row per process.
 *
 * Rows of processes that have been silent for a week are folded into one, so
 * that the totals stay and the table does not grow with every boot.
 */
import { Clock, Effect, Layer } from "effect"
import { type ListedSession, type Session, Sessions, SessionsUnavailable } from "../../ports/Sessions.ts"
import { Database, long } from "./Database.ts"

/** No process is called so. */
const folded = ""

const foldAfterMs = 7 * 86_400_000

const foldEveryMs = 3_600_000

/** Rows of one statement. Where there are more, the next report takes more of them. */
const foldMax = 1_000

interface Row {
  readonly name: string
  readonly started_at_ms: number
  readonly seen_at_ms: number
  readonly detail: Omit<Session, "name" | "counters">
  readonly counters: Record<string, number>
}

const reportSql = `
  INSERT INTO deadman.session AS s (name, started_at_ms, seen_at_ms, detail, counters)
  SELECT $1::text, n.ms, n.ms, $2::text::jsonb, $3::text::jsonb FROM (SELECT deadman.now_ms() AS ms) n
  ON CONFLICT (name) DO UPDATE
  SET seen_at_ms = EXCLUDED.seen_at_ms, gone = false, detail = EXCLUDED.detail, counters = EXCLUDED.counters`

const leaveSql = `UPDATE deadman.session SET gone = true WHERE name = $1::text`

const listSql = `
  SELECT name, started_at_ms::float8, seen_at_ms::float8, detail, counters
  FROM deadman.session
  WHERE NOT gone AND seen_at_ms > deadman.statement_ms() - $1::float8::bigint AND name <> '${folded}'
  ORDER BY name
  LIMIT 1000`

const totalsSql = `
  SELECT c.key AS name, sum(c.value::numeric)::float8 AS n
  FROM deadman.session, jsonb_each_text(counters) c
  GROUP BY 1`

// The row of the folded ones is added to as it is when the lock on it is there, not as it was when this began.
const foldSql = `
  WITH o AS (
    DELETE FROM deadman.session
    WHERE name IN (
      SELECT name FROM deadman.session
      WHERE name <> '${folded}' AND seen_at_ms < deadman.statement_ms() - $1::float8::bigint
      ORDER BY name LIMIT ${foldMax} FOR UPDATE SKIP LOCKED
    )
    RETURNING counters
  ), c AS (
    SELECT coalesce(jsonb_object_agg(x.key, x.n), '{}') AS counters, count(*) AS n
    FROM (SELECT e.key, sum(e.value::numeric) AS n FROM o, jsonb_each_text(o.counters) e GROUP BY 1) x
  ), i AS (
    INSERT INTO deadman.session AS s (name, started_at_ms, seen_at_ms, gone, detail, counters)
    SELECT '${folded}', 0, 0, true, '{}', c.counters FROM c WHERE c.n > 0
    ON CONFLICT (name) DO UPDATE
    SET counters = (
      SELECT jsonb_object_agg(x.key, x.n)
      FROM (
        SELECT e.key, sum(e.value::numeric) AS n
        FROM (SELECT s.counters AS counters UNION ALL SELECT EXCLUDED.counters) b, jsonb_each_text(b.counters) e
        GROUP BY 1
      ) x
    )
  )
  SELECT count(*)::int AS folded FROM o`

export interface Options {
  /** How long a process must have been silent before its row is folded. */
  readonly foldAfterMs?: number
  readonly foldEveryMs?: number
}

const make = Effect.fnUntraced(function*(options: Options) {
  const database = yield* Database
  let foldedMs: number | null = null

  const query = <Row extends object>(
    operation: SessionsUnavailable["operation"],
    text: string,
    params: ReadonlyArray<unknown> = []
  ) =>
    database.query<Row>("read", text, params).pipe(
      Effect.mapError((cause) => new SessionsUnavailable({ operation, cause }))
    )

  const fold = Effect.gen(function*() {
    const now = Number((yield* Clock.monotonicTimeNanos) / 1_000_000n)
    if (foldedMs === null || now - foldedMs >= (options.foldEveryMs ?? foldEveryMs)) {
      foldedMs = now
      const [row] = yield* query<{ readonly folded: number }>("report", foldSql, [
        long(options.foldAfterMs ?? foldAfterMs)
      ])
      if ((row?.folded ?? 0) >= foldMax) {
        foldedMs = null
      }
    }
  })

  const report: Sessions["Service"]["report"] = Effect.fn("SessionsPostgres.report")(
    function*({ counters, name, ...detail }) {
      yield* query("report", reportSql, [name, JSON.stringify(detail), JSON.stringify(counters)])
      yield* fold
    }
  )

  const list: Sessions["Service"]["list"] = Effect.fn("SessionsPostgres.list")(function*(staleMs) {
    const rows = yield* query<Row>("list", listSql, [long(staleMs)])
    return rows.map(({ counters, detail, name, seen_at_ms, started_at_ms }): ListedSession =>
      Object.assign({}, detail, { name, counters, startedAtMs: started_at_ms, seenAtMs: seen_at_ms })
    )
  })

  return Sessions.of({
    report,
    leave: (name) => Effect.asVoid(query("leave", leaveSql, [name])),
    list,
    totals: Effect.map(
      query<{ name: string; n: number }>("totals", totalsSql),
      (rows) => Object.fromEntries(rows.map(({ n, name }) => [name, n]))
    )
  })
})

export const layerWith = (options: Options): Layer.Layer<Sessions, never, Database> =>
  Layer.effect(Sessions, make(options))

export const layer: Layer.Layer<Sessions, never, Database> = layerWith({})
