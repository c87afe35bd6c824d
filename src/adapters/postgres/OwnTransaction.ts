/**
 * Effects that happen exactly once: a handler's own SQL, committed together with the check of its claim.
 *
 * `once` runs SQL under a guard, `complete` ends the job in the same transaction: both commit as a whole, or not at all
 * where the claim is not current any more. The transaction is the handler's, on its own connection, to a database that
 * has the tables of Deadman. It makes a pledge, and Postgres keeps it within COMMIT (see the migration): no job is locked
 * while a handler works, and a process that freezes holds up nobody.
 *
 * A COMMIT whose answer was lost fails the run. Nothing is wrong then: asked again, `once` answers `Already`, and of a
 * completed job the settlement is known as a repeat.
 *
 * A query that failed undoes its transaction, whoever caught its error: the COMMIT then is a ROLLBACK, and most clients do
 * not say so. So each form sends a statement after the work, which fails there.
 */
import { Effect, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import type { Claim } from "../../domain/Claim.ts"
import { CurrentJob, type HandlerJob } from "../../ports/CurrentJob.ts"
import { ClaimNotCurrent } from "../../ports/GuardedEffects.ts"
import { isSqlState } from "./Target.ts"

/** `Already`: an earlier run of the job has done it, and the effect was not run. */
export type Once<A> = { readonly _tag: "Fired"; readonly value: A } | { readonly _tag: "Already" }

/** What is needed of a run. */
export interface Running {
  readonly job: Pick<HandlerJob, "id" | "worker">
  readonly claim: Claim
  readonly toResult: (value: unknown) => string | null
  readonly inPostgres?: boolean | undefined
}

/** There is no claim in the database that the transaction could be fenced by. Trying again does not mend that. */
export class EffectsNeedPostgres extends Schema.TaggedError<EffectsNeedPostgres>()("EffectsNeedPostgres", {}) {
  readonly retry = false
  override get message(): string {
    return "Effects commit together with a job that is in Postgres, and this job is in memory (deadman/testing): test " +
      "this handler with Deadman.start({ handlers, databaseUrl }), or without a databaseUrl for a Postgres of its own"
  }
}

const needPostgres = ({ inPostgres }: Running): Effect.Effect<void, EffectsNeedPostgres> =>
  inPostgres === false ? Effect.fail(new EffectsNeedPostgres()) : Effect.void

const keyMax = 200

const pledgeEffect = "SELECT deadman.pledge_effect($1::text, $2::text::uuid, $3::int, $4::text::uuid, $5::text) AS go"
const beginRun = "SELECT deadman.begin_run($1::text::uuid, $2::int, $3::text::uuid)"
const pledgeCompletion =
  "SELECT deadman.pledge_completion($1::text::uuid, $2::int, $3::text::uuid, $4::text, $5::text::jsonb)"

/** A key is the job's own: two jobs may use the same one. */
const effectParams = ({ claim, job }: Running, key: string): Array<unknown> => {
  if (key === "" || key.length > keyMax) {
    throw new RangeError(`the key of an effect has 1 to ${keyMax} characters, not ${key.length}`)
  }
  return [`${job.id}/${key}`, job.id, claim.epoch, claim.lease, job.worker]
}

/** Refused with 25P02 where a query before it has failed. */
const stillGood = "SELECT 1"

const claimParams = ({ claim }: Running): Array<unknown> => [claim.id, claim.epoch, claim.lease]

const completionParams = ({ claim, job, toResult }: Running, value: unknown): Array<unknown> => [
  job.id,
  claim.epoch,
  claim.lease,
  job.worker,
  toResult(value)
]

const notCurrent = "DM001"
const recordedAlready = "DM002"

/** The SQLSTATE, however deep a client has put it. */
const codeOf = (error: unknown): string | null => {
  let at: unknown = error
  for (let depth = 0; depth < 5 && typeof at === "object" && at !== null; depth++) {
    const { cause, code, reason } = at as { code?: unknown; cause?: unknown; reason?: unknown }
    if (typeof code === "string" && isSqlState(code)) {
      return code
    }
    at = reason ?? cause
  }
  return null
}

/** What a guarded transaction that failed comes to. */
const said = <A, E>({ claim }: Running, error: E): Effect.Effect<Once<A>, E | ClaimNotCurrent> => {
  switch (codeOf(error)) {
    case notCurrent:
      return Effect.fail(new ClaimNotCurrent({ claim }))
    case recordedAlready:
      return Effect.succeed({ _tag: "Already" })
    default:
      return Effect.fail(error)
  }
}

/**
 * Runs `effect`, and records under `key` that it was run, in one transaction of the SQL client in the context. Whoever
 * calls from within a transaction of its own has the guard and the fence in that one.
 */
export const once = Effect.fnUntraced(function*<A, E, R>(
  key: string,
  effect: Effect.Effect<A, E, R>
): Effect.fn.Return<
  Once<A>,
  E | SqlError.SqlError | ClaimNotCurrent | EffectsNeedPostgres,
  R | SqlClient.SqlClient | CurrentJob
> {
  const current = yield* CurrentJob
  yield* needPostgres(current)
  const sql = yield* SqlClient.SqlClient
  const params = effectParams(current, key)
  return yield* sql.withTransaction(Effect.gen(function*() {
    const [row] = yield* sql.unsafe<{ readonly go: boolean }>(pledgeEffect, params)
    if (row?.go !== true) {
      return { _tag: "Already" } as Once<A>
    }
    const value = yield* effect
    yield* sql.unsafe(stillGood)
    return { _tag: "Fired", value } as Once<A>
  })).pipe(
    Effect.catch((error: E | SqlError.SqlError) => said<A, E | SqlError.SqlError>(current, error))
  )
})

/** Runs `effect` and ends the job with its value as the result, in one transaction. What the run says later is a repeat. */
export const complete = Effect.fnUntraced(function*<A, E, R>(
  effect: Effect.Effect<A, E, R>
): Effect.fn.Return<
  A,
  E | SqlError.SqlError | ClaimNotCurrent | EffectsNeedPostgres,
  R | SqlClient.SqlClient | CurrentJob
> {
  const current = yield* CurrentJob
  yield* needPostgres(current)
  const sql = yield* SqlClient.SqlClient
  const begun = sql.unsafe(beginRun, claimParams(current))
  return yield* sql.withTransaction(
    Effect.tap(
      Effect.andThen(begun, effect),
      (value) => sql.unsafe(pledgeCompletion, completionParams(current, value))
    )
  ).pipe(
    Effect.catch((error: E | SqlError.SqlError): Effect.Effect<A, E | SqlError.SqlError | ClaimNotCurrent> =>
      Effect.fail(codeOf(error) === notCurrent ? new ClaimNotCurrent({ claim: current.claim }) : error)
    )
  )
})

/** Sends one statement on the connection of the transaction: `pg`'s `client.query`, `postgres`' `sql.unsafe`, or alike. */
export type Query = (text: string, params: Array<unknown>) => PromiseLike<unknown>

const rowsOf = (answer: unknown): ReadonlyArray<Record<string, unknown>> => {
  const rows: unknown = Array.isArray(answer) ? answer : (answer as { rows?: unknown } | null)?.rows
  return Array.isArray(rows) ? rows : []
}

/** What it rejects with, or throws, is passed on as it is. */
const working = <A>(work: () => PromiseLike<A>): Effect.Effect<A, unknown> =>
  Effect.callback((resume) => {
    Promise.resolve().then(work).then(
      (value) => resume(Effect.succeed(value)),
      (error: unknown) => resume(Effect.fail(error))
    )
  })

const ask = (query: Query, text: string, params: Array<unknown>): Effect.Effect<unknown, unknown> =>
  working(() => query(text, params))

const guarding = (running: Running, key: string, query: Query) =>
  needPostgres(running).pipe(
    Effect.andThen(Effect.suspend(() => ask(query, pledgeEffect, effectParams(running, key)))),
    Effect.map((answer) => rowsOf(answer)[0]?.["go"] === true)
  )

/** `BEGIN`, `body` and `COMMIT` on one connection, rolled back where something fails. */
const transact = <A>(query: Query, body: Effect.Effect<A, unknown>): Effect.Effect<A, unknown> =>
  Effect.gen(function*() {
    yield* ask(query, "BEGIN", [])
    // What went wrong is what is told: a connection that is gone rolls back by itself.
    const value = yield* Effect.onError(
      Effect.tap(body, () => ask(query, stillGood, [])),
      () => Effect.ignore(ask(query, "ROLLBACK", []))
    )
    yield* ask(query, "COMMIT", [])
    return value
  })

/**
 * For a transaction of the caller's own, as its first statement: whether there is anything to do. Then the commit
 * records the effect, and fails where the claim is not current. Where a query has failed and its error was caught, the
 * commit does nothing and may not say so: the caller lets such errors out, or sends one more statement before it.
 */
export const guard = (running: Running, key: string, query: Query): Promise<boolean> =>
  Effect.runPromise(guarding(running, key, query))

/**
 * For a transaction of the caller's own, as its last statement: the commit ends the job with `value` as the result. It
 * fails where a query before it has failed.
 */
export const completing = (running: Running, value: unknown, query: Query): Promise<void> =>
  Effect.runPromise(
    needPostgres(running).pipe(
      Effect.andThen(Effect.suspend(() => ask(query, pledgeCompletion, completionParams(running, value)))),
      Effect.asVoid
    )
  )

/** `once` for a plain client: `query` sends on one connection that is in no transaction. */
export const onceWith = <A>(
  running: Running,
  key: string,
  query: Query,
  work: () => PromiseLike<A>
): Promise<Once<A>> =>
  Effect.runPromise(Effect.andThen(
    needPostgres(running),
    transact(
      query,
      Effect.flatMap(guarding(running, key, query), (go): Effect.Effect<Once<A>, unknown> =>
        go ? Effect.map(working(work), (value) => ({ _tag: "Fired", value })) : Effect.succeed({ _tag: "Already" }))
    ).pipe(Effect.catch((error) =>
      said<A, unknown>(running, error)
    ))
  ))

/** `complete` for a plain client: `query` sends on one connection that is in no transaction. */
export const completeWith = <A>(running: Running, query: Query, work: () => PromiseLike<A>): Promise<A> =>
  Effect.runPromise(Effect.andThen(
    needPostgres(running),
    transact(
      query,
      Effect.gen(function*() {
        yield* ask(query, beginRun, claimParams(running))
        const value = yield* working(work)
        yield* ask(query, pledgeCompletion, completionParams(running, value))
        return value
      })
    ).pipe(
      Effect.mapError((error) => codeOf(error) === notCurrent ? new ClaimNotCurrent({ claim: running.claim }) : error)
    )
  ))
