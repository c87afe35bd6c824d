/**
 * What a submit waits for: a key or a place that is its own matter, or something that it shares with others.
 *
 * The route of a type that is new belongs to whoever was first, until that transaction ends; a table may be locked for a
 * while by whoever looks after the database. Nobody is told of a key then: it is asked again.
 */
import type { NewJob } from "../../../domain/Job.ts"
import { DatabaseFailed } from "../DatabaseFailed.ts"
import { isUnique } from "./SubmitTerms.ts"

/** Whether it is the key of `job` that somebody holds, or what must be unique: the place, or the job in its way. */
export const isOf = (job: NewJob, { lockedRow }: DatabaseFailed): boolean =>
  (lockedRow === "key" && (job.key !== null || isUnique(job))) ||
  ((lockedRow === "uniqueness" || lockedRow === "job") && isUnique(job))

/** Perhaps later. */
export const notNow = (error: DatabaseFailed) =>
  new DatabaseFailed({ ...error, kind: "unavailable", message: error.message })

export const routeOf = (job: NewJob): string => `${job.type} ${job.queue}`

/** Which tables its way leads through. */
export const kindOf = (job: NewJob): string => `${job.key === null} ${isUnique(job)}`

const alike = (jobs: ReadonlyArray<NewJob>, of: (job: NewJob) => string): ReadonlyArray<ReadonlyArray<NewJob>> => {
  const groups = new Map<string, Array<NewJob>>()
  for (const job of jobs) {
    const group = groups.get(of(job))
    if (group === undefined) groups.set(of(job), [job])
    else group.push(job)
  }
  return [...groups.values()]
}

const halves = <A>(all: ReadonlyArray<A>): ReadonlyArray<ReadonlyArray<A>> =>
  all.length < 2 ? [all] : [all.slice(0, all.length >> 1), all.slice(all.length >> 1)]

/** Into what a flush that failed is parted: a single part is as far as it goes. */
export const parts = (jobs: ReadonlyArray<NewJob>, error: DatabaseFailed): ReadonlyArray<ReadonlyArray<NewJob>> => {
  if (error.kind === "locked" && error.lockedRow === undefined) {
    return alike(jobs, kindOf)
  }
  return error.kind === "locked" && error.lockedRow === "route"
    ? halves(alike(jobs, routeOf)).map((half) => half.flat())
    : halves(jobs)
}
