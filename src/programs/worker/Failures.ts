/**
 * Runs that failed, in the log: with the stack of what was thrown, which is kept nowhere else.
 *
 * The job has the name and the message of each, so lines may be left out: no more than ten in ten seconds are written,
 * however many handlers throw. The message is not in the log: it may hold what is in the payload.
 */
import { type Context, Effect } from "effect"
import type { ClaimedJob } from "../../domain/Job.ts"
import type { Failure, Outcome } from "../../domain/Outcome.ts"

const linesMax = 10
const spanMs = 10_000

/** Frames of a stack: what lies below them is the machinery. */
const framesMax = 8
/** Characters of each. */
const frameMax = 500

const framesOf = (thrown: unknown): string => {
  try {
    const { message, stack } = (thrown ?? {}) as { readonly message?: unknown; readonly stack?: unknown }
    const at = typeof stack === "string" && typeof message === "string" ? stack.indexOf(message) : -1
    // Lines of the message may look like frames.
    const below = at < 0 ? "" : String(stack).slice(at + String(message).length)
    return below.split("\n").filter((line) => /^\s+at /.test(line)).slice(0, framesMax)
      .map((line) => `\n${line.slice(0, frameMax)}`).join("")
  } catch {
    return ""
  }
}

const causeOf = ({ name }: Failure, thrown: unknown): string => `${name}${framesOf(thrown)}`

export interface Failures {
  /** Says that a run has failed or was rejected; of any other outcome nothing. Never throws. */
  readonly tell: (job: ClaimedJob, outcome: Outcome, thrown: unknown) => void
}

export const make = (context: Context.Context<never>, now: () => number): Failures => {
  const runFork = Effect.runForkWith(context)
  let sinceMs = Number.NEGATIVE_INFINITY
  let said = 0
  let unsaid = 0
  return {
    tell: (job, outcome, thrown) => {
      if (outcome._tag !== "Failed" && outcome._tag !== "Rejected") {
        return
      }
      const atMs = now()
      if (atMs - sinceMs >= spanMs) {
        sinceMs = atMs
        said = 0
      }
      if (said >= linesMax) {
        unsaid += 1
        return
      }
      const line = outcome._tag === "Rejected"
        ? Effect.logWarning("a run was rejected: its job is not tried again")
        : job.attempts + 1 >= job.maxAttempts
        ? Effect.logWarning("a run failed, and it was the last one")
        : Effect.logWarning("a run failed and is tried again")
      const unsaidBefore = unsaid === 0 ? {} : { not_logged: unsaid }
      said += 1
      unsaid = 0
      runFork(
        line.pipe(Effect.annotateLogs({
          job: job.id,
          type: job.type,
          attempt: job.attempts + 1,
          max_attempts: job.maxAttempts,
          cause: causeOf(outcome.failure, thrown),
          ...unsaidBefore
        }))
      )
    }
  }
}
