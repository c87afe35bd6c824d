/**
 * `Schedules` in a table, beside the jobs that they make.
 *
 * Nothing is held between looking at a schedule and writing it: each write names the revision that was seen, and is
 * tried again where that is over. So a scheduler that freezes between looking and firing holds up nobody, and finds all
 * of it moved on when it wakes. The statements and the making of jobs are in `schedules/`.
 */
import { Effect, Latch, Layer } from "effect"
import {
  isSameTiming,
  type NewSchedule,
  nextAfter,
  type Schedule,
  type ScheduleName,
  type Timing
} from "../../domain/Schedule.ts"
import { type Put, Schedules, SchedulesUnavailable } from "../../ports/Schedules.ts"
import { Database, long, texts } from "./Database.ts"
import * as Rounds from "./Rounds.ts"
import * as Firing from "./schedules/Firing.ts"
import * as JobBefore from "./schedules/JobBefore.ts"
import * as Rows from "./schedules/Rows.ts"
import * as Running from "./schedules/Running.ts"
import * as Sql from "./schedules/SchedulesSql.ts"
import * as Reads from "./store/Reads.ts"
import type { StoreOptions } from "./store/Rows.ts"
import { addRoutes } from "./store/SubmitSql.ts"

/** Not one that it has fired already: the clock may have gone back. */
const firstTick = (timing: Timing, now: number, lastFireMs: number | null): number | null =>
  nextAfter(timing, Math.max(now, lastFireMs ?? 0))

const statements = { pause: Sql.setPaused(true), resume: Sql.setPaused(false) }

const make = Effect.fnUntraced(function*(options: StoreOptions) {
  const db = yield* Database
  const bell = yield* Latch.make(false)
  const cancel = JobBefore.make(options.wake)

  const query = <Row extends object>(operation: Rows.Operation, text: string, params: ReadonlyArray<unknown>) =>
    db.query<Row>("read", text, params).pipe(Rows.orUnavailable(operation))

  /** Tries again what somebody else changed between looking and writing. */
  const patiently = <A>(operation: Rows.Operation, round: Effect.Effect<A | undefined, SchedulesUnavailable>) =>
    Rounds.untilAnswered(
      round,
      () => new SchedulesUnavailable({ operation, cause: new Error("the schedule kept changing: ask again") })
    )

  const look = (operation: Rows.Operation, name: ScheduleName) =>
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
    const keeps = row !== null && !row.paused && isSameTiming(Rows.toTiming(row), schedule.timing)
    const next = paused
      ? null
      : keeps
      ? row.next_fire_ms
      : firstTick(schedule.timing, now, row?.last_fire_ms ?? null)
    const [written] = yield* query<Sql.ScheduleRow>(
      "put",
      row === null ? Sql.insert : Sql.replace,
      Rows.params(schedule, paused, next, now, row?.revision ?? null)
    )
    return written === undefined ? undefined : { created: row === null, schedule: Rows.toSchedule(written) }
  })

  const put: Schedules["Service"]["put"] = Effect.fn("SchedulesPostgres.put")(function*(schedule) {
    yield* query("put", addRoutes, [texts([schedule.type]), texts([schedule.queue])])
    return yield* patiently("put", putOnce(schedule))
  }, Effect.ensuring(bell.open))

  const list: Schedules["Service"]["list"] = Effect.fn("SchedulesPostgres.list")(function*({ after, limit }) {
    const rows = yield* query<Sql.ScheduleRow>("list", Sql.list, [after ?? "", limit + 1])
    const schedules = rows.slice(0, limit).map(Rows.toSchedule)
    return { schedules, next: rows.length > limit ? schedules.at(-1)?.name ?? null : null }
  })

  const setPaused = Effect.fnUntraced(function*(name: ScheduleName, operation: "pause" | "resume"): Effect.fn.Return<
    { readonly schedule: Schedule | null } | undefined,
    SchedulesUnavailable
  > {
    const { now, row } = yield* look(operation, name)
    if (row === null || row.paused === (operation === "pause")) {
      return { schedule: row === null ? null : Rows.toSchedule(row) }
    }
    const next = operation === "pause" ? null : firstTick(Rows.toTiming(row), now, row.last_fire_ms)
    const [written] = yield* query<Sql.ScheduleRow>(
      operation,
      statements[operation],
      [name, long(row.revision), long(next), long(now)]
    )
    return written === undefined ? undefined : { schedule: Rows.toSchedule(written) }
  })

  const changePause = (operation: "pause" | "resume") => (name: ScheduleName) =>
    patiently(operation, setPaused(name, operation)).pipe(
      Effect.map(({ schedule }) => schedule),
      Effect.ensuring(bell.open)
    )

  const due: Schedules["Service"]["due"] = Effect.fn("SchedulesPostgres.due")(function*(limit) {
    const rows = yield* query<Sql.DueRow>("due", Sql.due, [limit])
    const nowMs = rows[0]?.now ?? 0
    const nextMs = rows[0]?.next_ms ?? null
    return {
      nowMs,
      nextInMs: nextMs === null ? null : nextMs - nowMs,
      schedules: rows.flatMap(({ name, ...row }) => name === null ? [] : [Rows.toDue({ ...row, name })])
    }
  })

  return Schedules.of({
    put,
    get: (name) =>
      Effect.map(
        query<Sql.ScheduleRow>("get", Sql.get, [name]),
        ([row]) => row === undefined ? null : Rows.toSchedule(row)
      ),
    list,
    remove: (name) => Effect.map(query("remove", Sql.remove, [name]), (rows) => rows.length > 0),
    pause: changePause("pause"),
    resume: changePause("resume"),
    run: Running.make(db, options, cancel, Reads.make(db)),
    due,
    fire: Firing.make(db, options, cancel),
    changed: Effect.andThen(bell.await, bell.close)
  })
})

export const layer = (options: StoreOptions): Layer.Layer<Schedules, never, Database> =>
  Layer.effect(Schedules, make(options))
