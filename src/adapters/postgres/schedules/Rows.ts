/** How a schedule lies in its row, and what is said where the row cannot be had. */
import { Effect } from "effect"
import { type Backoff, defaults } from "../../../domain/Backoff.ts"
import type { JobType, Queue } from "../../../domain/Job.ts"
import type { JobId } from "../../../domain/JobId.ts"
import {
  type Missed,
  type NewSchedule,
  type Overlap,
  overlaps,
  type Schedule,
  type ScheduleName,
  type Timing
} from "../../../domain/Schedule.ts"
import { type Due, SchedulesUnavailable } from "../../../ports/Schedules.ts"
import { long, texts } from "../Database.ts"
import type { DatabaseFailed } from "../DatabaseFailed.ts"
import type { DueRow, ScheduleRow } from "./SchedulesSql.ts"

export type Operation = SchedulesUnavailable["operation"]

/** What the port says of any failure of the database that no schedule is to blame for. */
export const unavailable = (operation: Operation) => (cause: DatabaseFailed) =>
  new SchedulesUnavailable({ operation, cause })

export const orUnavailable =
  (operation: Operation) => <A>(effect: Effect.Effect<A, DatabaseFailed>): Effect.Effect<A, SchedulesUnavailable> =>
    Effect.mapError(effect, unavailable(operation))

export const toTiming = (row: Pick<ScheduleRow, "cron" | "every_ms" | "zone">): Timing =>
  row.every_ms === null ? { cron: row.cron ?? "", zone: row.zone ?? "" } : { everyMs: row.every_ms }

/** Somebody may have written the row by hand. */
const toMissed = (value: unknown): Missed =>
  value === "skip" || value === "latest"
    ? value
    : typeof value === "object" && value !== null && "all" in value && Number.isInteger(value.all)
    ? { all: Number(value.all) }
    : "latest"

const toOverlap = (text: string): Overlap => overlaps.find((one) => one === text) ?? "allow"

export const toSchedule = (row: ScheduleRow): Schedule => ({
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

export const toDue = (row: DueRow & { readonly name: string }): Due => ({
  name: row.name as ScheduleName,
  revision: row.revision,
  timing: toTiming(row),
  missed: toMissed(row.missed),
  overlap: toOverlap(row.overlap),
  bytes: row.bytes,
  nextFireMs: row.next_fire_ms
})

const isDefault = (backoff: Backoff): boolean => JSON.stringify(backoff) === JSON.stringify(defaults)

/** The parameters of `insert` and `replace`. */
export const params = (
  schedule: NewSchedule,
  paused: boolean,
  nextFireMs: number | null,
  now: number,
  revision: number | null
): ReadonlyArray<unknown> => {
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
