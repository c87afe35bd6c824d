/**
 * What this process remembers of leases that workers elsewhere hold.
 *
 * Only a memory: it saves questions whose answers the store has, and tells how long an attempt may still take. Any of it
 * may be forgotten, and is when there is too much of it; then the record is asked again.
 */
import type { LeaseId } from "../../domain/Claim.ts"
import type { ClaimedJob, Queue } from "../../domain/Job.ts"
import type { JobId } from "../../domain/JobId.ts"
import type { RemoteClaims } from "../../ports/RemoteWorkers.ts"

/** What decides how a failure counts. */
export type Terms = Pick<ClaimedJob, "attempts" | "maxAttempts" | "backoff">

export interface GrantedJob {
  readonly epoch: number
  /** `null` until it was looked up. */
  terms: Terms | null
  queue: Queue | null
  timeoutMs: number | null
  /** Monotonic; `null` without a timeout. */
  deadlineMs: number | null
}

export interface Grant {
  readonly lease: LeaseId
  readonly leaseMs: number
  worker: string
  /** Whether the register was told and knew it when it was last asked. */
  registered: boolean
  /** Monotonic, when the record was last seen to stand. */
  verifiedMs: number
  /** Monotonic, when its worker was last heard of. */
  seenMs: number
  readonly jobs: Map<JobId, GrantedJob>
  /** Claims of it that were cut off here. */
  readonly cutOff: Map<JobId, { readonly epoch: number; readonly reason: string }>
  /** The answer that nothing was heard about since. */
  unheard: RemoteClaims | null
}

export interface Grants {
  readonly get: (lease: LeaseId) => Grant | undefined
  /** New, or as it is known. */
  readonly add: (
    grant: Pick<Grant, "lease" | "leaseMs" | "worker" | "verifiedMs"> & Partial<Grant>
  ) => Grant
  readonly drop: (lease: LeaseId) => void
  /** Its ending is on record. Whether it was the last that is known to run under its lease. */
  readonly ended: (lease: LeaseId, id: JobId) => boolean
  readonly heard: (lease: LeaseId, worker: string | null, nowMs: number) => void
  /** Forgets what was silent for long. */
  readonly sweep: (nowMs: number) => void
  readonly all: () => Iterable<Grant>
}

export const grantsMax = 10_000
export const jobsMax = 100_000

export const make = (): Grants => {
  // In the order of what was heard of least recently.
  const grants = new Map<LeaseId, Grant>()

  const drop: Grants["drop"] = (lease) => {
    grants.delete(lease)
  }

  const bound = () => {
    let jobs = 0
    for (const grant of grants.values()) {
      jobs += grant.jobs.size
    }
    for (const grant of grants.values()) {
      if (grants.size <= grantsMax && jobs <= jobsMax) {
        return
      }
      jobs -= grant.jobs.size
      grants.delete(grant.lease)
    }
  }

  return {
    get: (lease) => grants.get(lease),
    add: (given) => {
      const grant: Grant = {
        registered: false,
        seenMs: given.verifiedMs,
        jobs: new Map(),
        cutOff: new Map(),
        unheard: null,
        ...given
      }
      grants.delete(grant.lease)
      grants.set(grant.lease, grant)
      if (grants.size % 100 === 0 || grants.size > grantsMax) {
        bound()
      }
      return grant
    },
    drop,
    ended: (lease, id) => {
      const grant = grants.get(lease)
      if (grant === undefined || !grant.jobs.delete(id) || grant.jobs.size > 0) {
        return false
      }
      return true
    },
    heard: (lease, worker, nowMs) => {
      const grant = grants.get(lease)
      if (grant !== undefined) {
        grant.seenMs = nowMs
        grant.unheard = null
        grant.worker = worker ?? grant.worker
        grants.delete(lease)
        grants.set(lease, grant)
      }
    },
    sweep: (nowMs) => {
      for (const grant of grants.values()) {
        if (nowMs - grant.seenMs > 2 * grant.leaseMs) {
          grants.delete(grant.lease)
        }
      }
      bound()
    },
    all: () => grants.values()
  }
}
