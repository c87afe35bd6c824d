/**
 * The connections to Postgres, in lanes, each statement under a deadline.
 *
 * A lane is a pool of its own, so that a flood of one kind of work takes no connection from another: heartbeats never
 * queue behind claims, nor either behind a reader.
 *
 * A deadline must hold when the server is frozen. Interrupting a running statement waits for the driver to drain its
 * connection, which takes seconds then; so a statement runs in a fiber of its own, and who asked waits for its answer
 * or for the time, whichever is first. What was sent may still take effect.
 */
import { PgConnection, PgPool, PgTypes } from "@effect/sql-pg"
import { Cause, Context, Effect, Exit, Layer, type Queue, Result, Scope } from "effect"
import { SqlError } from "effect/sql"
import { DatabaseFailed, fromSqlError, isQueueFull, unavailable } from "./DatabaseFailed.ts"
import { mend, type Params, ping, run, send, withoutHints } from "./Sending.ts"
import * as Target from "./Target.ts"

/**
 * `hot`: submit, claim, settle. `quick`: the same of a few jobs, by plans that are made once. `vital`: heartbeats and
 * the lease register. `read`: readers, people and chores. `handler`: transactions that handlers take part in.
 */
export type Lane = "hot" | "quick" | "vital" | "read" | "handler"

/**
 * Jobs of a statement of the lane `quick`, at most. To plan one costs Postgres more than to run it; but a kept plan does
 * not know how many jobs there are, and compares each with each.
 */
export const few = 64

/** The lane for a statement about so many jobs. */
export const laneFor = (jobs: number): Lane => jobs <= few ? "quick" : "hot"

/** One connection, inside a transaction. */
export interface Session {
  readonly query: <Row extends object>(
    text: string,
    params?: Params
  ) => Effect.Effect<ReadonlyArray<Row>, DatabaseFailed>
}

export interface Notification {
  readonly channel: string
  readonly payload: string
}

/** A channel that is listened to, on a connection of its own. */
export interface Listening {
  /** Fails when the connection is lost. */
  readonly notifications: Queue.Dequeue<Notification, SqlError.SqlError>
  /** A small statement on the same connection. Where it fails, nothing arrives any more either. */
  readonly ping: (deadlineMs: number) => Effect.Effect<void, DatabaseFailed>
}

export class Database extends Context.Service<Database, {
  /** One statement, prepared by its text. Rows are as the driver decodes them: cast `bigint` to `float8`. */
  readonly query: <Row extends object>(
    lane: Lane,
    text: string,
    params?: Params,
    options?: { readonly deadlineMs?: number | undefined }
  ) => Effect.Effect<ReadonlyArray<Row>, DatabaseFailed>

  /**
   * Commits when `body` succeeds, rolls back when it fails or the deadline for all of it passes. Where the queue of
   * notifications is full and the COMMIT is refused, `body` is run once more.
   */
  readonly transaction: <A, E>(
    lane: Lane,
    body: (session: Session) => Effect.Effect<A, E>,
    options?: { readonly deadlineMs?: number | undefined }
  ) => Effect.Effect<A, E | DatabaseFailed>

  readonly listen: (channel: string) => Effect.Effect<Listening, DatabaseFailed, Scope.Scope>
}>()("deadman/adapters/postgres/Database") {}

export interface Config extends Target.Server {
  /** Connections for `hot`, and as many for `quick`. */
  readonly storePool?: number
  /** Connections for `handler`. */
  readonly handlerPool?: number
  /** The longest a claim, submit or settle may run: below one lease. */
  readonly hotTimeoutMs?: number
  readonly applicationName?: string
}

interface LaneSettings {
  readonly connections: number
  readonly statementMs: number
  readonly idleInTransactionMs: number
}

/** A settle or submit that waits longer for a row than this takes it for somebody else's problem. */
export const lockTimeoutMs = 250

/** What the client waits beyond the server's own timeout, so that the server's answer is the one that counts. */
const graceMs = 500

const hotSettings = (config: Config): LaneSettings => ({
  connections: config.storePool ?? 4,
  statementMs: config.hotTimeoutMs ?? 3_000,
  idleInTransactionMs: 1_000
})

const laneSettings = (config: Config): Record<Lane, LaneSettings> => ({
  hot: hotSettings(config),
  quick: hotSettings(config),
  vital: { connections: 2, statementMs: 1_000, idleInTransactionMs: 1_000 },
  read: { connections: 2, statementMs: 4_000, idleInTransactionMs: 1_000 },
  handler: { connections: config.handlerPool ?? 3, statementMs: 10_000, idleInTransactionMs: 10_000 }
})

