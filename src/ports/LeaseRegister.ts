/**
 * Port: which leases are being renewed.
 *
 * Only liveness, never truth: whether a job ran, and under which claim, is
 * asked of the store. That is what makes it safe to lose everything in here.
 *
 * Laws, which `test/contracts/LeaseRegisterContract.ts` holds every adapter to:
 *
 * 1. A lease that is held answers `held` to `renew`, and each renewal moves its token.
 * 2. A lease that is not known answers `lost` to `renew`: renewing makes nothing.
 * 3. `markLapsed` acts only if the token is the given one. A marked lease answers `lost` to `renew`, until it is held
 *    again; a renewal before the mark makes the mark fail.
 * 4. `flag` makes the next `renew` of a held lease answer `check`: look at the record now. Holding the lease again does
 *    not take it off, and it takes off no mark.
 * 5. `look` answers the tokens of the leases that are known, and the incarnation, which changes whenever entries may
 *    have been forgotten or brought back from an older state.
 * 6. `release` of a lease that is not held changes nothing and does not fail.
 * 7. What is not renewed goes away by itself, but not before a reaper has watched it; losing it all makes nothing look
 *    lapsed, only unknown.
 *
 * Every method is one round trip for the whole batch and has a deadline. It never queues behind other work.
 */
import { Context, type Effect, Schema } from "effect"
import { because } from "../domain/Because.ts"
import type { LeaseId } from "../domain/Claim.ts"

/** The register did not answer in time. The leases may or may not be held: ask the store. */
export class LeaseRegisterUnavailable
  extends Schema.TaggedError<LeaseRegisterUnavailable>()("LeaseRegisterUnavailable", {
    operation: Schema.Literals(["hold", "renew", "release", "look", "markLapsed", "flag"]),
    cause: Schema.Defect()
  })
{
  override get message(): string {
    return `the lease register did not answer (${this.operation}): ${because(this.cause)}`
  }
}

/** `check`: held, but the store has something to say about it. `lost`: ask the store whether the record stands. */
export type Renewal = "held" | "check" | "lost"

export interface RegisterLook {
  readonly incarnation: string
  readonly tokens: ReadonlyMap<LeaseId, string>
}

export class LeaseRegister extends Context.Service<LeaseRegister, {
  /** Whether the register is the store's own record, so that one look serves both. */
  readonly isRecord: boolean
  readonly hold: (
    leases: ReadonlyArray<{ readonly lease: LeaseId; readonly leaseMs: number }>
  ) => Effect.Effect<void, LeaseRegisterUnavailable>
  /** In the order of the leases. */
  readonly renew: (
    leases: ReadonlyArray<{ readonly lease: LeaseId; readonly leaseMs: number }>
  ) => Effect.Effect<ReadonlyArray<Renewal>, LeaseRegisterUnavailable>
  readonly release: (leases: ReadonlyArray<LeaseId>) => Effect.Effect<void, LeaseRegisterUnavailable>
  readonly look: (leases: ReadonlyArray<LeaseId>) => Effect.Effect<RegisterLook, LeaseRegisterUnavailable>
  /** Whether the mark was made. A `null` token: only if the lease is not known here. */
  readonly markLapsed: (lease: LeaseId, token: string | null) => Effect.Effect<boolean, LeaseRegisterUnavailable>
  readonly flag: (leases: ReadonlyArray<LeaseId>) => Effect.Effect<void, LeaseRegisterUnavailable>
}>()("deadman/ports/LeaseRegister") {}
