/**
 * Keys, unique places and new routes that somebody else's transaction held a moment ago.
 *
 * An entry that wants one of them is tried apart for a while, so that no flush waits for a transaction that stays open.
 * Only a memory of this process: what it forgets costs one flush the time for a lock.
 */
import { Result } from "effect"
import { createHash } from "node:crypto"
import type { NewJob } from "../../../domain/Job.ts"
import { placeOf } from "../../../domain/Unique.ts"
import { routeOf } from "./Held.ts"

const heldForNanos = 2_000_000_000n
const heldMax = 1_000

/** What may be locked of it. Payloads are large, and there may be many. */
const wanted = (job: NewJob): ReadonlyArray<string> => {
  const names = job.key === null ? [] : [`key ${job.key.key}`]
  if (job.unique === null || job.unique === undefined) {
    return names
  }
  const payload = Result.try(() => JSON.parse(job.payload) as unknown)
  // What cannot be parsed is refused, and takes no place.
  return Result.isFailure(payload) ? names : [
    ...names,
    `place ${createHash("sha256").update(placeOf(job.type, payload.success, job.unique)).digest("base64")}`
  ]
}

export interface Suspects {
  readonly none: () => boolean
  /** Something that it wants is held. Which of the two it is, is not known. */
  readonly remember: (job: NewJob, nanos: bigint) => void
  /** Of these, the ones that want what was held, together if they want the same. */
  readonly among: (jobs: ReadonlyArray<NewJob>, nanos: bigint) => ReadonlyArray<ReadonlyArray<NewJob>>
  readonly forget: (job: NewJob) => void
  readonly noRoute: () => boolean
  readonly rememberRoute: (job: NewJob, nanos: bigint) => void
  /** Of these, the ones whose route was held. */
  readonly ofRoutes: (jobs: ReadonlyArray<NewJob>, nanos: bigint) => ReadonlyArray<NewJob>
  readonly forgetRoute: (job: NewJob) => void
}

export const make = (): Suspects => {
  /** With when that is forgotten. */
  const held = new Map<string, bigint>()
  const routes = new Map<string, bigint>()
  return {
    none: () => held.size === 0,
    remember: (job, nanos) => {
      for (const name of wanted(job)) {
        if (held.size >= heldMax) held.clear()
        held.set(name, nanos + heldForNanos)
      }
    },
    among: (jobs, nanos) => {
      for (const [name, untilNanos] of held) {
        if (untilNanos <= nanos) held.delete(name)
      }
      const found = new Map<string, Array<NewJob>>()
      for (const job of held.size === 0 ? [] : jobs) {
        const name = wanted(job).find((one) => held.has(one))
        if (name === undefined) continue
        const alike = found.get(name)
        if (alike === undefined) found.set(name, [job])
        else alike.push(job)
      }
      return [...found.values()]
    },
    forget: (job) => wanted(job).forEach((name) => held.delete(name)),
    noRoute: () => routes.size === 0,
    rememberRoute: (job, nanos) => {
      if (routes.size >= heldMax) routes.clear()
      routes.set(routeOf(job), nanos + heldForNanos)
    },
    ofRoutes: (jobs, nanos) => {
      for (const [route, untilNanos] of routes) {
        if (untilNanos <= nanos) routes.delete(route)
      }
      return jobs.filter((job) => routes.has(routeOf(job)))
    },
    forgetRoute: (job) => void routes.delete(routeOf(job))
  }
}
