/**
 * `Schedules` in a table, beside the jobs that they make.
 *
 * A firing is one statement: it locks the schedules that are still as they were seen, stores their jobs, and books
 * them anew. Nothing is held between looking and firing, so a scheduler that freezes in between holds up nobody, and
 * finds all of it moved on when it wakes. Only where a job is to be cancelled for the next one is it a transaction: the
 * schedule is locked first, then the job's lease and the job, as everybody does.
 *
 * A schedule that the statement cannot take must not hold up the others: on such a refusal they are fired one by one.
 */
import { Effect, Latch, Layer, Result } from "effect"
import { type Backoff, defaults } from "../../domain/Backoff.ts"
import type { LeaseId } from "../../domain/Claim.ts"
import type { JobType, KeyClaim, Queue } from "../../domain/Job.ts"
import type { JobId } from "../../domain/JobId.ts"
import { jobStates } from "../../domain/JobState.ts"
import {
  isSameTiming,
  type Missed,
  type NewSchedule,
  nextAfter,
  type Overlap,
  overlaps,
  type Schedule,
  type ScheduleName,
  type Timing
} from "../../domain/Schedule.ts"
import {
  type CutOff,
  type Due,
  type Fired,
  type FireRequest,
  type Put,
  type Ran,
  Schedules,
  SchedulesUnavailable
} from "../../ports/Schedules.ts"
import { Database, DatabaseFailed, long, longs, type Session, texts, uuids } from "./Database.ts"
import * as Sql from "./schedules/SchedulesSql.ts"
import * as Control from "./store/Control.ts"
import * as Reads from "./store/Reads.ts"
import { state, type StoreOptions } from "./store/Rows.ts"
import { addRoutes, dropExpired, type KeyRow, keys } from "./store/SubmitSql.ts"

type Operation = SchedulesUnavailable["operation"]

/** `statement_timeout`: the server gave up, and changed nothing. */
const tooLong = "57014"

/** How often one that somebody else changes at the same time is tried again. */
const roundMax = 5

const toTiming = (row: Pick<Sql.ScheduleRow, "cron" | "every_ms" | "zone">): Timing =>
  row.every_ms === null ? { cron: row.cron ?? "", zone: row.zone ?? "" } : { everyMs: row.every_ms }

/** Somebody may have written the row by hand. */
const toMissed = (value: unknown): Missed =>
  value === "skip" || value === "latest"
    ? value
    : typeof value === "object" && value !== null && "all" in value && Number.isInteger(value.all)
    ? { all: Number(value.all) }
    : "latest"

const toOverlap = (text: string): Overlap => overlaps.find((one) => one === text) ?? "allow"

const toSchedule = (row: Sql.ScheduleRow): Schedule => ({
  name: row.name as ScheduleName,
  timing: toTiming(row),
  missed: toMissed(row.missed),
  overlap: toOverlap(row.overlap),
  paused: row.paused,
  type: row.type as JobType,
  queue: row.queue as Queue,
  payload: row.payload,
  priority: row.priority,
  maxAttempts: row.max_attempts,
  // The default is not stored.
  backoff: row.backoff === null ? defaults : row.backoff as Backoff,
  timeoutMs: row.timeout_ms,
  retainMs: row.retain_ms,
  tags: row.tags ?? [],
  createdAtMs: row.created_at_ms,
  updatedAtMs: row.updated_at_ms,
  lastFireMs: row.last_fire_ms,
  nextFireMs: row.next_fire_ms,
  lastJob: row.last_job as JobId | null
})

/** Not one that it has fired already: the clock may have gone back. */
const firstTick = (timing: Timing, now: number, lastFireMs: number | null): number | null =>
  nextAfter(timing, Math.max(now, lastFireMs ?? 0))

const isDefault = (backoff: Backoff): boolean => JSON.stringify(backoff) === JSON.stringify(defaults)

