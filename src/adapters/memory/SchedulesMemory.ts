/** `Schedules` beside the memory store, over its tables: for tests and for the simulation. */
import { Effect, Latch, Layer } from "effect"
import type { KeyClaim, NewJob } from "../../domain/Job.ts"
import type { JobId } from "../../domain/JobId.ts"
import { isFinal, type JobState } from "../../domain/JobState.ts"
import { isSameTiming, type NewSchedule, nextAfter, type Schedule, type ScheduleName } from "../../domain/Schedule.ts"
import { type CutOff, type FiredJob, type FireRequest, type Ran, Schedules } from "../../ports/Schedules.ts"
import * as Controls from "./Controls.ts"
import * as JobRow from "./JobRow.ts"
import { SharedTables } from "./JobStoreMemory.ts"
import * as Submits from "./Submits.ts"
import * as Tables from "./Tables.ts"

interface Row {
  readonly schedule: Schedule
  /** JSON text, as it was sent. */
  readonly payload: string
  readonly revision: number
}

const make = Effect.gen(function*() {
  const tables = yield* SharedTables
  const rows = new Map<ScheduleName, Row>()
  const bell = yield* Latch.make(false)
  /** One for all, so that one that was removed and put again is not as somebody saw it before. */
  let revisions = 0

  const write = (row: Row, change: Partial<Schedule>): Row => {
    const written = { ...row, schedule: { ...row.schedule, ...change }, revision: ++revisions }
    rows.set(row.schedule.name, written)
    return written
  }

  /** Not one that it has fired already: the clock may have gone back. */
  const firstTick = (timing: Schedule["timing"], nowMs: number, lastFireMs: number | null) =>
    nextAfter(timing, Math.max(nowMs, lastFireMs ?? 0))

  const put: Schedules["Service"]["put"] = (wanted) =>
    Tables.at((nowMs) => {
      const { paused: asked, payload, ...given }: NewSchedule = wanted
      const before = rows.get(wanted.name)
      const paused = asked ?? before?.schedule.paused ?? false
      const keeps = before !== undefined && !before.schedule.paused &&
        isSameTiming(before.schedule.timing, given.timing)
      const lastFireMs = before?.schedule.lastFireMs ?? null
      const schedule: Schedule = {
        ...given,
        payload: JSON.parse(payload),
        paused,
        createdAtMs: before?.schedule.createdAtMs ?? nowMs,
        updatedAtMs: nowMs,
        lastFireMs,
        nextFireMs: paused
          ? null
          : keeps
          ? before.schedule.nextFireMs
          : firstTick(given.timing, nowMs, lastFireMs),
        lastJob: before?.schedule.lastJob ?? null
      }
      rows.set(wanted.name, { schedule, payload, revision: ++revisions })
      return { created: before === undefined, schedule }
    }).pipe(Effect.ensuring(bell.open))

  const list: Schedules["Service"]["list"] = ({ after, limit }) =>
    Tables.at(() => {
      const names = [...rows.keys()].filter((name) => after === null || name > after).sort((a, b) => a < b ? -1 : 1)
      return {
        schedules: names.slice(0, limit).flatMap((name) => rows.get(name)?.schedule ?? []),
        next: names.length > limit ? names[limit - 1] ?? null : null
      }
    })

  const setPaused = (name: ScheduleName, paused: boolean) =>
    Tables.at((nowMs) => {
      const row = rows.get(name)
      if (row === undefined || row.schedule.paused === paused) {
        return row?.schedule ?? null
      }
      const { lastFireMs, timing } = row.schedule
      const nextFireMs = paused ? null : firstTick(timing, nowMs, lastFireMs)
      return write(row, { paused, nextFireMs, updatedAtMs: nowMs }).schedule
    }).pipe(Effect.ensuring(bell.open))

  const store = (
    { payload, schedule }: Row,
    id: JobId,
    tickMs: number | null,
    nowMs: number,
    key: KeyClaim | null = null
  ): JobRow.JobRow => {
    const { backoff, maxAttempts, name, priority, queue, retainMs, tags, timeoutMs, type } = schedule
    const job: NewJob = {
      id,
      type,
      queue,
      payload,
      priority,
      maxAttempts,
      backoff,
      timeoutMs,
      runAtMs: null,
      tags,
      key,
      resubmittedFrom: null,
      retainMs
    }
    const stored = Submits.insert(tables, job, nowMs)
    stored.tick = { schedule: name, tickMs }
    return stored
  }

  const unfinished = ({ schedule }: Row): { readonly job: JobId; readonly state: JobState } | null => {
    const last = schedule.lastJob === null ? undefined : tables.jobs.get(schedule.lastJob)
    return last === undefined || isFinal(last.state) ? null : { job: last.submitted.id, state: last.state }
  }

  const end = (id: JobId, nowMs: number): ReadonlyArray<CutOff> => {
    const cancelled = Controls.cancelAt(tables, id, nowMs)
    return cancelled._tag === "Cancelled" ? [{ id, cutOff: cancelled.cutOff }] : []
  }

  const hasFired = (name: ScheduleName, tickMs: number) =>
    [...tables.jobs.values()].some(({ tick }) => tick?.schedule === name && tick.tickMs === tickMs)

  const fireOne = (row: Row, { nextFireMs, ticks }: FireRequest, nowMs: number) => {
    const { name, overlap, priority, queue, type } = row.schedule
    const before = overlap === "allow" || ticks.length === 0 ? null : unfinished(row)
    const due = before !== null && overlap === "skip" ? [] : ticks.filter(({ tickMs }) => !hasFired(name, tickMs))
    const cancelled = before !== null && overlap === "cancel" && due.length > 0 ? end(before.job, nowMs) : []
    for (const { id, tickMs } of due) {
      store(row, id, tickMs, nowMs)
    }
    const last = due.at(-1)
    write(row, { nextFireMs, ...(last === undefined ? {} : { lastFireMs: last.tickMs, lastJob: last.id }) })
    return { cancelled, jobs: due.map(({ id }): FiredJob => ({ id, type, queue, ordered: priority !== 0 })) }
  }

  const fire: Schedules["Service"]["fire"] = (requests) =>
    Tables.at((nowMs) => {
      const moved = requests.flatMap((request) => {
        const row = rows.get(request.name)
        return row === undefined || row.revision !== request.revision || row.schedule.paused
          ? []
          : [{ name: request.name, ...fireOne(row, request, nowMs) }]
      })
      return {
        moved: moved.map(({ name }) => name),
        jobs: moved.flatMap(({ jobs }) => jobs),
        cancelled: moved.flatMap(({ cancelled }) => cancelled),
        failed: [],
        announced: false
      }
    })

  const run: Schedules["Service"]["run"] = (name, id, key = null) =>
    Tables.at((nowMs): Ran => {
      const row = rows.get(name)
      const keyed = key === null ? undefined : Submits.keyed(tables, key.key, nowMs)
      if (keyed !== undefined && keyed.submitted.id !== id) {
        return tables.keys.get(key!.key)?.fingerprint === key!.fingerprint
          ? { _tag: "Replayed", job: JobRow.asJob(keyed) }
          : { _tag: "KeyMismatch", job: keyed.submitted.id }
      }
      const there = tables.jobs.get(id)
      if (there !== undefined) {
        return { _tag: "Ran", job: JobRow.asJob(there), cancelled: null, announced: false }
      }
      if (row === undefined) {
        return { _tag: "NotFound" }
      }
      const before = unfinished(row)
      if (before !== null && row.schedule.overlap === "skip") {
        return { _tag: "Overlaps", ...before }
      }
      const [cancelled = null] = before !== null && row.schedule.overlap === "cancel" ? end(before.job, nowMs) : []
      const job = JobRow.asJob(store(row, id, null, nowMs, key))
      if (key !== null) {
        tables.keys.set(key.key, { job: id, fingerprint: key.fingerprint })
      }
      write(row, { lastJob: id })
      return { _tag: "Ran", job, cancelled, announced: false }
    })

  const due: Schedules["Service"]["due"] = (limit) =>
    Tables.at((nowMs) => {
      const booked = [...rows.values()].flatMap((
        { payload, revision, schedule: { missed, name, nextFireMs, overlap, timing } }
      ) => nextFireMs === null ? [] : [{ name, revision, timing, missed, overlap, nextFireMs, bytes: payload.length }])
        .sort((a, b) => a.nextFireMs - b.nextFireMs)
      const next = booked.find(({ nextFireMs }) => nextFireMs > nowMs)
      return {
        nowMs,
        schedules: booked.filter(({ nextFireMs }) => nextFireMs <= nowMs).slice(0, limit),
        nextInMs: next === undefined ? null : next.nextFireMs - nowMs
      }
    })

  return Schedules.of({
    put,
    get: (name) => Tables.at(() => rows.get(name)?.schedule ?? null),
    list,
    remove: (name) => Tables.at(() => rows.delete(name)),
    pause: (name) => setPaused(name, true),
    resume: (name) => setPaused(name, false),
    run,
    due,
    fire,
    changed: Effect.andThen(bell.await, bell.close)
  })
})

/** Over the tables of a memory store. */
export const layer: Layer.Layer<Schedules, never, SharedTables> = Layer.effect(Schedules, make)
