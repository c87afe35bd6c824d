/**
 * The states of a job and the only edges between them.
 *
 * `steps` is the specification: every adapter's writes are tested against it,
 * and `docs/state-machine.md` is printed from `edges` by a test. Each step is
 * one place in each adapter, so that a limit can hang on it later.
 */
import { Result, Schema } from "effect"

export const JobState = Schema.Literals(["pending", "running", "failed", "completed", "dead"])
export type JobState = typeof JobState.Type

export const jobStates: ReadonlyArray<JobState> = ["pending", "running", "failed", "completed", "dead"]

export const DeadReason = Schema.Literals(["attempts_exhausted", "rejected", "cancelled", "crash_loop", "expired"])
export type DeadReason = typeof DeadReason.Type

export const deadReasons: ReadonlyArray<DeadReason> = [
  "attempts_exhausted",
  "rejected",
  "cancelled",
  "crash_loop",
  "expired"
]

interface StepRule {
  readonly from: ReadonlyArray<JobState>
  readonly to: JobState
  /** Why the job is dead after this step; only for steps that end there. */
  readonly reasons?: ReadonlyArray<DeadReason>
}

/** Every way in which a job changes its state. */
export const steps = {
  /** A worker takes the job: a new epoch, under a lease. */
  claim: { from: ["pending", "failed"], to: "running" },
  /** The handler ended well. */
  complete: { from: ["running"], to: "completed" },
  /** The handler failed and attempts remain: the job waits out its backoff. */
  fail: { from: ["running"], to: "failed" },
  /** The handler failed for the last time, or said not to retry. */
  die: { from: ["running"], to: "dead", reasons: ["attempts_exhausted", "rejected"] },
  /** Handed back by the worker that holds it, at no cost: shutdown, or not started. */
  release: { from: ["running"], to: "pending" },
  /** The handler asked to run again later, at no cost. */
  again: { from: ["running"], to: "pending" },
  /** Its lease lapsed: somebody else runs it. */
  reclaim: { from: ["running"], to: "pending" },
  /** Its lease lapsed once too often: the job takes workers down with it. */
  crash: { from: ["running"], to: "dead", reasons: ["crash_loop"] },
  /** A person wants the failed job now. */
  retry: { from: ["failed"], to: "pending" },
  /** A person does not want the job any more. */
  cancel: { from: ["pending", "failed", "running"], to: "dead", reasons: ["cancelled"] },
  /** It was not started in time. */
  expire: { from: ["pending", "failed"], to: "dead", reasons: ["expired"] }
} as const satisfies Record<string, StepRule>

export type Step = keyof typeof steps

export const stepNames = Object.keys(steps) as ReadonlyArray<Step>

/** Which states may follow each state. */
export const edges: Readonly<Record<JobState, ReadonlyArray<JobState>>> = Object.fromEntries(
  jobStates.map((from) => [
    from,
    jobStates.filter((to) => Object.values(steps).some((rule: StepRule) => rule.from.includes(from) && rule.to === to))
  ])
) as unknown as Record<JobState, ReadonlyArray<JobState>>

export const isFinal = (state: JobState): boolean => edges[state].length === 0

/** A step that the table does not have. Nothing was changed. */
export interface IllegalStep {
  readonly _tag: "IllegalStep"
  readonly step: Step
  readonly from: JobState
}

/** The state after `step`, or the refusal. The one function that applies the table. */
export const apply = (step: Step, from: JobState): Result.Result<JobState, IllegalStep> => {
  const rule: StepRule = steps[step]
  return rule.from.includes(from) ? Result.succeed(rule.to) : Result.fail({ _tag: "IllegalStep", step, from })
}
