/**
 * What is said where Postgres does not do a thing: its errors, told apart by SQLSTATE, from a closed list.
 *
 * Their text never holds a connection string or a payload.
 */
import { PgTypes } from "@effect/sql-pg"
import { Schema } from "effect"
import type { SqlError } from "effect/sql"
import * as Target from "./Target.ts"

const Kind = Schema.Literals([
  /** No answer, or none in time, or not now. Whether it took effect is not known. */
  "unavailable",
  /** A row was locked for longer than `lock_timeout`. Nothing was changed. */
  "locked",
  /** Lost a deadlock or a serialization race. Nothing was changed; the whole may be tried again. */
  "deadlock",
  /** Postgres cannot hold these values. Nothing was changed, and no retry helps. */
  "refused",
  /** The statement itself is wrong here: a defect, missing rights, another schema. */
  "broken"
])

export class DatabaseFailed extends Schema.TaggedError<DatabaseFailed>()("DatabaseFailed", {
  kind: Kind,
  /** The SQLSTATE, if the server answered. */
  code: Schema.NullOr(Schema.String),
  constraint: Schema.NullOr(Schema.String),
  message: Schema.String,
  /** Whose row was locked: the table, or its index. Absent: a whole table was, or it is not known. */
  lockedRow: Schema.optionalKey(Schema.String)
}) {}

export const unavailable = (message: string, code: string | null = null) =>
  new DatabaseFailed({ kind: "unavailable", code, constraint: null, message })

/** The server takes no writes: it was demoted, or is a replica. */
export const demoted = "25006"

const kindOf = (code: string): typeof Kind.Type => {
  if (code === "55P03") return "locked"
  if (code === "40P01" || code === "40001") return "deadlock"
  // A sequence that has run out is among the bad values, and is nobody's value.
  if (code === "2200H") return "unavailable"
  const group = code.slice(0, 2)
  if (group === "22" || group === "23" || group === "54") return "refused"
  // Connections, resources, shutdown and cancellation, a session cut for idling or for a transaction that took long, a
  // server that is read-only or lost its disk, a database that is being restored, a role that may not log in at present.
  if (["08", "53", "57", "58", "XX", "28", "3D"].includes(group) || [demoted, "25P03", "25P04"].includes(code)) {
    return "unavailable"
  }
  return "broken"
}

const messageMax = 300

/** Some limit of the server: that of a value, and that of the queue of notifications, which is no value's fault. */
const limitExceeded = "54000"

/** The part of Postgres that says so of notifications. What it says may be in any language. */
const notifying = "async.c"

/** Of functions that give up by `RAISE`: what they say of keys and places that come and go. */
const raising = "pl_exec.c"

/**
 * Postgres says at which row it waited, as "while locking tuple (0,1) in relation "job"", in any language (in Korean
 * without the parentheses, in Chinese with a blank), and behind it which function of ours it was in. Of a table it says
 * nothing, nor where another one already waits for the same row.
 */
const rowOf = (fields: { readonly file?: unknown; readonly where?: unknown } | undefined): string | undefined => {
  if (fields?.file === raising) return "key"
  const line = typeof fields?.where === "string" ? fields.where.split("\n", 1)[0]! : ""
  if (!/\d+, ?\d+/.test(line)) return undefined
  return /["\p{Pi}\p{Pf}„「]\s?([a-z_]+)\s?["\p{Pi}\p{Pf}」]/u.exec(line)?.[1]
}

export const isReadOnly = ({ code }: DatabaseFailed): boolean => code === demoted

export const isQueueFull = ({ code, kind }: DatabaseFailed): boolean => code === limitExceeded && kind === "unavailable"

/** What the server said, by its code: the driver's own classes put a read-only server beside a bad value. */
export const fromSqlError = (error: SqlError.SqlError): DatabaseFailed => {
  const fields = error.reason.cause as
    | { code?: unknown; constraint?: unknown; file?: unknown; message?: unknown; where?: unknown }
    | undefined
  const code = typeof fields?.code === "string" ? fields.code : null
  const message = (Target.reasonOf(fields) ?? error.message).slice(0, messageMax)
  if (code !== null && Target.isSqlState(code)) {
    const kind = code === limitExceeded && fields?.file === notifying ? "unavailable" : kindOf(code)
    const lockedRow = kind === "locked" ? rowOf(fields) : undefined
    return new DatabaseFailed({
      kind,
      code,
      constraint: typeof fields?.constraint === "string" ? fields.constraint : null,
      message,
      ...(lockedRow === undefined ? {} : { lockedRow })
    })
  }
  // No SQLSTATE: the connection failed, or a value could not be encoded, which only our own statements can cause.
  const encoding = fields instanceof PgTypes.CodecError
  return new DatabaseFailed({ kind: encoding ? "broken" : "unavailable", code, constraint: null, message })
}
