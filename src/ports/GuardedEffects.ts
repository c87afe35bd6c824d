/**
 * Port: side effects that happen at most once, because they share a
 * transaction with the check of the claim.
 *
 * Laws, which `test/contracts/GuardedEffectsContract.ts` holds every adapter to:
 *
 * 1. Under one key the effect is recorded at most once, whoever asks, however often.
 * 2. With a claim that is not current nothing is recorded, and the answer is `ClaimNotCurrent`.
 * 3. The check of the claim is the last write before the commit, so that no job is locked while a handler works, and a
 *    caller that freezes cannot hold up the reclaim.
 */
import { Context, type Effect, Schema } from "effect"
import { because } from "../domain/Because.ts"
import { Claim } from "../domain/Claim.ts"

/** The job is another worker's now, or cancelled. Stop, and record nothing. */
export class ClaimNotCurrent extends Schema.TaggedError<ClaimNotCurrent>()("ClaimNotCurrent", { claim: Claim }) {
  override get message(): string {
    return `the job ${this.claim.id} is no longer this run's (delivery ${this.claim.epoch}): nothing of it was recorded`
  }
}

/** Whether the effect was recorded is not known. Asking again under the same key is safe. */
export class GuardedEffectsUnavailable
  extends Schema.TaggedError<GuardedEffectsUnavailable>()("GuardedEffectsUnavailable", {
    cause: Schema.Defect()
  })
{
  override get message(): string {
    return `it is not known whether the effect was recorded: ${because(this.cause)}`
  }
}

export class GuardedEffects extends Context.Service<GuardedEffects, {
  /** Records one effect under `key`. `already` means that an earlier run of the job did. */
  readonly once: (
    claim: Claim,
    key: string,
    worker: string
  ) => Effect.Effect<"fired" | "already", ClaimNotCurrent | GuardedEffectsUnavailable>
}>()("deadman/ports/GuardedEffects") {}