/** What every connection is opened with. */
const connectionOptions = (
  config: Config,
  parameters: Readonly<Record<string, string>>
): PgConnection.Config => ({
  ...Target.options(config, config.applicationName ?? "deadman"),
  keepAlive: 10_000,
  // A pool and a listener are idle for as long as there is nothing to do, whatever the role's own limit is.
  startupParameters: { idle_session_timeout: "0", ...parameters }
})

/**
 * What `hot` runs finds its rows one by one, in the order of an index. Not told so, the planner walks all of a table of
 * less than about 50,000 jobs for each settle of 500, and sorts all that is ready for a claim.
 */
const indexed = { enable_seqscan: "off", enable_bitmapscan: "off", random_page_cost: "1.1" }

/**
 * A plan that was made while the tables were empty must do in full ones: whatever finds jobs does so one by one, and
 * nothing is hashed or sorted for it beforehand.
 */
const kept = { ...indexed, enable_hashjoin: "off", enable_mergejoin: "off", enable_sort: "off" }

const planning = (lane: Lane): Record<string, string> =>
  lane === "quick"
    ? { plan_cache_mode: "force_generic_plan", ...kept }
    // A plan that was kept from a table of a few jobs joins a thousand with a thousand one by one.
    : { plan_cache_mode: "force_custom_plan", ...(lane === "hot" ? indexed : {}) }

const laneParameters = (lane: Lane, settings: LaneSettings): Record<string, string> => ({
  // The cost of a walk over an index of unknown size starts the compiler, which takes longer than the claim.
  jit: "off",
  // Whatever the database's own is: with a higher one a claim fails where it meets a row that another one has taken, and
  // what is read behind a lock is of before it.
  default_transaction_isolation: "read committed",
  ...planning(lane),
  statement_timeout: String(settings.statementMs),
  lock_timeout: String(lockTimeoutMs),
  idle_in_transaction_session_timeout: String(settings.idleInTransactionMs),
  // A statement whose client went away ends soon and holds no rows. Servers on Windows refuse the setting.
  ...(process.platform === "win32" ? {} : { client_connection_check_interval: "1000" })
})

/** Runs `work` on its own and waits for it for so long. Nobody waits for its interruption. */
const underDeadline = <A, E>(
  work: Effect.Effect<A, E>,
  deadlineMs: number
): Effect.Effect<A, E | DatabaseFailed> =>
  Effect.contextWith((context: Context.Context<never>) =>
    Effect.callback<A, E | DatabaseFailed>((resume) => {
      const fiber = Effect.runForkWith(context)(work)
      // A timer and no race of two more fibers: this is done for each statement.
      const timer = setTimeout(() => {
        resume(Effect.fail(unavailable(`no answer within ${deadlineMs} ms`)))
        fiber.interruptUnsafe()
      }, deadlineMs)
      fiber.addObserver((exit) => {
        clearTimeout(timer)
        // The pool was closed under it; who asked was not interrupted.
        const closed = Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause)
        resume(closed ? Effect.fail(unavailable("the connections are closed")) : exit)
      })
      return Effect.sync(() => {
        clearTimeout(timer)
        fiber.interruptUnsafe()
      })
    })
  )

/** `textOf`: what of a statement is sent. */
const transact = <A, E>(
  connection: PgConnection.PgConnection,
  body: (session: Session) => Effect.Effect<A, E>,
  textOf: (text: string) => string = (text) => text
): Effect.Effect<A, E | DatabaseFailed> =>
  Effect.gen(function*() {
    yield* run(connection, "BEGIN", [])
    const value = yield* body({ query: (text, params = []) => run(connection, textOf(text), params) }).pipe(
      // Interrupted, the connection is given up with the transaction in it, which the server then rolls back.
      Effect.tapCause((cause) =>
        Cause.hasInterrupts(cause) ? Effect.void : Effect.ignore(run(connection, "ROLLBACK", []))
      )
    )
    const commit = yield* Effect.mapError(connection.query("COMMIT"), fromSqlError)
    if (commit.command === "ROLLBACK") {
      return yield* unavailable("COMMIT was answered with ROLLBACK")
    }
    return value
  })