const params = (
  schedule: NewSchedule,
  paused: boolean,
  nextFireMs: number | null,
  now: number,
  revision: number | null
) => {
  const { timing } = schedule
  return [
    schedule.name,
    "cron" in timing ? timing.cron : null,
    "cron" in timing ? timing.zone : null,
    long("everyMs" in timing ? timing.everyMs : null),
    long(nextFireMs),
    long(now),
    paused,
    schedule.overlap,
    JSON.stringify(schedule.missed),
    schedule.type,
    schedule.queue,
    schedule.payload,
    schedule.priority,
    schedule.maxAttempts,
    long(schedule.timeoutMs),
    isDefault(schedule.backoff) ? null : JSON.stringify(schedule.backoff),
    schedule.tags.length === 0 ? null : texts(schedule.tags),
    long(revision),
    long(schedule.retainMs)
  ]
}

const nothing: Fired = { moved: [], jobs: [], cancelled: [], failed: [], announced: true }

const sum = (a: Fired, b: Fired): Fired => ({
  moved: [...a.moved, ...b.moved],
  jobs: [...a.jobs, ...b.jobs],
  cancelled: [...a.cancelled, ...b.cancelled],
  failed: [...a.failed, ...b.failed],
  announced: a.announced && b.announced
})

type Asks = <Row extends object>(text: string, params: ReadonlyArray<unknown>) => Effect.Effect<
  ReadonlyArray<Row>,
  DatabaseFailed
>

const busy = (message: string) => new DatabaseFailed({ kind: "locked", code: null, constraint: null, message })

