/**
 * Storing jobs: one statement a flush, and nobody fails or waits for somebody else's entry.
 *
 * Entries with a key, entries without, and those with terms go in statements of their own, side by side. What Postgres
 * refuses, and what a foreign transaction holds, is found by halving the flush; a key or a unique place that was found
 * locked is tried alone for a while (`Suspects.ts`), so that the next flush does not wait for it. Keys are inserted in their order: two flushes with the same keys in
 * opposite order would deadlock.
 */
import { Clock, Effect } from "effect"
import type { NewJob } from "../../../domain/Job.ts"
import type { JobId } from "../../../domain/JobId.ts"
import type { JobStore, Submitted } from "../../../ports/JobStore.ts"
import {
  type Database,
  DatabaseFailed,
  ints,
  type Lane,
  laneFor,
  longs,
  type Session,
  texts,
  uuids
} from "../Database.ts"
import { orUnavailable, type StoreOptions } from "./Rows.ts"
import * as Plain from "./SubmitPlain.ts"
import * as Sql from "./SubmitSql.ts"
import * as Terms from "./SubmitTerms.ts"
import * as Suspects from "./Suspects.ts"

type Answers = Map<NewJob, Submitted>
type Db = Database["Service"]

/** How often a key that vanishes between two statements, or a deadlock, is tried again. */
const roundMax = 4

const parameters = (jobs: ReadonlyArray<NewJob>): ReadonlyArray<unknown> => [
  uuids(jobs.map((job) => job.id)),
  texts(jobs.map((job) => job.type)),
  texts(jobs.map((job) => job.queue)),
  texts(jobs.map((job) => job.payload)),
  ints(jobs.map((job) => job.priority)),
  ints(jobs.map((job) => job.maxAttempts)),
  texts(jobs.map(Plain.backoffLiteral)),
  ints(jobs.map((job) => job.timeoutMs)),
  longs(jobs.map((job) => job.runAtMs)),
  texts(jobs.map((job) => Plain.tagLiteral(job.tags))),
  uuids(jobs.map((job) => job.resubmittedFrom)),
  texts(jobs.map((job) => job.key === null ? null : job.key.key)),
  texts(jobs.map((job) => job.key === null ? null : job.key.fingerprint))
]

const created = (id: string, createdAtMs: number, runAtMs: number): Submitted => ({
  _tag: "Created",
  id: id as JobId,
  createdAtMs,
  runAtMs
})

const isThere = (answer: Submitted | undefined): boolean =>
  answer?._tag === "Created" || answer?._tag === "Replayed" || answer?._tag === "Skipped"

/** What takes the transaction of an atomic batch back. */
class Undone {
  readonly _tag = "Undone"
}

/** What the server says of it names objects and values of ours, and is for the log of the server. */
const refusal = (error: DatabaseFailed): Submitted => ({
  _tag: "Refused",
  message: `Postgres cannot store it (SQLSTATE ${error.code ?? "unknown"})`
})

