/**
 * What is said to who uses an Idempotency-Key for another request: where the two differ. The job is read for it, which is
 * done for nobody else.
 */
import { Effect, Option, Semaphore } from "effect"
import * as Differences from "../../domain/Differences.ts"
import type { JobId } from "../../domain/JobId.ts"
import type { JobStore } from "../../ports/JobStore.ts"
import type { Answered, JobDraft } from "../../ports/Submitter.ts"
import * as ApiError from "./ApiError.ts"
import { answered } from "./Deadline.ts"
import * as Reply from "./Reply.ts"

const spelt = (field: string): string => field.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

const messageOf = (id: JobId, fields: ReadonlyArray<string>): string =>
  `This Idempotency-Key was used for a different request, whose job is ${id}: ${
    fields.length === 0
      ? "one of the two says what the other leaves out, or names another run_at_ms or delay_ms"
      : `${fields.map(spelt).join(", ")} ${fields.length === 1 ? "differs" : "differ"}`
  }. Use a new key for a new job.`

/** A job may be large, and a client that is wrong may be so ten thousand times at once. */
const reads = Semaphore.makeUnsafe(4)

/** Where the job cannot be read now, or is gone, it is said without. */
export const explained = (
  store: JobStore["Service"],
  draft: JobDraft,
  id: JobId
): Effect.Effect<ApiError.ApiError> =>
  answered(store.get([id])).pipe(
    Effect.map(([job]) =>
      job === undefined
        ? Reply.keyReused
        : ApiError.make("idempotency_key_reused", messageOf(id, Differences.between(draft, job)))
    ),
    Effect.orElseSucceed(() => Reply.keyReused),
    reads.withPermitsIfAvailable(1),
    Effect.map(Option.getOrElse(() => Reply.keyReused))
  )

/** As `Reply.submitted`, and says what differs where a key belongs to another request. */
export const submitted = (
  store: JobStore["Service"],
  draft: JobDraft,
  answer: Answered
): Effect.Effect<Reply.Reply | ApiError.ApiError> =>
  answer._tag === "KeyMismatch"
    ? explained(store, draft, answer.id)
    : Effect.succeed(Reply.submitted(draft, answer))