const make = Effect.fnUntraced(function*(options: StoreOptions) {
  const db = yield* Database
  const reads = Reads.make(db)
  const bell = yield* Latch.make(false)
  const statements = {
    fire: Sql.fire(options),
    run: Sql.run(options),
    cancel: Control.cancelSql(options.wake),
    pause: Sql.setPaused(true),
    resume: Sql.setPaused(false)
  }

  const failed = (operation: Operation) => (cause: DatabaseFailed) => new SchedulesUnavailable({ operation, cause })

  const query = <Row extends object>(operation: Operation, text: string, params: ReadonlyArray<unknown>) =>
    Effect.mapError(db.query<Row>("read", text, params), failed(operation))

  /** Tries again what somebody else changed between looking and writing. */
  const patiently = <A>(operation: Operation, round: Effect.Effect<A | undefined, SchedulesUnavailable>) =>
    Effect.gen(function*() {
      for (let n = 0; n < roundMax; n++) {
        const answer = yield* round
        if (answer !== undefined) {
          return answer
        }
      }
      return yield* new SchedulesUnavailable({ operation, cause: new Error("the schedule kept changing: ask again") })
    })

  const look = (operation: Operation, name: ScheduleName) =>
    Effect.map(
      query<{ readonly now: number } & (Sql.ScheduleRow | { readonly name: null })>(operation, Sql.look, [name]),
      ([row]) => ({ now: row!.now, row: row!.name === null ? null : row as Sql.ScheduleRow })
    )

  const putOnce = Effect.fnUntraced(function*(schedule: NewSchedule): Effect.fn.Return<
    Put | undefined,
    SchedulesUnavailable
  > {
    const { now, row } = yield* look("put", schedule.name)
    const paused = schedule.paused ?? row?.paused ?? false
    const keeps = row !== null && !row.paused && isSameTiming(toTiming(row), schedule.timing)
    const next = paused
      ? null
      : keeps
      ? row.next_fire_ms
      : firstTick(schedule.timing, now, row?.last_fire_ms ?? null)
    const [written] = yield* query<Sql.ScheduleRow>(
      "put",
      row === null ? Sql.insert : Sql.replace,
      params(schedule, paused, next, now, row?.revision ?? null)
    )
    return written === undefined ? undefined : { created: row === null, schedule: toSchedule(written) }
  })

  const put: Schedules["Service"]["put"] = Effect.fn("SchedulesPostgres.put")(function*(schedule) {
    yield* query("put", addRoutes, [texts([schedule.type]), texts([schedule.queue])])
    return yield* patiently("put", putOnce(schedule))
  }, Effect.ensuring(bell.open))

  const list: Schedules["Service"]["list"] = Effect.fn("SchedulesPostgres.list")(function*({ after, limit }) {
    const rows = yield* query<Sql.ScheduleRow>("list", Sql.list, [after ?? "", limit + 1])
    const schedules = rows.slice(0, limit).map(toSchedule)
    return { schedules, next: rows.length > limit ? schedules.at(-1)?.name ?? null : null }
  })

  const setPaused = Effect.fnUntraced(function*(name: ScheduleName, operation: "pause" | "resume"): Effect.fn.Return<
    { readonly schedule: Schedule | null } | undefined,
    SchedulesUnavailable
  > {
    const { now, row } = yield* look(operation, name)
    if (row === null || row.paused === (operation === "pause")) {
      return { schedule: row === null ? null : toSchedule(row) }
    }
    const next = operation === "pause" ? null : firstTick(toTiming(row), now, row.last_fire_ms)
    const [written] = yield* query<Sql.ScheduleRow>(
      operation,
      statements[operation],
      [name, long(row.revision), long(next), long(now)]
    )
    return written === undefined ? undefined : { schedule: toSchedule(written) }
  })

  const changePause = (operation: "pause" | "resume") => (name: ScheduleName) =>
    patiently(operation, setPaused(name, operation)).pipe(
      Effect.map(({ schedule }) => schedule),
      Effect.ensuring(bell.open)
    )

  /** Ends the job before, inside the transaction that stores the next one. */
  const cancel = Effect.fnUntraced(function*(session: Session, id: string): Effect.fn.Return<
    ReadonlyArray<CutOff>,
    DatabaseFailed
  > {
    for (let round = 0; round < roundMax; round++) {
      const [row] = yield* session.query<Control.CancelRow>(statements.cancel, [id])
      if (row === undefined || (!row.done && row.state >= state.completed)) {
        return []
      }
      if (row.done) {
        const cutOff = row.lease === null ? null : { lease: row.lease as LeaseId, epoch: row.epoch }
        return [{ id: id as JobId, cutOff }]
      }
    }
    return yield* busy("the job before kept moving on")
  })

  const fireBy = Effect.fnUntraced(function*(ask: Asks, requests: ReadonlyArray<FireRequest>): Effect.fn.Return<
    Fired,
    DatabaseFailed
  > {
    const ticks = requests.flatMap(({ name, ticks }) => ticks.map((tick) => ({ ...tick, name })))
    const [row] = yield* ask<Sql.FiredRow>(statements.fire, [
      texts(requests.map(({ name }) => name)),
      longs(requests.map(({ revision }) => revision)),
      longs(requests.map(({ nextFireMs }) => nextFireMs)),
      texts(ticks.map(({ name }) => name)),
      longs(ticks.map(({ tickMs }) => tickMs)),
      uuids(ticks.map(({ id }) => id))
    ])
    return {
      moved: (row?.moved ?? []) as ReadonlyArray<ScheduleName>,
      jobs: (row?.ids ?? []).map((id, at) => ({
        id: id as JobId,
        type: row!.types![at]! as JobType,
        queue: row!.queues![at]! as Queue,
        ordered: row!.priorities![at] !== 0
      })),
      cancelled: [],
      failed: row?.routeless === true
        // A route that was lost in a failover: made again here, and found at the next look.
        ? yield* Effect.as(ask(addRoutesOf, [texts(requests.map(({ name }) => name))]), [])
        : [],
      announced: (row?.woken ?? 0) > 0 || (row?.ids ?? []).length === 0
    }
  })

  const fireCancelling = (request: FireRequest) =>
    db.transaction("read", (session) =>
      Effect.gen(function*() {
        const [row] = yield* session.query<{ readonly last_job: string | null }>(
          Sql.lockForFire,
          [request.name, long(request.revision)]
        )
        if (row === undefined) {
          return nothing
        }
        const cancelled = row.last_job === null ? [] : yield* cancel(session, row.last_job)
        return { ...(yield* fireBy(session.query, [request])), cancelled }
      }))

  /** Unavailable is of all of them; any other failure is of one. */
  const orFailed = (requests: ReadonlyArray<FireRequest>) => (error: DatabaseFailed) =>
    error.kind === "unavailable" && error.code !== tooLong
      ? Effect.fail(failed("fire")(error))
      : Effect.succeed<Fired>({ ...nothing, failed: requests.map(({ name }) => ({ name, message: error.message })) })

  const fireAll: Asks = (text, params) => db.query("read", text, params)

  const fireOne = (request: FireRequest) => Effect.catch(fireBy(fireAll, [request]), orFailed([request]))

  const fire: Schedules["Service"]["fire"] = Effect.fn("SchedulesPostgres.fire")(function*(requests) {
    const cancels = requests.filter(({ overlap, ticks }) => overlap === "cancel" && ticks.length > 0)
    const plain = requests.filter((request) => !cancels.includes(request))
    let fired = nothing
    if (plain.length > 0) {
      const together = yield* Effect.result(fireBy(fireAll, plain))
      if (Result.isSuccess(together)) {
        fired = together.success
      } else if (
        plain.length === 1 || (together.failure.kind === "unavailable" && together.failure.code !== tooLong)
      ) {
        fired = yield* orFailed(plain)(together.failure)
      } else {
        for (const request of plain) {
          fired = sum(fired, yield* fireOne(request))
        }
      }
    }
    for (const request of cancels) {
      fired = sum(fired, yield* Effect.catch(fireCancelling(request), orFailed([request])))
    }
    return fired
  })

  /** The request that has the key, if it is not this one: then the key is this one's. */
  const takeKey = Effect.fnUntraced(function*(session: Session, id: JobId, { fingerprint, key }: KeyClaim) {
    const ttl = String(options.keyTtlMs)
    for (let round = 0; round < roundMax; round++) {
      const [taken] = yield* session.query(Sql.takeKey, [key, id, fingerprint])
      if (taken !== undefined) {
        return null
      }
      const [known] = yield* session.query<KeyRow>(keys, [texts([key]), ttl])
      if (known !== undefined && !known.expired) {
        return known.job === id ? null : known
      }
      if (known !== undefined) {
        yield* session.query(dropExpired, [texts([key]), uuids([known.job]), ttl])
      }
    }
    return yield* busy("the Idempotency-Key comes and goes")
  })

  const runUnder = Effect.fnUntraced(function*(session: Session, name: ScheduleName, id: JobId, key: KeyClaim | null) {
    const [row] = yield* session.query<Sql.RunRow>(Sql.lockForRun, [name])
    if (row === undefined) {
      return { _tag: "NotFound" } as const
    }
    const [unfinished] = row.last_job === null || row.last_job === id
      ? []
      : yield* session.query<{ readonly state: number }>(Sql.unfinished, [row.last_job])
    const before = unfinished === undefined
      ? null
      : { job: row.last_job as JobId, state: jobStates[unfinished.state] ?? "pending" }
    if (before !== null && row.overlap === "skip") {
      return { _tag: "Overlaps", ...before } as const
    }
    const cancelled = before !== null && row.overlap === "cancel" ? yield* cancel(session, before.job) : []
    yield* session.query(addRoutes, [texts([row.type]), texts([row.queue])])
    const [stored] = yield* session.query<{ readonly woken: number }>(statements.run, [name, id, key?.key ?? null])
    return { _tag: "Ran", cancelled: cancelled[0] ?? null, announced: (stored?.woken ?? 0) > 0 } as const
  })

  const runOnce = (name: ScheduleName, id: JobId, key: KeyClaim | null) =>
    db.transaction("read", (session) =>
      Effect.gen(function*() {
        const known = key === null ? null : yield* takeKey(session, id, key)
        if (known !== null) {
          const id = known.job as JobId
          return known.fingerprint === key?.fingerprint
            ? { _tag: "Replayed", id } as const
            : { _tag: "KeyMismatch", job: id } as const
        }
        const ran = yield* runUnder(session, name, id, key)
        if (ran._tag !== "Ran" && key !== null) {
          yield* session.query(Sql.leaveKey, [key.key, id])
        }
        return ran
      }))

  const run: Schedules["Service"]["run"] = Effect.fn("SchedulesPostgres.run")(function*(name, id, key = null) {
    const unavailable = failed("run")
    const ran = yield* runOnce(name, id, key).pipe(
      Effect.retry({ times: 2, while: ({ kind }: DatabaseFailed) => kind === "locked" || kind === "deadlock" }),
      Effect.mapError(unavailable)
    )
    if (ran._tag === "Overlaps" || ran._tag === "KeyMismatch") {
      return ran satisfies Ran
    }
    const [job] = yield* Effect.mapError(
      reads.get([ran._tag === "Replayed" ? ran.id : id]),
      (cause) => new SchedulesUnavailable({ operation: "run", cause })
    )
    if (ran._tag === "Replayed") {
      return { _tag: "Replayed", job: job ?? null } satisfies Ran
    }
    if (job !== undefined) {
      const { announced, cancelled } = ran._tag === "Ran" ? ran : { announced: false, cancelled: null }
      return { _tag: "Ran", job, cancelled, announced } satisfies Ran
    }
    return ran._tag === "NotFound"
      ? ran
      : yield* new SchedulesUnavailable({ operation: "run", cause: new Error("the job is gone: ask again") })
  })

  const due: Schedules["Service"]["due"] = Effect.fn("SchedulesPostgres.due")(function*(limit) {
    const rows = yield* query<Sql.DueRow>("due", Sql.due, [limit])
    const nowMs = rows[0]?.now ?? 0
    const nextMs = rows[0]?.next_ms ?? null
    return {
      nowMs,
      nextInMs: nextMs === null ? null : nextMs - nowMs,
      schedules: rows.flatMap((row): ReadonlyArray<Due> =>
        row.name === null ? [] : [{
          name: row.name as ScheduleName,
          revision: row.revision,
          timing: toTiming(row),
          missed: toMissed(row.missed),
          overlap: toOverlap(row.overlap),
          bytes: row.bytes,
          nextFireMs: row.next_fire_ms
        }]
      )
    }
  })

  return Schedules.of({
    put,
    get: (name) =>
      Effect.map(
        query<Sql.ScheduleRow>("get", Sql.get, [name]),
        ([row]) => row === undefined ? null : toSchedule(row)
      ),
    list,
    remove: (name) => Effect.map(query("remove", Sql.remove, [name]), (rows) => rows.length > 0),
    pause: changePause("pause"),
    resume: changePause("resume"),
    run,
    due,
    fire,
    changed: Effect.andThen(bell.await, bell.close)
  })
})

/** The routes of these schedules, where they are missing. */
const addRoutesOf = `INSERT INTO deadman.route (type, queue)
  SELECT DISTINCT q.type, q.queue FROM deadman.schedule q
  WHERE q.name = ANY ($1::text[])
    AND NOT EXISTS (SELECT 1 FROM deadman.route r WHERE r.type = q.type AND r.queue = q.queue)
  ORDER BY q.type, q.queue
  ON CONFLICT (type, queue) DO NOTHING`

export const layer = (options: StoreOptions): Layer.Layer<Schedules, never, Database> =>
  Layer.effect(Schedules, make(options))
