/**
 * Storing jobs: one statement a flush, and nobody fails or waits for somebody else's entry.
 *
 * Entries with a key, entries without, and those with terms go in statements of their own, side by side. What Postgres
 * refuses, and what a foreign transaction holds, is found by halving the flush; what was found locked is tried apart for a
 * while (`Suspects.ts`), so that the next flush does not wait for it. Only whose key or unique place is held is told so;
 * where it is a table or the route of a new type, nothing is known of an entry, and it is asked again (`Held.ts`).
 */
import { Clock, Effect } from "effect"
import type { NewJob } from "../../../domain/Job.ts"
import type { JobStore, Submitted } from "../../../ports/JobStore.ts"
import type { Database } from "../Database.ts"
import type { DatabaseFailed } from "../DatabaseFailed.ts"
import * as Held from "./Held.ts"
import { orUnavailable, type StoreOptions } from "./Rows.ts"
import * as Atomic from "./SubmitAtomic.ts"
import * as Lanes from "./SubmitLanes.ts"
import * as Plain from "./SubmitPlain.ts"
import { answerLater, firsts } from "./SubmitRepeats.ts"
import * as Sql from "./SubmitSql.ts"
import * as Terms from "./SubmitTerms.ts"
import * as Suspects from "./Suspects.ts"

/** For which a submit looks for what is locked. What is left then is asked again: the others wait for no more. */
const waitsMaxMs = 1_000

const undecided = (jobs: ReadonlyArray<NewJob>, answers: Lanes.Answers): void =>
  jobs.forEach((job) => answers.set(job, { _tag: "Undecided" }))

const unlessLong = <E>(answers: Lanes.Answers, jobs: ReadonlyArray<NewJob>, ask: Effect.Effect<void, E>) =>
  Effect.suspend(() => {
    if (answers.waitedMs < waitsMaxMs) return ask
    undecided(jobs, answers)
    return Effect.void
  })

