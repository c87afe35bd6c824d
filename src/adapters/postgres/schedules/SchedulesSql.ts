/** The statements of `SchedulesPostgres.ts`, of firing and of running. */
import { state, type StoreOptions, tallies, wakes } from "../store/Rows.ts"

export interface ScheduleRow {
  readonly name: string
  readonly revision: number
  readonly cron: string | null
  readonly zone: string | null
  readonly every_ms: number | null
  readonly next_fire_ms: number | null
  readonly last_fire_ms: number | null
  readonly last_job: string | null
  readonly created_at_ms: number
  readonly updated_at_ms: number
  readonly paused: boolean
  readonly overlap: string
  readonly missed: unknown
  readonly type: string
  readonly queue: string
  readonly payload: unknown
  readonly priority: number
  readonly max_attempts: number
  readonly timeout_ms: number | null
  readonly retain_ms: number | null
  readonly backoff: unknown
  readonly tags: ReadonlyArray<string> | null
}

const timing = `q.cron, q.zone, q.every_ms::float8, q.next_fire_ms::float8, q.overlap, q.missed`

const columns = `q.name, q.revision::float8, ${timing}, q.last_fire_ms::float8, q.last_job, q.created_at_ms::float8,
  q.updated_at_ms::float8, q.paused, q.type, q.queue, q.payload, q.priority, q.max_attempts, q.timeout_ms, q.backoff,
  q.tags, q.retain_ms::float8`

export const get = `SELECT ${columns} FROM deadman.schedule q WHERE q.name = $1::text`

/** With the clock, also where there is no schedule. */
export const look = `SELECT s.now::float8 AS now, ${columns}
  FROM (SELECT deadman.now_ms() AS now) s LEFT JOIN deadman.schedule q ON q.name = $1::text`

export const list = `SELECT ${columns} FROM deadman.schedule q
  WHERE q.name COLLATE "C" > $1::text ORDER BY q.name COLLATE "C" LIMIT $2::int`

// $1 name, $2 cron, $3 zone, $4 every_ms, $5 next_fire_ms, $6 now, $7 paused, $8 overlap, $9 missed, $10 type, $11 queue,
// $12 payload, $13 priority, $14 max_attempts, $15 timeout_ms, $16 backoff, $17 tags (a literal), $18 the revision,
// $19 retain_ms.
const values = `SELECT $1::text AS name, $2::text AS cron, $3::text AS zone, $4::float8::bigint AS every_ms,
  $5::float8::bigint AS next_fire_ms, $6::float8::bigint AS now, $7::boolean AS paused, $8::text AS overlap,
  $9::text::jsonb AS missed, $10::text AS type, $11::text AS queue, $12::text::jsonb AS payload,
  $13::int AS priority, $14::int AS max_attempts, $15::float8::int AS timeout_ms, $16::text::jsonb AS backoff,
  $17::text[] AS tags, $18::float8::bigint AS revision, $19::float8::bigint AS retain_ms`

export const insert = `WITH x AS (${values})
  INSERT INTO deadman.schedule AS q (name, cron, zone, every_ms, next_fire_ms, created_at_ms, updated_at_ms, paused,
    overlap, missed, type, queue, payload, priority, max_attempts, timeout_ms, backoff, tags, retain_ms)
  SELECT name, cron, zone, every_ms, next_fire_ms, now, now, paused, overlap, missed, type, queue, payload, priority,
         max_attempts, timeout_ms, backoff, tags, retain_ms
  FROM x WHERE revision IS NULL
  ON CONFLICT (name) DO NOTHING
  RETURNING ${columns}`

export const replace = `WITH x AS (${values})
  UPDATE deadman.schedule q
  SET revision = q.revision + 1, cron = x.cron, zone = x.zone, every_ms = x.every_ms, next_fire_ms = x.next_fire_ms,
      updated_at_ms = x.now, paused = x.paused, overlap = x.overlap, missed = x.missed, type = x.type, queue = x.queue,
      payload = x.payload, priority = x.priority, max_attempts = x.max_attempts, timeout_ms = x.timeout_ms,
      backoff = x.backoff, tags = x.tags, retain_ms = x.retain_ms
  FROM x WHERE q.name = x.name AND q.revision = x.revision
  RETURNING ${columns}`

export const remove = `DELETE FROM deadman.schedule WHERE name = $1::text RETURNING name`

