/** The part of the memory store through which jobs come in. */
import type { NewJob } from "../../domain/Job.ts"
import { isFinal } from "../../domain/JobState.ts"
import * as JsonText from "../../domain/JsonText.ts"
import type { JobStore, Submitted } from "../../ports/JobStore.ts"
import * as JobRow from "./JobRow.ts"
import * as Tables from "./Tables.ts"

const insert = (tables: Tables.Tables, job: NewJob, nowMs: number): JobRow.JobRow => {
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

const submitOne = (tables: Tables.Tables, job: NewJob, nowMs: number): Submitted => {
  const known = tables.jobs.get(job.id)
  if (known !== undefined) {
    return created(known)
  }
  const refused = JsonText.check(job.payload)
  if (refused !== null) {
    return { _tag: "Refused", message: `${refused.path} ${refused.reason}` }
  }
  if (job.key !== null) {
    const row = keyed(tables, job.key.key, nowMs)
    if (row !== undefined) {
      const same = tables.keys.get(job.key.key)?.fingerprint === job.key.fingerprint
      return { _tag: same ? "Replayed" : "KeyMismatch", id: row.submitted.id }
    }
    tables.keys.set(job.key.key, { job: job.id, fingerprint: job.key.fingerprint })
  }
  return created(insert(tables, job, nowMs))
}

export const make = (tables: Tables.Tables): Pick<JobStore["Service"], "submit" | "resubmit"> => {
  const submit: JobStore["Service"]["submit"] = (jobs, options) =>
    Tables.at((nowMs) => {
      const before = { jobs: new Set(tables.jobs.keys()), keys: new Map(tables.keys) }
      const answers = jobs.map((job) => submitOne(tables, job, nowMs))
      const guilty = (answer: Submitted) => answer._tag === "Refused" || answer._tag === "KeyMismatch"
      if (!options.atomic || !answers.some(guilty)) {
        return { answers, announced: false }
      }
      for (const job of jobs) {
        const row = tables.jobs.get(job.id)
        if (row !== undefined && !before.jobs.has(job.id)) {
          Tables.unplace(tables, row)
          tables.jobs.delete(job.id)
        }
        if (job.key !== null) {
          const key = before.keys.get(job.key.key)
          if (key === undefined) {
            tables.keys.delete(job.key.key)
          } else {
            tables.keys.set(job.key.key, key)
          }
        }
      }
      return {
        answers: answers.map((answer): Submitted => guilty(answer) ? answer : { _tag: "Aborted" }),
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
      const copy = tables.jobs.get(as) ??
        insert(tables, { ...row.submitted, id: as, runAtMs: null, key: null, resubmittedFrom: id }, nowMs)
      row.resubmittedAs = as
      return { _tag: "Created", job: JobRow.asJob(copy) }
    })

  return { submit, resubmit }
}
