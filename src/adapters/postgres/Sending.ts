/**
 * Sends statements on a connection, and heeds what a failure says of the server beyond the statement that met it.
 *
 * A server that was demoted may keep its connections, and a pool sends to them for as long as they are used: they are
 * given up, since another one may lead to a server that takes writes. While some session listens and leaves a
 * transaction open, the server's queue of notifications fills up, and nobody can add to it: statements go without
 * their hints then.
 */
import type { PgConnection, PgPool } from "@effect/sql-pg"
import { Effect } from "effect"
import { type DatabaseFailed, demoted, fromSqlError, isQueueFull, isReadOnly, unavailable } from "./DatabaseFailed.ts"

type Connection = PgConnection.PgConnection
export type Params = ReadonlyArray<unknown>

/** A notification on a channel that stands in the text is a hint: without it workers look by themselves, a little later. */
const hint = "pg_notify('"
export const withoutHints = (text: string): string => text.replaceAll(hint, "concat('")

/** Takes out what every listener has read. Postgres does so when something is added, and not where nothing can be. */
const tidyQueue = "SELECT pg_notification_queue_usage()"

/** Nobody notifies on a server that takes no writes. */
const askReadOnly = "SELECT current_setting('transaction_read_only') = 'on' AS read_only"

export const run = <Row extends object>(connection: Connection, text: string, params: Params) =>
  Effect.mapBoth(connection.query(text, params), {
    onFailure: fromSqlError,
    onSuccess: (result) => result.rows as unknown as ReadonlyArray<Row>
  })

export const mend = (pool: PgPool.PgPool, connection: Connection, error: DatabaseFailed): Effect.Effect<void> =>
  isReadOnly(error)
    ? pool.invalidate(connection)
    : isQueueFull(error)
    ? Effect.ignore(run(connection, tidyQueue, []))
    : Effect.void

export const send = <Row extends object>(
  pool: PgPool.PgPool,
  connection: Connection,
  text: string,
  params: Params
): Effect.Effect<ReadonlyArray<Row>, DatabaseFailed> =>
  Effect.catch(run<Row>(connection, text, params), (error) =>
    Effect.andThen(
      mend(pool, connection, error),
      isQueueFull(error) && text.includes(hint)
        ? run<Row>(connection, withoutHints(text), params)
        : Effect.fail(error)
    ))

/** Whether notifications may still arrive on a connection that listens. */
export const ping = (connection: Connection): Effect.Effect<void, DatabaseFailed> =>
  Effect.flatMap(
    run<{ readonly read_only: boolean }>(connection, askReadOnly, []),
    ([row]) => row?.read_only === true ? Effect.fail(unavailable("this server takes no writes", demoted)) : Effect.void
  )