// $2 the revision, $3 what is booked then, $4 now.
export const setPaused = (paused: boolean) =>
  `UPDATE deadman.schedule q
   SET revision = q.revision + 1, paused = ${paused}, next_fire_ms = $3::float8::bigint,
       updated_at_ms = $4::float8::bigint
   WHERE q.name = $1::text AND q.revision = $2::float8::bigint
   RETURNING ${columns}`

export interface DueRow {
  readonly now: number
  readonly next_ms: number | null
  readonly name: string | null
  readonly revision: number
  readonly cron: string | null
  readonly zone: string | null
  readonly every_ms: number | null
  readonly next_fire_ms: number
  readonly overlap: string
  readonly missed: unknown
  readonly bytes: number
}

export const due = `WITH s AS MATERIALIZED (SELECT deadman.now_ms() AS now)
  SELECT s.now::float8, d.*,
         (SELECT min(next_fire_ms) FROM deadman.schedule WHERE next_fire_ms > s.now)::float8 AS next_ms
  FROM s LEFT JOIN LATERAL (
    SELECT q.name, q.revision::float8, ${timing}, q.bytes FROM deadman.schedule q
    WHERE q.next_fire_ms <= s.now ORDER BY q.next_fire_ms LIMIT $1::int
  ) d ON true`

/** The job before, under the schedule's lock: who cancels it must be the one who fires. */
export const lockForFire = `SELECT last_job FROM deadman.schedule
  WHERE name = $1::text AND revision = $2::float8::bigint AND NOT paused FOR UPDATE SKIP LOCKED`

export interface RunRow {
  readonly overlap: string
  readonly type: string
  readonly queue: string
  readonly last_job: string | null
}

export const lockForRun = `SELECT overlap, type, queue, last_job
  FROM deadman.schedule WHERE name = $1::text FOR UPDATE`

/** A statement of its own, behind the lock: the one that waited for the lock sees other tables as they were before. */
export const unfinished = `SELECT state FROM deadman.job
  WHERE id = $1::uuid AND state IN (${state.pending}, ${state.running}, ${state.failed})`

const bodies = (from: string, conflict: string) =>
  `b AS (
     INSERT INTO deadman.body (id, payload, created_at_ms, timeout_ms, max_attempts, backoff, tags, key, schedule,
                               tick_ms)
     SELECT k.id, q.payload, s.now, q.timeout_ms, q.max_attempts, q.backoff, q.tags, k.key, k.name, k.tick_ms
     FROM ${from} CROSS JOIN s JOIN deadman.schedule q ON q.name = k.name
     ORDER BY k.id
     ON CONFLICT ${conflict} DO NOTHING
     RETURNING id
   ),
   j AS (
     INSERT INTO deadman.job (id, run_at_ms, rank, route, bytes, priority, retain_ms, prune_ms)
     SELECT k.id, s.now, s.now - q.priority * k.step_ms, k.route, q.bytes, q.priority,
            q.retain_ms, s.now + q.retain_ms
     FROM b JOIN ${from} ON k.id = b.id CROSS JOIN s JOIN deadman.schedule q ON q.name = k.name
     RETURNING id, route
   )`

const ending = ({ queued = false, wake }: Pick<StoreOptions, "queued" | "wake">) =>
  `${tallies(`SELECT route, ${state.pending} AS state, count(*) AS n FROM j GROUP BY route`)},
   ${wakes(wake && !queued, `SELECT 'r' AS kind FROM j`)}`

export interface FiredRow {
  readonly moved: ReadonlyArray<string> | null
  readonly ids: ReadonlyArray<string> | null
  readonly types: ReadonlyArray<string> | null
  readonly queues: ReadonlyArray<string> | null
  readonly priorities: ReadonlyArray<number> | null
  readonly routeless: boolean
  readonly woken: number
}

/**
 * $1 names, $2 revisions, $3 what is booked next; $4 names, $5 times and $6 job ids of the ticks.
 *
 * `f` are the schedules that are as they were seen, locked; whose lock another has are being fired or changed by it. All
 * that follows is of these. A schedule whose route is not there yet is left as it is.
 */
