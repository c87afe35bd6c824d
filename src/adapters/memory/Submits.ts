/** The part of the memory store through which jobs come in. */
import type { NewJob } from "../../domain/Job.ts"
import { isFinal } from "../../domain/JobState.ts"
import * as JsonText from "../../domain/JsonText.ts"
import * as Unique from "../../domain/Unique.ts"
import type { JobStore, Submitted } from "../../ports/JobStore.ts"
import * as JobRow from "./JobRow.ts"
import * as Tables from "./Tables.ts"

export const insert = (tables: Tables.Tables, job: NewJob, nowMs: number): JobRow.JobRow => {
  const row = JobRow.make(job, nowMs)
  tables.jobs.set(job.id, row)
  Tables.place(tables, row, row.runAtMs, nowMs)
  return row
}

const created = (row: JobRow.JobRow): Submitted => ({
  _tag: "Created",
  id: row.submitted.id,
  createdAtMs: row.createdAtMs,
  runAtMs: row.firstRunAtMs
})

/** The job that has the key, if the key's time is not over. */
export const keyed = (tables: Tables.Tables, key: string, nowMs: number): JobRow.JobRow | undefined => {
  const found = tables.keys.get(key)
  const row = found === undefined ? undefined : tables.jobs.get(found.job)
  return row === undefined || (row.finishedAtMs !== null && row.finishedAtMs + tables.keyTtlMs < nowMs)
    ? undefined
    : row
}

/** Takes the place of a job that waits. Whether it did. */
const replace = (tables: Tables.Tables, row: JobRow.JobRow, nowMs: number): boolean => {
  if (row.state === "running" || !Tables.advance(row, "cancel")) {
    return false
  }
  Tables.end(tables, row, "cancelled", nowMs)
  Tables.record(row, { kind: "cancel_requested", epoch: row.epoch, worker: row.worker, atMs: nowMs })
  return true
}

/** The job that keeps this one out. If there is none, its place is taken. */
const inItsWay = (tables: Tables.Tables, job: NewJob, nowMs: number): JobRow.JobRow | null => {
  const unique = job.unique ?? null
  if (unique === null) {
    return null
  }
  const place = Unique.placeOf(job.type, JSON.parse(job.payload), unique)
  const holder = tables.jobs.get(tables.places.get(place)?.job ?? job.id)
  if (
    holder !== undefined && Unique.standsInWay(unique, holder, nowMs) &&
    !(unique.on_conflict === "replace" && replace(tables, holder, nowMs))
  ) {
    return holder
  }
  tables.places.set(place, { job: job.id, untilMs: unique.window_ms === null ? null : nowMs + unique.window_ms })
  return null
}

const unstorable = (job: NewJob): Submitted | null => {
  const refused = JsonText.check(job.payload)
  return refused === null ? null : { _tag: "Refused", message: `${refused.path} ${refused.reason}` }
}

const submitOne = (tables: Tables.Tables, job: NewJob, nowMs: number): Submitted => {
  const known = tables.jobs.get(job.id)
  if (known !== undefined) {
    return created(known)
  }
  const unfit = unstorable(job)
  if (unfit !== null) {
    return unfit
  }
  if (job.key !== null) {
    const row = keyed(tables, job.key.key, nowMs)
    if (row !== undefined) {
      const same = tables.keys.get(job.key.key)?.fingerprint === job.key.fingerprint
      return { _tag: same ? "Replayed" : "KeyMismatch", id: row.submitted.id }
    }
  }
  const holder = inItsWay(tables, job, nowMs)
  if (job.key !== null) {
    tables.keys.set(job.key.key, { job: holder?.submitted.id ?? job.id, fingerprint: job.key.fingerprint })
  }
  if (holder !== null) {
    return { _tag: "Skipped", id: holder.submitted.id }
  }
  return created(insert(tables, job, nowMs))
}

/** What would be refused of a batch, before anything of it is stored. */
const refusals = (
  tables: Tables.Tables,
  jobs: ReadonlyArray<NewJob>,
  nowMs: number
): ReadonlyMap<NewJob, Submitted> => {
  const refused = new Map<NewJob, Submitted>()
  const keys = new Map<string, { readonly id: NewJob["id"]; readonly fingerprint: string | undefined }>()
  for (const job of jobs) {
    if (tables.jobs.has(job.id)) {
      continue
    }
    const unfit = unstorable(job)
    if (unfit !== null) {
      refused.set(job, unfit)
    } else if (job.key !== null) {
      const row = keyed(tables, job.key.key, nowMs)
      const first = row === undefined
        ? keys.get(job.key.key)
        : { id: row.submitted.id, fingerprint: tables.keys.get(job.key.key)?.fingerprint }
      if (first === undefined) {
        keys.set(job.key.key, { id: job.id, fingerprint: job.key.fingerprint })
      } else if (first.fingerprint !== job.key.fingerprint) {
        refused.set(job, { _tag: "KeyMismatch", id: first.id })
      }
    }
  }
  return refused
}

export const make = (tables: Tables.Tables): Pick<JobStore["Service"], "submit" | "resubmit"> => {
  const submit: JobStore["Service"]["submit"] = (jobs, options) =>
    Tables.at((nowMs) => {
      const refused = options.atomic ? refusals(tables, jobs, nowMs) : new Map<NewJob, Submitted>()
      return {
        answers: refused.size === 0
          ? jobs.map((job) => submitOne(tables, job, nowMs))
          : jobs.map((job): Submitted => refused.get(job) ?? { _tag: "Aborted" }),
        announced: false
      }
    })

  const resubmit: JobStore["Service"]["resubmit"] = (id, as) =>
    Tables.at((nowMs) => {
      const row = tables.jobs.get(id)
      if (row === undefined) {
        return { _tag: "NotFound" }
      }
      if (!isFinal(row.state)) {
        return { _tag: "Refused", state: row.state }
      }
      const { delayMs: _, ...submitted } = row.submitted
      const copy = tables.jobs.get(as) ??
        insert(tables, {
          ...submitted,
          id: as,
          runAtMs: null,
          key: null,
          resubmittedFrom: id,
          startByMs: null,
          unique: null
        }, nowMs)
      row.resubmittedAs = as
      return { _tag: "Created", job: JobRow.asJob(copy) }
    })

  return { submit, resubmit }
}
