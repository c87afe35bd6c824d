/**
 * Port: what is due when, so that promotion is punctual.
 *
 * `run_at` in the store is the truth. This is an index of the near future that
 * may be lost at any time: a scan of the store every few seconds makes promotion
 * certain, and refills what is missing here.
 *
 * Laws, which `test/contracts/DelayedJobsContract.ts` holds every adapter to:
 *
 * 1. A scheduled job is in `due` once the given time has reached its own, earliest first, and not before.
 * 2. It stays there until it is forgotten: it is forgotten after it was promoted and published, not before.
 * 3. Scheduling a job again replaces its time. Forgetting what is not there changes nothing.
 * 4. `nextMs` is the time of the earliest job that is not yet due, `null` where none is known.
 * 5. An index apart from the store wants to be filled from it until `filled` says that it was, and again once that time
 *    is over or what it held may have been lost. It may hold the earliest of its jobs only.
 *
 * "Now" is the store's clock, given by the caller: the index has no clock of its own.
 */
import { Context, type Effect, Schema } from "effect"
import { because } from "../domain/Because.ts"
import type { JobId } from "../domain/JobId.ts"

/** The index did not answer in time. The scan of the store finds what it knew. */
export class DelayedJobsUnavailable extends Schema.TaggedError<DelayedJobsUnavailable>()("DelayedJobsUnavailable", {
  operation: Schema.Literals(["schedule", "due", "forget", "filled"]),
  cause: Schema.Defect()
}) {
  override get message(): string {
    return `the index of delayed jobs did not answer (${this.operation}): ${because(this.cause)}`
  }
}

export interface DueJobs {
  readonly ids: ReadonlyArray<JobId>
  readonly nextMs: number | null
  readonly wantsFill: boolean
}

export class DelayedJobs extends Context.Service<DelayedJobs, {
  /** How far ahead jobs are worth scheduling here; `null` where the index is the store's own. */
  readonly horizonMs: number | null
  readonly schedule: (
    jobs: ReadonlyArray<{ readonly id: JobId; readonly runAtMs: number }>
  ) => Effect.Effect<void, DelayedJobsUnavailable>
  readonly due: (nowMs: number, limit: number) => Effect.Effect<DueJobs, DelayedJobsUnavailable>
  /** What is due before the horizon was scheduled; this holds until `untilMs`. */
  readonly filled: (untilMs: number) => Effect.Effect<void, DelayedJobsUnavailable>
  readonly forget: (ids: ReadonlyArray<JobId>) => Effect.Effect<void, DelayedJobsUnavailable>
}>()("deadman/ports/DelayedJobs") {}
