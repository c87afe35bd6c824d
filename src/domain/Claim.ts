/**
 * A claim: one job held by one worker for one run.
 *
 * The epoch is the fence: it grows by one with each claim of a job and is never
 * given back. The lease is what the worker renews; it covers the jobs of one
 * claim statement and never takes further ones. Both are checked by every
 * write, since after a failover that lost the newest commits the same epoch can
 * be handed out again, but never under the same lease.
 */
import { Schema } from "effect"
import { JobId, Uuid } from "./JobId.ts"

/** Drawn at random by whoever claims, before it asks. */
export const LeaseId = Uuid.pipe(Schema.brand("LeaseId"))
export type LeaseId = typeof LeaseId.Type

export const Epoch = Schema.Int.check(Schema.isGreaterThan(0)).pipe(Schema.brand("Epoch"))
export type Epoch = typeof Epoch.Type

export const Claim = Schema.Struct({ id: JobId, epoch: Epoch, lease: LeaseId })
export type Claim = typeof Claim.Type

/** A job with this many losses or more is claimed on its own, under a lease of its own. */
export const suspectLosses = 2

/**
 * After so many claims a job is not handed back any more. The column holds 147 million more, for what is not asked here
 * (reclaims, drains of a process that is gone): a claim past its end would fail, and with it each claim of its queue.
 */
export const epochMax = 2_000_000_000
