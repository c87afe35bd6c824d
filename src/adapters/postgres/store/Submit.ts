/**
 * Storing jobs: one statement a flush, and nobody fails or waits for somebody else's entry.
 *
 * Entries with a key, entries without, and those with terms go in statements of their own, side by side. What Postgres
 * refuses, and what a foreign transaction holds, is found by halving the flush; a key or a unique place that was found
 * locked is tried alone for a while (`Suspects.ts`), so that the next flush does not wait for it.
 */
import { Clock, Effect } from "effect"
import type { NewJob } from "../../../domain/Job.ts"
import type { JobStore, Submitted } from "../../../ports/JobStore.ts"
import type { Database } from "../Database.ts"
import type { DatabaseFailed } from "../DatabaseFailed.ts"
import { orUnavailable, type StoreOptions } from "./Rows.ts"
import * as Atomic from "./SubmitAtomic.ts"
import * as Lanes from "./SubmitLanes.ts"
import * as Plain from "./SubmitPlain.ts"
import { answerLater, firsts } from "./SubmitRepeats.ts"
import * as Sql from "./SubmitSql.ts"
import * as Terms from "./SubmitTerms.ts"
import * as Suspects from "./Suspects.ts"

type Answers = Lanes.Answers

export const make = (db: Database["Service"], options: StoreOptions): Pick<JobStore["Service"], "submit"> => {
  const lanes = Lanes.make(db, options)
  const { atOnce, keyed, unkeyed, withTerms } = lanes
  const atomic = Atomic.make(db, lanes)
  const suspects = Suspects.make()

  const laneOf = (job: NewJob): Lanes.Store => Terms.hasTerms(job) ? withTerms : keyed

  /** Sends `jobs` whole, and in halves where something in them cannot be stored. */
  const split = (
    lane: Lanes.Store,
    jobs: ReadonlyArray<NewJob>,
    lockMs: number | null,
    answers: Answers
  ): Effect.Effect<void, DatabaseFailed> =>
    lane(null, jobs, lockMs, answers).pipe(
      Effect.retry({ times: Lanes.roundMax, while: (error) => error.kind === "deadlock" }),
      Effect.catchIf((error) => error.kind === "refused" || error.kind === "locked", (error) =>
        Effect.gen(function*() {
          if (jobs.length === 1) {
            const [job] = jobs
            if (job === undefined) return
            if (error.kind === "refused") return void answers.set(job, Lanes.refusal(error))
            suspects.remember(job, yield* Clock.monotonicTimeNanos)
            return void answers.set(job, { _tag: "KeyLocked" })
          }
          // The whole has waited out the time for a lock; its parts need not do so again.
          const partLockMs = error.kind === "locked" ? Sql.partLockMs : lockMs
          const middle = jobs.length >> 1
          yield* split(lane, jobs.slice(0, middle), partLockMs, answers)
          yield* split(lane, jobs.slice(middle), partLockMs, answers)
        }))
    )

  /** Entries that want what was held a moment ago: once it is seen to be still, it is for all of them. */
  const inTurn = Effect.fnUntraced(function*(alike: ReadonlyArray<NewJob>, answers: Answers) {
    for (const [index, job] of alike.entries()) {
      yield* split(laneOf(job), [job], Sql.partLockMs, answers)
      if (answers.get(job)?._tag !== "KeyLocked") {
        suspects.forget(job)
      } else if (job.key === null || !Terms.isUnique(job)) {
        return alike.slice(index + 1).forEach((other) => answers.set(other, { _tag: "KeyLocked" }))
      }
    }
  })

  const apart = Effect.fnUntraced(function*(jobs: ReadonlyArray<NewJob>, answers: Answers) {
    const bare = jobs.filter(Plain.isPlain)
    const { first, later } = firsts(jobs.filter((job) => job.key !== null))
    const keys = first.filter((job) => !Terms.hasTerms(job))
    const all = bare.length + keys.length + later.length === jobs.length
      ? []
      : [...jobs.filter((job) => job.key === null && Terms.hasTerms(job)), ...first.filter(Terms.hasTerms)]
    const held = suspects.none() ? [] : suspects.among([...keys, ...all], yield* Clock.monotonicTimeNanos)
    const lone = new Set(held.flat())
    const others = lone.size === 0 ? keys : keys.filter((job) => !lone.has(job))
    const terms = lone.size === 0 ? all : all.filter((job) => !lone.has(job))
    yield* Effect.all([
      bare.length === 0 ? Effect.void : split(unkeyed, bare, null, answers),
      others.length === 0 ? Effect.void : split(keyed, others, null, answers),
      Effect.forEach(
        Array.from({ length: Math.ceil(terms.length / Terms.rowsMax) }, (_, n) => n * Terms.rowsMax),
        (from) => split(withTerms, terms.slice(from, from + Terms.rowsMax), null, answers),
        { discard: true }
      ),
      Effect.forEach(held, (alike) => inTurn(alike, answers), { discard: true })
    ], { concurrency: 3, discard: true })
    yield* Effect.forEach(
      answerLater(later, answers),
      (job) => split(laneOf(job), [job], Sql.partLockMs, answers),
      { discard: true }
    )
  })

  const announced = options.wake && options.queued !== true

  const carefully = Effect.fnUntraced(function*(jobs: ReadonlyArray<NewJob>, how: { readonly atomic: boolean }) {
    const answers: Answers = new Map()
    if (jobs.length > 0) {
      yield* how.atomic ? atomic(jobs, answers) : apart(jobs, answers)
    }
    return jobs.map((job): Submitted => answers.get(job) ?? { _tag: "KeyLocked" })
  })

  /** A statement is a transaction. Whatever stands in the way of all of them, it stored none. */
  const submit: JobStore["Service"]["submit"] = (jobs, how) =>
    (jobs.length > 0 && jobs.every(Plain.isPlain)
      ? atOnce(jobs).pipe(
        Effect.catchIf((error) => error.kind !== "unavailable", () => Effect.succeed(null)),
        Effect.flatMap((answers) => answers === null ? carefully(jobs, how) : Effect.succeed(answers))
      )
      : carefully(jobs, how)).pipe(
        Effect.map((answers) => ({ answers, announced })),
        orUnavailable("submit")
      )

  return { submit }
}
