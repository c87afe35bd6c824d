/**
 * Port: how a job gets in. The driving side's door to the store.
 *
 * Laws, which `test/programs/submit` holds the group commit to:
 *
 * 1. An answer `Created` or `Replayed` is given after the commit, and names a job that the store has.
 * 2. Whoever goes away takes nobody else's submit along.
 * 3. Every submit is answered within its deadline. `SubmitUnavailable` means that the job may or may not be stored: ask
 *    again under the same Idempotency-Key.
 * 4. What waits here is bounded; beyond the bound a submit is refused at once.
 */
import { Context, type Effect, Schema } from "effect"
import type { Job, NewJob } from "../domain/Job.ts"
import type { JobId } from "../domain/JobId.ts"

/** The job may or may not be stored. Perhaps later. */
export class SubmitUnavailable extends Schema.TaggedError<SubmitUnavailable>()("SubmitUnavailable", {
  reason: Schema.Literals(["full", "stopping", "store"])
}) {}

/** A job whose id is not drawn yet. */
export type JobDraft = Omit<NewJob, "id">

export type Answered =
  | { readonly _tag: "Created"; readonly id: JobId; readonly createdAtMs: number; readonly runAtMs: number }
  /** `job` is `null` if it was pruned while its key lives. */
  | { readonly _tag: "Replayed"; readonly id: JobId; readonly job: Job | null }
  | { readonly _tag: "KeyMismatch"; readonly id: JobId }
  /** It is unique, and this job stands in its way. */
  | { readonly _tag: "Skipped"; readonly id: JobId; readonly job: Job }
  | { readonly _tag: "KeyLocked" }
  | { readonly _tag: "Refused"; readonly message: string }
  | { readonly _tag: "Aborted" }

export class Submitter extends Context.Service<Submitter, {
  /** Shares its commit with whoever else submits at the time. */
  readonly submit: (draft: JobDraft) => Effect.Effect<Answered, SubmitUnavailable>
  /** The same for callers without a fiber: `answer` is called exactly once, later. */
  readonly submitThen: (draft: JobDraft, answer: (answered: Answered | SubmitUnavailable) => void) => void
  /** All or nothing, in a commit of its own. */
  readonly submitAll: (
    drafts: ReadonlyArray<JobDraft>
  ) => Effect.Effect<ReadonlyArray<Answered>, SubmitUnavailable>
  /** A fresh id, for a job that is made inside the store. */
  readonly drawId: Effect.Effect<JobId>
}>()("deadman/ports/Submitter") {}
