/**
 * Where the ids of leases come from.
 *
 * They fence: two claims must never share one, whichever processes drew them.
 * A simulation puts a seeded source in its place, so that a run can be repeated.
 */
import { Context } from "effect"
import type { LeaseId } from "../../domain/Claim.ts"

export const LeaseIds = Context.Reference<() => LeaseId>("deadman/programs/worker/LeaseIds", {
  defaultValue: () => () => crypto.randomUUID() as LeaseId
})