export const make = (db: Db, options: StoreOptions): Pick<JobStore["Service"], "submit"> => {
  const sql = Sql.make(options)
  const plain = Plain.make(db, options)
  const termed = Terms.statement(options)
  const suspects = Suspects.make()

  const query = <Row extends object>(
    session: Session | null,
    text: string,
    params: ReadonlyArray<unknown>,
    lane: Lane = "hot"
  ) => session === null ? db.query<Row>(lane, text, params) : session.query<Row>(text, params)

  // Not inside the flush's transaction: routes outlive it, and are sorted so that two processes cannot deadlock.
  const addRoutes = (jobs: ReadonlyArray<NewJob>) => {
    const routes = [...new Map(jobs.map((job) => [`${job.type} ${job.queue}`, job]))].sort(([a], [b]) => a < b ? -1 : 1)
    return db.query("hot", Sql.addRoutes, [
      texts(routes.map(([, job]) => job.type)),
      texts(routes.map(([, job]) => job.queue))
    ])
  }

  /** One statement for all of `jobs`. Those it says nothing about were there before. */
  const insert = Effect.fnUntraced(function*(
    session: Session | null,
    text: string,
    jobs: ReadonlyArray<NewJob>,
    lockMs: number | null,
    answers: Answers
  ) {
    let rest = jobs
    for (let round = 0; round < roundMax && rest.length > 0; round++) {
      const [row] = yield* query<Sql.InsertedRow>(
        session,
        text,
        lockMs === null ? parameters(rest) : [...parameters(rest), String(lockMs)],
        laneFor(rest.length)
      )
      const there = new Set(row?.there ?? [])
      const routeless = new Set(row?.routeless ?? [])
      for (const [index, job] of rest.entries()) {
        if (!there.has(index + 1) && !routeless.has(index + 1)) {
          const now = row?.now ?? 0
          answers.set(job, created(job.id, now, Math.max(now, job.runAtMs ?? 0)))
        }
      }
      rest = rest.filter((_, index) => routeless.has(index + 1))
      if (rest.length > 0) yield* addRoutes(rest)
    }
  })

  /** Resent after an answer that was lost: what is there under the id is what was stored the first time. */
  const readStored = Effect.fnUntraced(function*(
    session: Session | null,
    jobs: ReadonlyArray<NewJob>,
    answers: Answers
  ) {
    const missed = jobs.filter((job) => !answers.has(job))
    if (missed.length === 0) return
    const rows = yield* query<Sql.StoredRow>(session, Sql.stored, [uuids(missed.map((job) => job.id))])
    const stored = new Map(rows.map((row) => [row.id, row]))
    for (const job of missed) {
      const row = stored.get(job.id)
      if (row !== undefined) answers.set(job, created(job.id, row.created_at_ms, row.run_at_ms))
    }
  })

  /** All of them, or `null` and none: their routes do not stay. An id that is there fails it, and then it is a resend. */
  const atOnce = (
    jobs: ReadonlyArray<NewJob>,
    rounds = roundMax
  ): Effect.Effect<ReadonlyArray<Submitted> | null, DatabaseFailed> =>
    Effect.flatMap(plain(jobs), (now) => {
      if (now !== null) return Effect.succeed(jobs.map((job) => created(job.id, now, Math.max(now, job.runAtMs ?? 0))))
      return rounds > 1 ? Effect.andThen(addRoutes(jobs), atOnce(jobs, rounds - 1)) : Effect.succeed(null)
    })

  const unkeyed = Effect.fnUntraced(function*(
    session: Session | null,
    jobs: ReadonlyArray<NewJob>,
    lockMs: number | null,
    answers: Answers
  ) {
    // A transaction does not survive a duplicate, and a lock timeout of its own comes with the careful form.
    if (session === null && lockMs === null) {
      const stored = yield* atOnce(jobs).pipe(
        Effect.catchIf(
          (error) => error.code === "23505" && (error.constraint === "body_pkey" || error.constraint === "job_pkey"),
          () => Effect.succeed(null)
        )
      )
      if (stored !== null) return jobs.forEach((job, index) => answers.set(job, stored[index]!))
    }
    yield* insert(session, sql.careful, jobs, lockMs ?? Sql.lockMs, answers)
    yield* readStored(session, jobs, answers)
  })

  /** The fate of entries whose key was there before them: a second statement, since the first cannot see the winner's row. */
  const readKeys = Effect.fnUntraced(function*(
    session: Session | null,
    jobs: ReadonlyArray<NewJob>,
    answers: Answers
  ) {
    const missed = jobs.filter((job) => !answers.has(job))
    if (missed.length === 0) return
    const rows = yield* query<Sql.KeyRow>(session, Sql.keys, [
      texts(missed.map((job) => job.key!.key)),
      String(options.keyTtlMs)
    ])
    const found = new Map(rows.map((row) => [row.key, row]))
    const expired = rows.filter((row) => row.expired)
    for (const job of missed) {
      const row = found.get(job.key!.key)
      if (row === undefined || row.expired) continue
      answers.set(
        job,
        row.job === job.id
          ? created(job.id, row.created_at_ms, row.run_at_ms)
          : { _tag: row.fingerprint === job.key!.fingerprint ? "Replayed" : "KeyMismatch", id: row.job as JobId }
      )
    }
    if (expired.length > 0) {
      yield* query(session, Sql.dropExpired, [
        texts(expired.map((row) => row.key)),
        uuids(expired.map((row) => row.job)),
        String(options.keyTtlMs)
      ])
    }
  })

  const keyed = Effect.fnUntraced(function*(
    session: Session | null,
    jobs: ReadonlyArray<NewJob>,
    lockMs: number | null,
    answers: Answers
  ) {
    for (let round = 0; round < roundMax; round++) {
      const rest = jobs.filter((job) => !answers.has(job))
      if (rest.length === 0) return
      yield* insert(
        session,
        lockMs === null ? sql.keyed : sql.keyedCareful,
        rest.toSorted((a, b) => a.key!.key < b.key!.key ? -1 : 1),
        lockMs,
        answers
      )
      yield* readKeys(session, rest, answers)
    }
    // The key comes and goes: somebody else is at it.
    for (const job of jobs) {
      if (!answers.has(job)) answers.set(job, { _tag: "KeyLocked" })
    }
  })

  type LaneOf = typeof unkeyed

  const withTerms: LaneOf = (session, jobs, lockMs, answers) =>
    Terms.store(
      (text, params) => query(session, text, params),
      termed,
      jobs,
      [
        ...parameters(jobs),
        ...Terms.termParameters(jobs),
        String(options.keyTtlMs),
        String(lockMs ?? Sql.lockMs)
      ],
      answers
    )

  const laneOf = (job: NewJob): LaneOf => Terms.hasTerms(job) ? withTerms : keyed

  /** Sends `jobs` whole, and in halves where something in them cannot be stored. */
  const split = (
    lane: LaneOf,
    jobs: ReadonlyArray<NewJob>,
    lockMs: number | null,
    answers: Answers
  ): Effect.Effect<void, DatabaseFailed> =>
    lane(null, jobs, lockMs, answers).pipe(
      Effect.retry({ times: roundMax, while: (error) => error.kind === "deadlock" }),
      Effect.catchIf((error) => error.kind === "refused" || error.kind === "locked", (error) =>
        Effect.gen(function*() {
          if (jobs.length === 1) {
            const [job] = jobs
            if (job === undefined) return
            if (error.kind === "refused") return void answers.set(job, refusal(error))
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

  /** The first entry of each key, and the others, which are answered from it. */
  const firsts = (jobs: ReadonlyArray<NewJob>) => {
    const byKey = new Map<string, NewJob>()
    const later: Array<readonly [NewJob, NewJob]> = []
    for (const job of jobs) {
      const first = byKey.get(job.key!.key)
      if (first === undefined) byKey.set(job.key!.key, job)
      else later.push([job, first])
    }
    return { first: [...byKey.values()], later }
  }

  /** Those that must be asked about themselves: what is stored is neither theirs nor the first's. */
  const answerLater = (later: ReadonlyArray<readonly [NewJob, NewJob]>, answers: Answers): ReadonlyArray<NewJob> => {
    const open: Array<NewJob> = []
    for (const [job, first] of later) {
      const answer = answers.get(first)
      const same = job.key!.fingerprint === first.key!.fingerprint
      if (answer?._tag === "Created" && job.id === first.id) {
        answers.set(job, answer)
      } else if (answer?._tag === "Created" || answer?._tag === "Replayed" || answer?._tag === "Skipped") {
        answers.set(job, { _tag: same ? "Replayed" : "KeyMismatch", id: answer.id })
      } else if (answer?._tag === "KeyLocked" || (answer?._tag === "KeyMismatch" && same)) {
        answers.set(job, answer)
      } else {
        open.push(job)
      }
    }
    return open
  }

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

  const together = (jobs: ReadonlyArray<NewJob>, answers: Answers, keep: boolean) =>
    db.transaction("hot", (session) =>
      Effect.gen(function*() {
        answers.clear()
        const { first, later } = firsts(jobs.filter((job) => job.key !== null))
        const only = [...first, ...jobs.filter((job) => job.key === null)]
        const plain = only.filter((job) => !Terms.hasTerms(job))
        const lanes: ReadonlyArray<readonly [LaneOf, ReadonlyArray<NewJob>]> = [
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
      const error = yield* Effect.match(together(jobs, new Map(), false), {
        onFailure: (error) => error._tag === "Undone" ? null : error,
        onSuccess: () => null
      })
      if (error === null) return null
      if (error.kind !== "refused" && error.kind !== "locked") return yield* error
      const [job] = jobs
      if (jobs.length === 1 && job !== undefined) {
        return [job, error.kind === "refused" ? refusal(error) : { _tag: "KeyLocked" }]
      }
      const middle = jobs.length >> 1
      return (yield* guilty(jobs.slice(0, middle))) ?? (yield* guilty(jobs.slice(middle)))
    })

  const atomic = Effect.fnUntraced(function*(jobs: ReadonlyArray<NewJob>, answers: Answers) {
    yield* addRoutes(jobs)
    yield* together(jobs, answers, true).pipe(
      Effect.catch((error) =>
        Effect.gen(function*() {
          if (error._tag === "DatabaseFailed") {
            if (error.kind !== "refused" && error.kind !== "locked") return yield* error
            answers.clear()
            const found = yield* guilty(jobs)
            // What stood in the way is gone again; the caller may try once more.
            if (found === null) {
              return yield* new DatabaseFailed({ ...error, kind: "unavailable", message: error.message })
            }
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