export const fire = (options: Pick<StoreOptions, "queued" | "wake">) =>
  `WITH s AS MATERIALIZED (SELECT deadman.now_ms() AS now),
   f AS MATERIALIZED (
     SELECT q.name, q.type, q.queue, q.priority, q.overlap, q.last_job, x.next_ms::bigint AS next_ms
     FROM unnest($1::text[], $2::float8[], $3::float8[]) x(name, revision, next_ms)
     JOIN deadman.schedule q ON q.name = x.name AND q.revision = x.revision::bigint AND NOT q.paused
     FOR UPDATE OF q SKIP LOCKED
   ),
   m AS MATERIALIZED (
     SELECT f.*, r.id AS route, r.step_ms FROM f JOIN deadman.route r ON r.type = f.type AND r.queue = f.queue
   ),
   k AS MATERIALIZED (
     SELECT t.id, t.name, t.tick_ms::bigint AS tick_ms, NULL::text AS key, m.route, m.step_ms, m.type, m.queue,
            m.priority
     FROM unnest($4::text[], $5::float8[], $6::uuid[]) t(name, tick_ms, id) JOIN m ON m.name = t.name
     WHERE m.overlap <> 'skip' OR NOT EXISTS (
       SELECT 1 FROM deadman.job j
       WHERE j.id = m.last_job AND j.state IN (${state.pending}, ${state.running}, ${state.failed})
     )
   ),
   ${bodies("k", "(schedule, tick_ms) WHERE schedule IS NOT NULL AND tick_ms IS NOT NULL")},
   l AS (
     SELECT DISTINCT ON (k.name) k.name, k.id, k.tick_ms FROM k JOIN b ON b.id = k.id ORDER BY k.name, k.tick_ms DESC
   ),
   u AS (
     UPDATE deadman.schedule q
     SET revision = q.revision + 1, next_fire_ms = m.next_ms, last_fire_ms = coalesce(l.tick_ms, q.last_fire_ms),
         last_job = coalesce(l.id, q.last_job)
     FROM m LEFT JOIN l ON l.name = m.name
     WHERE q.name = m.name
     RETURNING q.name
   ),
   ${ending(options)},
   o AS (SELECT k.id, k.type, k.queue, k.priority FROM k JOIN b ON b.id = k.id)
   SELECT (SELECT array_agg(name) FROM u) AS moved,
          (SELECT array_agg(id::text ORDER BY id) FROM o) AS ids,
          (SELECT array_agg(type ORDER BY id) FROM o) AS types,
          (SELECT array_agg(queue ORDER BY id) FROM o) AS queues,
          (SELECT array_agg(priority::int ORDER BY id) FROM o) AS priorities,
          (SELECT count(*) FROM f) > (SELECT count(*) FROM m) AS routeless,
          (SELECT count(*)::int FROM n) AS woken`

/** The routes of these schedules, where they are missing. */
export const addRoutesOf = `INSERT INTO deadman.route (type, queue)
  SELECT DISTINCT q.type, q.queue FROM deadman.schedule q
  WHERE q.name = ANY ($1::text[])
    AND NOT EXISTS (SELECT 1 FROM deadman.route r WHERE r.type = q.type AND r.queue = q.queue)
  ORDER BY q.type, q.queue
  ON CONFLICT (type, queue) DO NOTHING`

/** Within the transaction of a run: $1 the key, $2 the job, $3 the fingerprint. Says nothing where the key is known. */
export const takeKey = `INSERT INTO deadman.key (key, job, fingerprint) VALUES ($1::text, $2::uuid, $3::text)
  ON CONFLICT (key) DO NOTHING RETURNING job`

export const leaveKey = `DELETE FROM deadman.key WHERE key = $1::text AND job = $2::uuid`

/** $1 name, $2 the job's id, $3 its key. It names no tick. */
export const run = (options: Pick<StoreOptions, "queued" | "wake">) =>
  `WITH s AS MATERIALIZED (SELECT deadman.now_ms() AS now),
   k AS MATERIALIZED (
     SELECT $2::uuid AS id, q.name, NULL::bigint AS tick_ms, $3::text AS key, r.id AS route, r.step_ms
     FROM deadman.schedule q JOIN deadman.route r ON r.type = q.type AND r.queue = q.queue
     WHERE q.name = $1::text
   ),
   ${bodies("k", "(id)")},
   u AS (
     UPDATE deadman.schedule q SET revision = q.revision + 1, last_job = b.id FROM b WHERE q.name = $1::text
   ),
   ${ending(options)}
   SELECT (SELECT count(*)::int FROM j) AS stored, (SELECT count(*)::int FROM n) AS woken`
