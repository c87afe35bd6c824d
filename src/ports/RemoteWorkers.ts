/**
 * Port: how workers in any language take jobs and report about them. The driving side's door to claims and leases.
 *
 * Laws, which `test/programs/remote` holds the programs to:
 *
 * 1. `claim` takes nothing further under a lease that has taken something: asked again, it answers what that took.
 * 2. A claim whose asker has gone before the answer is handed back, and so is one that was answered and is then said
 *    to be `unread`. Neither costs the job anything.
 * 3. Those who wait share their looks: a wait costs the store the same however many wait for the same types and queues.
 * 4. A wait ends within its time, and at once when this process is told to stop.
 * 5. `heartbeat` answers `held` only of leases whose record stands, or that the register knows and the record was seen
 *    to stand within one length. Which were claimed at another process makes no difference.
 * 6. `settle` writes only under the current claim, and says of each outcome whether its ending is on record, refused
 *    for good, or not known yet. Repeating it is always safe.
 * 7. An attempt past its timeout whose worker does not end it is a failed attempt at the next heartbeat of its lease.
 *
 * Nothing has to be remembered between two requests: any process answers for any worker.
 */
import { Context, type Effect, Schema } from "effect"
import type { Claim, LeaseId } from "../domain/Claim.ts"
import type { ClaimedJob, JobType, Queue } from "../domain/Job.ts"
import type { JobId } from "../domain/JobId.ts"
import type { Outcome } from "../domain/Outcome.ts"

/** Nothing was decided, or it is not known what was. Perhaps later, or at another process: repeat it as it was. */
export class RemoteUnavailable extends Schema.TaggedError<RemoteUnavailable>()("RemoteUnavailable", {
  reason: Schema.Literals(["full", "stopping", "store"])
}) {}

export interface RemoteRequest {
  /** For people; the lease is what fences. */
  readonly worker: string
  /** `null`: drawn here. */
  readonly lease: LeaseId | null
  readonly leaseMs: number
  readonly types: ReadonlyArray<JobType>
  /** `null`: all queues. */
  readonly queues: ReadonlyArray<Queue> | null
  readonly limit: number
  readonly waitMs: number
}

export interface RemoteClaims {
  readonly lease: LeaseId
  readonly leaseMs: number
  readonly jobs: ReadonlyArray<ClaimedJob>
  /** Of its lease, as this claim left it: while it stands nobody else goes by what was taken. */
  readonly token: string
}

export interface RemoteBeat {
  readonly held: ReadonlyArray<LeaseId>
  readonly lost: ReadonlyArray<LeaseId>
  /** Claims under these leases that were cut off: told again with each heartbeat. */
  readonly revoked: ReadonlyArray<{ readonly id: JobId; readonly epoch: number; readonly reason: string }>
}

export interface RemoteOutcome {
  readonly claim: Claim
  readonly outcome: Outcome
}

export interface RemoteSettled {
  readonly settled: ReadonlyArray<JobId>
  readonly stale: ReadonlyArray<JobId>
  /** Somebody has their rows locked: send these again. */
  readonly undecided: ReadonlyArray<JobId>
}

export class RemoteWorkers extends Context.Service<RemoteWorkers, {
  /** Interrupting it is going away. */
  readonly claim: (request: RemoteRequest) => Effect.Effect<RemoteClaims, RemoteUnavailable>
  /** This very answer never reached whoever asked. */
  readonly unread: (claims: RemoteClaims) => Effect.Effect<void>
  readonly heartbeat: (
    worker: string,
    leases: ReadonlyArray<LeaseId>
  ) => Effect.Effect<RemoteBeat, RemoteUnavailable>
  readonly settle: (outcomes: ReadonlyArray<RemoteOutcome>) => Effect.Effect<RemoteSettled, RemoteUnavailable>
}>()("deadman/ports/RemoteWorkers") {}
