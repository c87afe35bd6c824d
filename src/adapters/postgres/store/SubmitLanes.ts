/**
 * The lanes of a flush: how entries with a key are stored, entries without, and those with terms.
 *
 * Each is a statement or two for all of its entries. Keys are inserted in their order: two flushes with the same keys in
 * opposite order would deadlock.
 */
import { Effect } from "effect"
import { dueMs, type NewJob } from "../../../domain/Job.ts"
import type { JobId } from "../../../domain/JobId.ts"
import type { Submitted } from "../../../ports/JobStore.ts"
import { type Database, ints, type Lane, laneFor, longs, type Session, texts, uuids } from "../Database.ts"
import type { DatabaseFailed } from "../DatabaseFailed.ts"
import type { StoreOptions } from "./Rows.ts"
import * as Delays from "./SubmitDelays.ts"
import * as Plain from "./SubmitPlain.ts"
import * as Sql from "./SubmitSql.ts"
import * as Terms from "./SubmitTerms.ts"

/** What became of each. */
export class Answers extends Map<NewJob, Submitted> {
  /** For how long locks were waited for, in all. */
  waitedMs = 0
}

/**
 * Stores the jobs of one lane, and says of each what became of it. `session`: inside that transaction. `lockMs`: how long
 * a lock is waited for; `null` for as long as the connection does, by a shorter form.
 */
export type Store = (
  session: Session | null,
  jobs: ReadonlyArray<NewJob>,
  lockMs: number | null,
  answers: Answers
) => Effect.Effect<void, DatabaseFailed>

/** How often a key that vanishes between two statements, or a deadlock, is tried again. */
export const roundMax = 4

const parameters = (jobs: ReadonlyArray<NewJob>): ReadonlyArray<unknown> => [
  uuids(jobs.map((job) => job.id)),
  texts(jobs.map((job) => job.type)),
  texts(jobs.map((job) => job.queue)),
  texts(jobs.map((job) => job.payload)),
  ints(jobs.map((job) => job.priority)),
  ints(jobs.map((job) => job.maxAttempts)),
  texts(jobs.map(Plain.backoffLiteral)),
  ints(jobs.map((job) => job.timeoutMs)),
  longs(jobs.map(Delays.whenOf)),
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

/** What the server says of it names objects and values of ours, and is for the log of the server. */
export const refusal = (error: DatabaseFailed): Submitted => ({
  _tag: "Refused",
  message: `Postgres cannot store it (SQLSTATE ${error.code ?? "unknown"})`
})

export const make = (db: Database["Service"], options: StoreOptions) => {
  const sql = Sql.make(options, false)
  const delayed = Sql.make(options, true)
  const plain = Plain.make(db, options)
  const termed = Terms.statement(options)

  const query = <Row extends object>(
    session: Session | null,
    text: string,
    params: ReadonlyArray<unknown>,
    lane: Lane = "hot"
  ) => session === null ? db.query<Row>(lane, text, params) : session.query<Row>(text, params)

  // Not inside the flush's transaction: routes outlive it, and are sorted so that two processes cannot deadlock.
  const addRoutes = (jobs: ReadonlyArray<NewJob>, lockMs: number | null = null) => {
    const routes = [...new Map(jobs.map((job) => [`${job.type} ${job.queue}`, job]))].sort(([a], [b]) => a < b ? -1 : 1)
    return db.query("hot", lockMs === null ? Sql.addRoutes : Sql.addRoutesSoon, [
      texts(routes.map(([, job]) => job.type)),
      texts(routes.map(([, job]) => job.queue)),
      ...(lockMs === null ? [] : [String(lockMs)])
    ])
  }

  /** Those whose route is there, and is waited for by nobody. */
  const ofKnownRoutes = (jobs: ReadonlyArray<NewJob>) =>
    Effect.map(
      db.query<{ readonly n: number }>("hot", Sql.knownRoutes, [
        texts(jobs.map((job) => job.type)),
        texts(jobs.map((job) => job.queue))
      ]),
      (rows) => new Set(rows.map(({ n }) => jobs[n - 1]))
    )

  /** One statement for all of `jobs`. Those it says nothing about were there before. */
  const insert = Effect.fnUntraced(function*(
    session: Session | null,
    form: keyof typeof sql,
    jobs: ReadonlyArray<NewJob>,
    lockMs: number | null,
    answers: Answers
  ) {
    let rest = jobs
    const text = (jobs.some(Delays.hasDelay) ? delayed : sql)[form]
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
          answers.set(job, created(job.id, now, dueMs(job, now)))
        }
      }
      rest = rest.filter((_, index) => routeless.has(index + 1))
      if (rest.length > 0) yield* addRoutes(rest, lockMs)
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
      if (now !== null) return Effect.succeed(jobs.map((job) => created(job.id, now, dueMs(job, now))))
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
    yield* insert(session, "careful", jobs, lockMs ?? Sql.lockMs, answers)
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
        lockMs === null ? "keyed" : "keyedCareful",
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

  const withTerms: Store = (session, jobs, lockMs, answers) =>
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

  return { addRoutes, ofKnownRoutes, atOnce, unkeyed, keyed, withTerms }
}

export type Lanes = ReturnType<typeof make>
