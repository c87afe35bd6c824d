/** Jobs, names and leases to test with, each unlike every other, so that tests share a store without sharing state. */
import { Clock, Effect } from "effect"
import { LeaseId } from "../../src/domain/Claim.ts"
import { JobType, type NewJob, plainJob, Queue } from "../../src/domain/Job.ts"
import * as JobId from "../../src/domain/JobId.ts"
import type { JobDraft } from "../../src/ports/Submitter.ts"

const drawn = Effect.sync(() => crypto.randomUUID())

export const freshId = Effect.map(
  Clock.currentTimeMillis,
  (nowMs) => JobId.make(nowMs, crypto.getRandomValues(new Uint8Array(10)))
)
export const freshLease = Effect.map(drawn, (uuid) => LeaseId.make(uuid))
export const freshType = Effect.map(drawn, (uuid) => JobType.make(`t-${uuid}`))
export const freshQueue = Effect.map(drawn, (uuid) => Queue.make(`q-${uuid}`))
export const freshKey = Effect.map(drawn, (uuid) => `k-${uuid}`)

/** A job of which nothing is said but its type: due now, in the default queue. */
export const draft = (change: Partial<JobDraft> & Pick<JobDraft, "type">): JobDraft => ({
  ...plainJob(change.type, "null"),
  ...change
})

/** A job of a type of its own, due now. */
export const job = Effect.fnUntraced(function*(change: Partial<NewJob> = {}) {
  const made: NewJob = { id: yield* freshId, ...draft({ type: yield* freshType, ...change }) }
  return made
})

export const jobs = (count: number, change: Partial<NewJob> = {}) =>
  Effect.forEach(Array.from({ length: count }), () => job(change))