const make = Effect.fnUntraced(function*(config: Config) {
  const settings = laneSettings(config)
  const pool = (lane: Lane) =>
    // The pools open connections when asked for some; to make them fails for nothing but a URL that cannot be read.
    Effect.orDie(PgPool.make({
      ...connectionOptions(config, laneParameters(lane, settings[lane])),
      maxConnections: settings[lane].connections,
      minConnections: 0,
      idleTimeout: 300_000
    }))
  const pools: Record<Lane, PgPool.PgPool> = {
    hot: yield* pool("hot"),
    quick: yield* pool("quick"),
    vital: yield* pool("vital"),
    read: yield* pool("read"),
    handler: yield* pool("handler")
  }
  const deadline = (lane: Lane, options: { readonly deadlineMs?: number | undefined } | undefined) =>
    options?.deadlineMs ?? settings[lane].statementMs + graceMs

  const classified = <A, E, R>(
    effect: Effect.Effect<A, E | SqlError.SqlError, R>
  ): Effect.Effect<A, Exclude<E, SqlError.SqlError> | DatabaseFailed, R> =>
    Effect.mapError(
      effect,
      (error) => error instanceof SqlError.SqlError ? fromSqlError(error) : error as Exclude<E, SqlError.SqlError>
    )

  const query: Database["Service"]["query"] = <Row extends object>(
    lane: Lane,
    text: string,
    params: Params = [],
    options?: { readonly deadlineMs?: number | undefined }
  ) => {
    const pool = pools[lane]
    return underDeadline(
      classified(pool.use((connection) => send<Row>(pool, connection, text, params))),
      deadline(lane, options)
    )
  }

  const transaction: Database["Service"]["transaction"] = (lane, body, options) => {
    const pool = pools[lane]
    return underDeadline(
      Effect.scoped(Effect.flatMap(classified(pool.reserve), (connection) =>
        transact(connection, body).pipe(
          Effect.catch((error) =>
            error instanceof DatabaseFailed
              ? Effect.andThen(
                mend(pool, connection, error),
                // A full queue refuses the COMMIT, so nothing of it was kept.
                isQueueFull(error) ? transact(connection, body, withoutHints) : Effect.fail(error)
              )
              : Effect.fail(error)
          ),
          // An unfinished transaction must not go back into the pool.
          Effect.onInterrupt(() => pool.invalidate(connection))
        ))),
      deadline(lane, options)
    )
  }

  const listen: Database["Service"]["listen"] = Effect.fnUntraced(function*(channel) {
    const scope = yield* Scope.Scope
    const inner = yield* Scope.fork(scope)
    return yield* underDeadline(
      Effect.mapError(
        Effect.gen(function*() {
          const connection = yield* PgConnection.make(
            connectionOptions(config, { idle_in_transaction_session_timeout: "1000" })
          )
          // Listening takes the connection for itself; only who has pinned it can send more on it.
          const pinned = yield* connection.pin
          const notifications = yield* pinned.listen(channel)
          return { notifications, ping: (deadlineMs: number) => underDeadline(ping(pinned), deadlineMs) }
        }),
        fromSqlError
      ).pipe(Scope.provide(inner)),
      settings.vital.statementMs + 4_000
    ).pipe(
      // Not waited for, like every interruption here.
      Effect.tapError(() => Effect.forkDetach(Scope.close(inner, Exit.void)))
    )
  })

  return Database.of({ query, transaction, listen })
})

export const layer = (config: Config): Layer.Layer<Database> => Layer.effect(Database, make(config))

const arrayOf = (oid: number) => (values: ReadonlyArray<unknown>): PgTypes.Parameter =>
  Result.getOrThrow(PgTypes.array(values, oid))

/**
 * Arrays as parameters, with their type said: the driver would infer it from the first value, and refuses an array of
 * nothing but nulls, and one of numbers on both sides of 2^31.
 */
export const uuids: (values: ReadonlyArray<string | null>) => PgTypes.Parameter = arrayOf(PgTypes.OID.uuid)
export const texts: (values: ReadonlyArray<string | null>) => PgTypes.Parameter = arrayOf(PgTypes.OID.text)
export const ints: (values: ReadonlyArray<number | null>) => PgTypes.Parameter = arrayOf(PgTypes.OID.int4)
export const bools: (values: ReadonlyArray<boolean | null>) => PgTypes.Parameter = arrayOf(PgTypes.OID.bool)
/** For `bigint`, as `float8`: whole milliseconds are exact in it, and it costs no BigInt. Cast it in the statement. */
export const longs: (values: ReadonlyArray<number | null>) => PgTypes.Parameter = arrayOf(PgTypes.OID.float8)
/** One `bigint`, as `float8`. A bare number would be a type of another width on each side of 2^31. */
export const long = (value: number | null): PgTypes.Parameter => PgTypes.float8(value)