export const make = (db: Database["Service"], options: StoreOptions): Pick<JobStore["Service"], "submit"> => {
  const lanes = Lanes.make(db, options)
  const { atOnce, keyed, ofKnownRoutes, unkeyed, withTerms } = lanes
  const atomic = Atomic.make(db, lanes)
  const suspects = Suspects.make()

  const laneOf = (job: NewJob): Lanes.Store => Terms.hasTerms(job) ? withTerms : keyed

  /** As long as it took: for a table that a statement names, it waits longer than it is told to, before it is told. */
  const counted = Effect.fnUntraced(function*<A>(ask: Effect.Effect<A, DatabaseFailed>, answers: Lanes.Answers) {
    const from = yield* Clock.monotonicTimeNanos
    const count = Effect.map(Clock.monotonicTimeNanos, (now) => {
      answers.waitedMs += Number(now - from) / 1e6
    })
    return yield* Effect.tapError(ask, ({ kind }) => kind === "locked" ? count : Effect.void)
  })

  /** Those that need no new route; none where nobody can read which there are. */
  const knownOf = (jobs: ReadonlyArray<NewJob>, answers: Lanes.Answers) =>
    Effect.catchIf(
      counted(ofKnownRoutes(jobs), answers),
      (error) => error.kind === "locked",
      () => Effect.succeed(new Set<NewJob | undefined>())
    )

  /** Sends in parts what was refused or locked as a whole, and answers where it cannot be parted further. */
  const parted = (
    lane: Lanes.Store,
    jobs: ReadonlyArray<NewJob>,
    lockMs: number | null,
    answers: Lanes.Answers,
    error: DatabaseFailed
  ): Effect.Effect<void, DatabaseFailed> =>
    Effect.gen(function*() {
      const rest = jobs.filter((job) => !answers.has(job))
      // Only who must add a route waits for one, or for the table of all of them while it can be read.
      const isOfRoute = error.lockedRow === "route"
      if (error.kind === "locked" && (isOfRoute || error.lockedRow === undefined) && lockMs !== Sql.partLockMs) {
        const known = yield* knownOf(rest, answers)
        const unknown = rest.filter((job) => !known.has(job))
        if (known.size > 0 && (isOfRoute || unknown.length > 0)) {
          const those = rest.filter((job) => known.has(job))
          yield* split(lane, those, Sql.partLockMs, answers)
          // Those need no route, so it is another table, which the others would wait for as well.
          if (!isOfRoute && those.every((job) => answers.get(job)?._tag === "Undecided")) {
            return undecided(unknown, answers)
          }
          // Asked anew: what was waited for may be there meanwhile.
          return yield* unknown.length === 0
            ? Effect.void
            : unlessLong(answers, unknown, split(lane, unknown, Sql.partLockMs, answers))
        }
      }
      const [job, ...others] = rest
      if (job === undefined) return
      const parts = Held.parts([job, ...others], error)
      if (parts.length > 1 && error.kind !== "locked") {
        return yield* Effect.forEach(parts, (part) => split(lane, part, lockMs, answers), { discard: true })
      }
      if (parts.length > 1) {
        // The whole has waited out the time for a lock; its parts need not do so again.
        return yield* Effect.forEach(parts, (part) =>
          unlessLong(answers, part, split(lane, part, Sql.partLockMs, answers)), {
          discard: true
        })
      }
      if (error.kind === "refused") {
        return void answers.set(job, Lanes.refusal(error))
      }
      const nanos = yield* Clock.monotonicTimeNanos
      if (others.length === 0 && Held.isOf(job, error)) {
        suspects.remember(job, nanos)
        return void answers.set(job, { _tag: "KeyLocked" })
      }
      if (error.lockedRow === "route") {
        suspects.rememberRoute(job, nanos)
      }
      undecided([job, ...others], answers)
    })

  /** Sends `jobs` whole, and in parts where something in them cannot be stored. */
  const split = (
    lane: Lanes.Store,
    jobs: ReadonlyArray<NewJob>,
    lockMs: number | null,
    answers: Lanes.Answers
  ): Effect.Effect<void, DatabaseFailed> =>
    counted(lane(null, jobs, lockMs, answers), answers).pipe(
      Effect.retry({ times: Lanes.roundMax, while: (error) => error.kind === "deadlock" }),
      Effect.catchIf(
        (error) => error.kind === "refused" || error.kind === "locked",
        (error) => parted(lane, jobs, lockMs, answers, error)
      )
    )

  /** Entries that want what was held a moment ago: once it is seen to be still, it is for all of them. */
  const inTurn = Effect.fnUntraced(function*(alike: ReadonlyArray<NewJob>, answers: Lanes.Answers) {
    for (const [index, job] of alike.entries()) {
      if (answers.waitedMs >= waitsMaxMs) return undecided(alike.slice(index), answers)
      yield* split(laneOf(job), [job], Sql.partLockMs, answers)
      const answer = answers.get(job)
      if (answer?._tag !== "KeyLocked" && answer?._tag !== "Undecided") {
        suspects.forget(job)
      } else if (answer._tag === "Undecided" || job.key === null || !Terms.isUnique(job)) {
        return alike.slice(index + 1).forEach((other) => answers.set(other, answer))
      }
    }
  })

  /** Entries whose route was held a moment ago. */
  const ofNewRoutes = Effect.fnUntraced(function*(waiting: ReadonlyArray<NewJob>, answers: Lanes.Answers) {
    for (const lane of [unkeyed, keyed, withTerms]) {
      const jobs = waiting.filter((job) => (Plain.isPlain(job) ? unkeyed : laneOf(job)) === lane)
      const rowsMax = lane === withTerms ? Terms.rowsMax : jobs.length
      for (let from = 0; from < jobs.length; from += rowsMax) {
        yield* split(lane, jobs.slice(from, from + rowsMax), Sql.partLockMs, answers)
      }
    }
    for (const job of waiting) {
      if (answers.get(job)?._tag === "Created") suspects.forgetRoute(job)
    }
  })

  /**
   * So many at a time. Where all of some met what is locked, the next of their kinds would wait for the same; but for those
   * that need no new route, where all of the ones before did.
   */
  const inChunks = Effect.fnUntraced(function*(jobs: ReadonlyArray<NewJob>, answers: Lanes.Answers) {
    let rest = jobs
    while (rest.length > 0) {
      const some = rest.slice(0, Terms.rowsMax)
      rest = rest.slice(some.length)
      yield* split(withTerms, some, null, answers)
      if (some.every((job) => answers.get(job)?._tag === "Undecided")) {
        const kinds = new Set(some.map(Held.kindOf))
        const alike = rest.filter((job) => kinds.has(Held.kindOf(job)))
        const known = alike.length === 0 ? new Set() : yield* knownOf([...some, ...alike], answers)
        const held = new Set(some.some((job) => known.has(job)) ? alike : alike.filter((job) => !known.has(job)))
        undecided([...held], answers)
        rest = rest.filter((job) => !held.has(job))
      }
    }
  })

  /** What one waits for takes nothing from the time of the others. */
  const byItself = (
    answers: Lanes.Answers,
    ask: (own: Lanes.Answers) => Effect.Effect<void, DatabaseFailed>
  ): Effect.Effect<void, DatabaseFailed> =>
    Effect.suspend(() => {
      const own = new Lanes.Answers()
      return Effect.map(ask(own), () => own.forEach((answer, job) => answers.set(job, answer)))
    })

  const apart = Effect.fnUntraced(function*(jobs: ReadonlyArray<NewJob>, answers: Lanes.Answers) {
    const { first, later } = firsts(jobs.filter((job) => job.key !== null))
    const waiting = suspects.noRoute()
      ? []
      : suspects.ofRoutes([...jobs.filter((job) => job.key === null), ...first], yield* Clock.monotonicTimeNanos)
    const apart = new Set(waiting)
    const bare = jobs.filter((job) => Plain.isPlain(job) && !apart.has(job))
    const keys = first.filter((job) => !Terms.hasTerms(job) && !apart.has(job))
    const all = bare.length + keys.length + later.length + waiting.length === jobs.length
      ? []
      : [...jobs.filter((job) => job.key === null), ...first].filter((job) => Terms.hasTerms(job) && !apart.has(job))
    const held = suspects.none() ? [] : suspects.among([...keys, ...all], yield* Clock.monotonicTimeNanos)
    const lone = new Set(held.flat())
    const others = lone.size === 0 ? keys : keys.filter((job) => !lone.has(job))
    const terms = lone.size === 0 ? all : all.filter((job) => !lone.has(job))
    yield* Effect.all([
      bare.length === 0 ? Effect.void : byItself(answers, (own) => split(unkeyed, bare, null, own)),
      others.length === 0 ? Effect.void : byItself(answers, (own) => split(keyed, others, null, own)),
      terms.length === 0 ? Effect.void : byItself(answers, (own) => inChunks(terms, own)),
      held.length === 0
        ? Effect.void
        : byItself(answers, (own) => Effect.forEach(held, (alike) => inTurn(alike, own), { discard: true })),
      waiting.length === 0 ? Effect.void : byItself(answers, (own) => ofNewRoutes(waiting, own))
    ], { concurrency: 3, discard: true })
    yield* Effect.forEach(
      answerLater(later, answers),
      (job) => unlessLong(answers, [job], split(laneOf(job), [job], Sql.partLockMs, answers)),
      { discard: true }
    )
  })

  const announced = options.wake && options.queued !== true

  const inOrder = (jobs: ReadonlyArray<NewJob>, answers: Lanes.Answers) =>
    jobs.map((job): Submitted => answers.get(job) ?? { _tag: "Undecided" })

  const carefully = Effect.fnUntraced(function*(jobs: ReadonlyArray<NewJob>, how: { readonly atomic: boolean }) {
    const answers = new Lanes.Answers()
    if (jobs.length > 0) {
      yield* how.atomic ? atomic(jobs, answers) : apart(jobs, answers)
    }
    return inOrder(jobs, answers)
  })

  /** Plain ones that have waited for a lock. */
  const waited = (jobs: ReadonlyArray<NewJob>, error: DatabaseFailed) => {
    const answers = new Lanes.Answers()
    answers.waitedMs = Sql.lockMs
    return Effect.map(parted(unkeyed, jobs, null, answers, error), () => inOrder(jobs, answers))
  }

  /** A statement is a transaction. Whatever stands in the way of all of them, it stored none. */
  const submit: JobStore["Service"]["submit"] = (jobs, how) =>
    (jobs.length > 0 && (how.atomic || suspects.noRoute()) && jobs.every(Plain.isPlain)
      ? atOnce(jobs).pipe(
        Effect.catchIf((error) => error.kind !== "unavailable", (error) =>
          error.kind !== "locked"
            ? Effect.succeed(null)
            : how.atomic
            ? Effect.fail(Held.notNow(error))
            : waited(jobs, error)),
        Effect.flatMap((answers) => answers === null ? carefully(jobs, how) : Effect.succeed(answers))
      )
      : carefully(jobs, how)).pipe(
        Effect.map((answers) => ({ answers, announced })),
        orUnavailable("submit")
      )

  return { submit }
}
