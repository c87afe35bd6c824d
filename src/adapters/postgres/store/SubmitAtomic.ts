/**
 * A batch that is stored whole or not at all: one transaction. Where it cannot be, the entry that is to blame is found by
 * storing halves and taking them back, and the others are told that they were aborted with it.
 */
import { Effect } from "effect"
import type { NewJob } from "../../../domain/Job.ts"
import type { Submitted } from "../../../ports/JobStore.ts"
import type { Database } from "../Database.ts"
import type { DatabaseFailed } from "../DatabaseFailed.ts"
import * as Held from "./Held.ts"
import { Answers, type Lanes, refusal, roundMax, type Store } from "./SubmitLanes.ts"
import { answerLater, firsts } from "./SubmitRepeats.ts"
import * as Sql from "./SubmitSql.ts"
import * as Terms from "./SubmitTerms.ts"

const isThere = (answer: Submitted | undefined): boolean =>
  answer?._tag === "Created" || answer?._tag === "Replayed" || answer?._tag === "Skipped"

/** What takes the transaction of an atomic batch back. */
class Undone {
  readonly _tag = "Undone"
}

export const make = (db: Database["Service"], { addRoutes, keyed, unkeyed, withTerms }: Lanes) => {
  const together = (jobs: ReadonlyArray<NewJob>, answers: Answers, keep: boolean) =>
    db.transaction("hot", (session) =>
      Effect.gen(function*() {
        answers.clear()
        const { first, later } = firsts(jobs.filter((job) => job.key !== null))
        const only = [...first, ...jobs.filter((job) => job.key === null)]
        const plain = only.filter((job) => !Terms.hasTerms(job))
        const lanes: ReadonlyArray<readonly [Store, ReadonlyArray<NewJob>]> = [
          [keyed, plain.filter((job) => job.key !== null)],
          [unkeyed, plain.filter((job) => job.key === null)],
          [withTerms, only.filter(Terms.hasTerms)]
        ]
        for (const [lane, jobs] of lanes) {
          if (jobs.length > 0) yield* lane(session, jobs, Sql.lockMs, answers)
        }
        answerLater(later, answers)
        const whole = jobs.every((job) => isThere(answers.get(job)))
        if (!whole || !keep) return yield* Effect.fail(new Undone())
      })).pipe(
        Effect.retry({
          times: roundMax,
          while: (error) => error._tag === "DatabaseFailed" && error.kind === "deadlock"
        })
      )

  /** The first entry that cannot be stored, found by storing halves and taking them back. */
  const guilty = (jobs: ReadonlyArray<NewJob>): Effect.Effect<readonly [NewJob, Submitted] | null, DatabaseFailed> =>
    Effect.gen(function*() {
      const error = yield* Effect.match(together(jobs, new Answers(), false), {
        onFailure: (error) => error._tag === "Undone" ? null : error,
        onSuccess: () => null
      })
      if (error === null) return null
      if (error.kind !== "refused" && error.kind !== "locked") return yield* error
      const [job] = jobs
      if (jobs.length === 1 && job !== undefined) {
        if (error.kind === "locked" && !Held.isOf(job, error)) return yield* Held.notNow(error)
        return [job, error.kind === "refused" ? refusal(error) : { _tag: "KeyLocked" }]
      }
      const middle = jobs.length >> 1
      return (yield* guilty(jobs.slice(0, middle))) ?? (yield* guilty(jobs.slice(middle)))
    })

  return Effect.fnUntraced(function*(jobs: ReadonlyArray<NewJob>, answers: Answers) {
    yield* addRoutes(jobs)
    yield* together(jobs, answers, true).pipe(
      Effect.catch((error) =>
        Effect.gen(function*() {
          if (error._tag === "DatabaseFailed") {
            if (error.kind !== "refused" && error.kind !== "locked") return yield* error
            // Nobody among them is to blame.
            if (error.kind === "locked" && !jobs.some((job) => Held.isOf(job, error))) return yield* Held.notNow(error)
            answers.clear()
            const found = yield* guilty(jobs)
            // What stood in the way is gone again; the caller may try once more.
            if (found === null) return yield* Held.notNow(error)
            answers.set(found[0], found[1])
          }
          for (const job of jobs) {
            const answer = answers.get(job)
            if (answer === undefined || isThere(answer)) answers.set(job, { _tag: "Aborted" })
          }
        })
      )
    )
  })
}
