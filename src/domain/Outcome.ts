/**
 * How a run ended, and what that means for the job.
 *
 * `settlement` is the whole decision: the store only writes it down, if the
 * claim is still the current one.
 */
import * as Backoff from "./Backoff.ts"
import { type Claim, epochMax } from "./Claim.ts"
import type { ClaimedJob } from "./Job.ts"
import type { DeadReason } from "./JobState.ts"

/** Why a run failed, already bounded and fit to be stored. */
export interface Failure {
  readonly name: string
  readonly message: string
}

export type Outcome =
  /** `result` is JSON text, or `null` where the handler returned nothing. */
  | { readonly _tag: "Completed"; readonly result: string | null }
  | { readonly _tag: "Failed"; readonly failure: Failure }
  /** The handler said: do not retry. */
  | { readonly _tag: "Rejected"; readonly failure: Failure }
  /** Handed back at no cost. `started` is false where no handler ever saw the job. */
  | { readonly _tag: "Released"; readonly started: boolean }
  /** The handler wants to run again later, at no cost. */
  | { readonly _tag: "Again"; readonly delayMs: number }

/** A worker's write about its claim: the step, and what goes with it. */
export interface Settlement {
  readonly claim: Claim
  readonly step: "complete" | "fail" | "die" | "release" | "again"
  readonly reason: DeadReason | null
  /** How long until the job may run again; 0 for steps that end it. */
  readonly delayMs: number
  readonly result: string | null
  readonly failure: Failure | null
  /** Whether the step leaves an event on the job. */
  readonly recorded: boolean
}

const base = { reason: null, delayMs: 0, result: null, failure: null, recorded: false }

/** One that runs again and again, or is handed back, for months without a pause: there are no more claims to be had. */
const wornOut: Failure = {
  name: "ClaimsExhausted",
  message:
    `It was claimed ${epochMax} times and is not handed back any more: resubmit it, and let it wait between its runs.`
}

/** What `outcome` of `job` means, for a `draw` in `[0, 1)` that spreads the retries. */
export const settlement = (
  claim: Claim,
  job: Pick<ClaimedJob, "attempts" | "maxAttempts" | "backoff">,
  outcome: Outcome,
  draw: number
): Settlement => {
  switch (outcome._tag) {
    case "Completed":
      return { ...base, claim, step: "complete", result: outcome.result }
    case "Failed":
      return job.attempts + 1 >= job.maxAttempts
        ? { ...base, claim, step: "die", reason: "attempts_exhausted", failure: outcome.failure }
        : {
          ...base,
          claim,
          step: "fail",
          delayMs: Backoff.delayMs(job.backoff, job.attempts + 1, draw),
          failure: outcome.failure
        }
    case "Rejected":
      return { ...base, claim, step: "die", reason: "rejected", failure: outcome.failure }
    case "Released":
    case "Again":
      return claim.epoch >= epochMax
        ? { ...base, claim, step: "die", reason: "rejected", failure: wornOut }
        : outcome._tag === "Again"
        ? { ...base, claim, step: "again", delayMs: outcome.delayMs }
        : { ...base, claim, step: "release", recorded: outcome.started }
  }
}
