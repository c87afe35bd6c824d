/** Reads what is said about schedules, strictly, and says which field is wrong; and a schedule as JSON. */
import { Result } from "effect"
import { type KeyClaim, namePattern, nameRule } from "../../domain/Job.ts"
import {
  everyMaxMs,
  everyMinMs,
  type Missed,
  missedAllMax,
  type NewSchedule,
  nextFires,
  nextShown,
  type Overlap,
  overlaps,
  type Schedule,
  type ScheduleName,
  ticker,
  type Timing
} from "../../domain/Schedule.ts"
import * as ApiError from "./ApiError.ts"
import { type Fields, isRecord, isWhole, notKnown, unknownOf, whole, wrong } from "./Fields.ts"
import * as NamePage from "./NamePage.ts"
import { schedulesLimitDefault, schedulesLimitMax } from "./ScheduleApi.ts"
import * as SubmitBody from "./SubmitBody.ts"

/** Of a run by hand: no body of a job means the same. */
export const runKey = (name: ScheduleName, key: string): KeyClaim => ({
  key,
  fingerprint: SubmitBody.fingerprint({ run: name })
})

const jobFields = ["type", "payload", "queue", "priority", "max_attempts", "backoff", "timeout_ms", "retain_ms", "tags"]
const fields = ["cron", "zone", "every_ms", ...jobFields, "missed", "overlap", "paused"]

const zoneDefault = "UTC"

const timingOf = (body: Fields): Timing | ApiError.ApiError => {
  const { cron = null, every_ms: everyMs = null, zone = null } = body
  if ((cron === null) === (everyMs === null)) {
    return wrong("cron", "must be given, or every_ms in its place, and not both")
  }
  if (everyMs !== null) {
    return zone !== null
      ? wrong("zone", "means nothing with every_ms: leave it out")
      : isWhole(everyMs, everyMinMs, everyMaxMs)
      ? { everyMs }
      : wrong("every_ms", whole(everyMinMs, everyMaxMs))
  }
  if (typeof cron !== "string") {
    return wrong("cron", "must be a text of five fields")
  }
  if (zone !== null && typeof zone !== "string") {
    return wrong("zone", "must be the name of a time zone, such as Europe/Zurich")
  }
  const timing = { cron, zone: zone ?? zoneDefault }
  const read = ticker(timing)
  return Result.isFailure(read) ? wrong(read.failure.field, read.failure.message) : timing
}

const missedOf = (given: unknown): Missed | ApiError.ApiError =>
  given === undefined || given === "latest"
    ? "latest"
    : given === "skip"
    ? given
    : isRecord(given) && Object.keys(given).join() === "all" && isWhole(given["all"], 1, missedAllMax)
    ? { all: given["all"] }
    : wrong("missed", `must be "skip", "latest" or {"all": a whole number from 1 to ${missedAllMax}}`)

const overlapOf = (given: unknown): Overlap | ApiError.ApiError =>
  given === undefined
    ? "allow"
    : overlaps.find((one) => one === given) ?? wrong("overlap", `must be one of ${overlaps.join(", ")}`)

export const decode = (name: ScheduleName, text: string): NewSchedule | ApiError.ApiError => {
  const parsed = SubmitBody.parse(text)
  if (parsed instanceof ApiError.ApiError) {
    return parsed
  }
  const body = parsed.value
  if (!isRecord(body)) {
    return ApiError.make("invalid_body", "The body must be a JSON object with at least cron and type.")
  }
  const strange = unknownOf(body, fields)
  if (strange !== undefined) {
    return notKnown(`${strange} is not a field of a schedule; these are: ${fields.join(", ")}.`, strange, fields)
  }
  const timing = timingOf(body)
  const missed = missedOf(body["missed"])
  const overlap = overlapOf(body["overlap"])
  const job = SubmitBody.decode(
    Object.fromEntries(Object.entries(body).filter(([field]) => jobFields.includes(field))),
    "",
    null
  )
  if (timing instanceof ApiError.ApiError) return timing
  if (job instanceof ApiError.ApiError) return job
  if (missed instanceof ApiError.ApiError) return missed
  if (overlap instanceof ApiError.ApiError) return overlap
  const { paused = null } = body
  if (paused !== null && typeof paused !== "boolean") {
    return wrong("paused", "must be true or false")
  }
  const { backoff, maxAttempts, payload, priority, queue, retainMs = null, tags, timeoutMs, type } = job
  return {
    name,
    timing,
    missed,
    overlap,
    paused,
    type,
    queue,
    payload,
    priority,
    maxAttempts,
    backoff,
    timeoutMs,
    retainMs,
    tags
  }
}

export const nameOf = (text: string): ScheduleName | ApiError.ApiError =>
  typeof text === "string" && namePattern.test(text) ? text as ScheduleName : wrong("name", nameRule)

export const toJson = (schedule: Schedule) => {
  const { timing } = schedule
  const cron = "cron" in timing ? timing : null
  return {
    name: schedule.name,
    cron: cron?.cron ?? null,
    zone: cron?.zone ?? null,
    every_ms: "everyMs" in timing ? timing.everyMs : null,
    type: schedule.type,
    payload: schedule.payload ?? null,
    queue: schedule.queue,
    priority: schedule.priority,
    max_attempts: schedule.maxAttempts,
    backoff: schedule.backoff,
    timeout_ms: schedule.timeoutMs,
    retain_ms: schedule.retainMs,
    tags: schedule.tags,
    missed: schedule.missed,
    overlap: schedule.overlap,
    paused: schedule.paused,
    created_at_ms: schedule.createdAtMs,
    updated_at_ms: schedule.updatedAtMs,
    last_fire_ms: schedule.lastFireMs,
    next_fires_ms: nextFires(timing, schedule.nextFireMs, nextShown),
    last_job: schedule.lastJob
  }
}

export const page = NamePage.make<ScheduleName>({
  kind: "s",
  limitDefault: schedulesLimitDefault,
  limitMax: schedulesLimitMax
})
