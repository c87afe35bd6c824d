/**
 * What this worker holds: its leases, and under each the jobs that are not settled yet.
 *
 * A job leaves when its ending is on record, or when it is known to be somebody
 * else's. A lease that has none left has ended, and is no longer renewed.
 */
import type { Claim, LeaseId } from "../../domain/Claim.ts"
import type { ClaimedJob } from "../../domain/Job.ts"
import type { JobId } from "../../domain/JobId.ts"
import * as Signal from "./Signal.ts"

export interface HeldLease {
  readonly id: LeaseId
  readonly leaseMs: number
  readonly jobs: Map<JobId, HeldJob>
  /** Monotonic, when the last confirmed request about it was **sent**: its age counts from there. */
  confirmedMs: number
  /** Monotonic, when its record in the store was last asked for. */
  verifiedMs: number
  /**
   * What the register was told. `lost`: it does not know the lease, or was told and did not answer. It is told again
   * only after the record was seen to stand: a mark of a reaper that is about to take the lease must not be wiped off.
   */
  registration: "fresh" | "held" | "lost"
  /** `over`: unconfirmed for its whole length, so never renewed again. `gone`: the record is not there any more. */
  state: "held" | "over" | "gone"
}

export interface HeldJob {
  readonly claim: Claim
  readonly lease: HeldLease
  /** `null` for a job that a failover made ours again: nothing of it runs here, it is only handed back. */
  readonly job: ClaimedJob | null
  /** Monotonic, when its claim was answered. */
  readonly atMs: number
  /** `ended`: its outcome is on the way to the store. */
  phase: "waiting" | "running" | "ended"
}

/** Whether its ending is still to be recorded. */
export const isHeld = (held: HeldJob): boolean => held.lease.jobs.get(held.claim.id) === held

export interface Ended {
  readonly id: LeaseId
  readonly registered: boolean
  readonly gone: boolean
}

export interface Leases {
  readonly byId: ReadonlyMap<LeaseId, HeldLease>
  readonly adopt: (
    lease: { readonly id: LeaseId; readonly leaseMs: number; readonly sentMs: number },
    jobs: ReadonlyArray<ClaimedJob>,
    nowMs: number
  ) => HeldLease
  /** Its ending is on record, or it is not ours: nothing more will be said about it. */
  readonly forget: (held: HeldJob) => void
  /** Said when a lease was adopted. */
  readonly adopted: Signal.Signal
  /** Said when there is something for the heartbeat to tend. */
  readonly toTend: Signal.Signal
  /** Whether there is: otherwise a heartbeat does nothing. */
  readonly tended: () => boolean
  /** Said when a lease has ended. */
  readonly someEnded: Signal.Signal
  /** Said when enough leases have ended to be worth a statement. */
  readonly manyEnded: Signal.Signal
  /** How many have ended that the store was not told about. */
  readonly ended: () => number
  readonly takeEnded: () => ReadonlyArray<Ended>
  /** Brings back what could not be told to the store. Bounded: what is dropped is reaped without a loss. */
  readonly bringBack: (ended: ReadonlyArray<Ended>) => void
  /** Claims whose answer was lost, to be abandoned with each heartbeat for one length of the lease. */
  readonly doubtful: Map<LeaseId, { readonly sinceMs: number; readonly leaseMs: number }>
  readonly doubt: (lease: LeaseId, sinceMs: number, leaseMs: number) => void
}

const endedMany = 64
const endedMax = 10_000

export const make = (options: {
  /** Whether the record is the register, so that a claim has told it already. */
  readonly isRecord: boolean
}): Leases => {
  const byId = new Map<LeaseId, HeldLease>()
  const adopted = Signal.make()
  const toTend = Signal.make()
  const someEnded = Signal.make()
  const manyEnded = Signal.make()
  const doubtful: Leases["doubtful"] = new Map()
  let ended: Array<Ended> = []

  const closeIfEmpty = (lease: HeldLease) => {
    if (lease.jobs.size > 0 || !byId.delete(lease.id)) {
      return
    }
    ended.push({ id: lease.id, registered: lease.registration !== "fresh", gone: lease.state === "gone" })
    if (ended.length === 1) {
      someEnded.notify()
    }
    if (ended.length >= endedMany) {
      manyEnded.notify()
    }
  }

  return {
    byId,
    adopt: ({ id, leaseMs, sentMs }, jobs, nowMs) => {
      const lease: HeldLease = {
        id,
        leaseMs,
        jobs: new Map(),
        confirmedMs: sentMs,
        verifiedMs: sentMs,
        registration: options.isRecord ? "held" : "fresh",
        state: "held"
      }
      for (const job of jobs) {
        const claim = { id: job.id, epoch: job.epoch, lease: id } as Claim
        lease.jobs.set(job.id, { claim, lease, job, atMs: nowMs, phase: "waiting" })
      }
      byId.set(id, lease)
      adopted.notify()
      toTend.notify()
      return lease
    },
    forget: (held) => {
      if (isHeld(held)) {
        held.lease.jobs.delete(held.claim.id)
        closeIfEmpty(held.lease)
      }
    },
    adopted,
    toTend,
    tended: () => byId.size + doubtful.size > 0,
    someEnded,
    manyEnded,
    ended: () => ended.length,
    takeEnded: () => {
      const taken = ended
      ended = []
      return taken
    },
    bringBack: (back) => {
      ended = [...ended, ...back].slice(0, endedMax)
    },
    doubtful,
    doubt: (lease, sinceMs, leaseMs) => {
      doubtful.set(lease, { sinceMs, leaseMs })
      toTend.notify()
    }
  }
}
