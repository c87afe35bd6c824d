/**
 * Ends leases of which all jobs are settled, many in one call: in the store, and in the register.
 *
 * A courtesy. A lease that nobody ends lapses, and the reaper takes it with no job under it.
 */
import { Effect } from "effect"
import type { LeaseId } from "../../domain/Claim.ts"
import { type JobStore, JobStoreUnavailable } from "../../ports/JobStore.ts"
import { type LeaseRegister, LeaseRegisterUnavailable } from "../../ports/LeaseRegister.ts"
import * as Deadline from "./Deadline.ts"
import type { Leases } from "./Leases.ts"

const deadlineMs = 2_000

export interface LeaseEnds {
  /** Those that have ended so far, within `ms` for each of the two. */
  readonly end: (ms: number) => Effect.Effect<void>
  /** Ends only by interruption. */
  readonly run: Effect.Effect<never>
}

/** Fails where the store does not do it within `ms`. */
export const inStore = (
  store: JobStore["Service"],
  leases: ReadonlyArray<LeaseId>,
  ms: number
): Effect.Effect<void, JobStoreUnavailable> =>
  leases.length === 0
    ? Effect.void
    : Deadline.within(
      store.endLeases(leases),
      ms,
      () => new JobStoreUnavailable({ operation: "endLeases", cause: Deadline.noAnswer(ms) })
    )

/** What is not released within `ms` goes away by itself. */
export const inRegister = (
  register: LeaseRegister["Service"],
  leases: ReadonlyArray<LeaseId>,
  ms: number
): Effect.Effect<void> =>
  leases.length === 0
    ? Effect.void
    : Effect.ignoreCause(Deadline.within(
      register.release(leases),
      ms,
      () => new LeaseRegisterUnavailable({ operation: "release", cause: Deadline.noAnswer(ms) })
    ))

export const make = (options: {
  readonly store: JobStore["Service"]
  readonly register: LeaseRegister["Service"]
  readonly leases: Leases
  /** How long they may gather, unless there are many. */
  readonly gatherMs: number
}): LeaseEnds => {
  const { leases, register, store } = options

  const end = Effect.fnUntraced(function*(ms: number) {
    const ended = leases.takeEnded()
    const recorded = ended.filter((lease) => !lease.gone)
    yield* inStore(store, recorded.map((lease) => lease.id), ms).pipe(
      Effect.catchCause(() => Effect.sync(() => leases.bringBack(recorded)))
    )
    yield* inRegister(register, ended.filter((lease) => lease.registered).map((lease) => lease.id), ms)
  })

  return {
    end,
    run: Effect.gen(function*() {
      while (true) {
        if (leases.ended() === 0) {
          yield* leases.someEnded.wait(Number.POSITIVE_INFINITY)
        }
        yield* leases.manyEnded.wait(options.gatherMs)
        yield* end(deadlineMs)
      }
    })
  }
}
