/**
 * Submitting in a transaction of one's own: the job is there if that commits, and never was if it rolls back.
 *
 * `submit` is for Effect SQL; `statement` is the same as text and values, for any other client of Postgres. Both call
 * the SQL function `deadman.submit`, which checks what it is given as the API does, and wakes the workers with the
 * commit. The role needs `USAGE` on the schema `deadman` and `EXECUTE` on that function, and nothing else.
 */
import { Effect, Result } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { SubmitRefused } from "./client/Contract.ts"
import * as SubmitOptions from "./client/SubmitOptions.ts"
import type { Definition } from "./job/Definition.ts"

/** For a client that takes text with `$1` and its values. Its one row has one column, `id`. */
export interface Statement {
  readonly text: string
  readonly values: [type: string, payload: string, options: string]
}

/** What `submit` may fail with has a name for who has imported nothing else. */
export type { SubmitRefused } from "./client/Contract.ts"

const text = "SELECT deadman.submit($1::text, $2::text::jsonb, $3::text::jsonb) AS id"

// oxlint-disable-next-line typescript/no-explicit-any -- a definition of whatever payload and result
type AnyDefinition = Definition<string, any, any>

const make = (
  job: AnyDefinition | string,
  payload: unknown = null,
  options: SubmitOptions.SubmitOptions = {}
): Statement => {
  if (typeof job !== "string") {
    const encoded = Result.getOrThrowWith(job.encode(payload), (refused) => refused)
    return make(job.type, encoded, { ...job.defaults, ...options })
  }
  const { payload: json, type: _, ...rest } = SubmitOptions.bodyOf(job, payload, options)
  return { text, values: [job, JSON.stringify(json), JSON.stringify(rest)] }
}

/** Throws `JobValueRefused` where the payload does not fit its definition. */
export const statement: {
  (type: string, payload?: unknown, options?: SubmitOptions.SubmitOptions): Statement
  <Payload, Value>(
    job: Definition<string, Payload, Value>,
    payload: NoInfer<Payload>,
    options?: SubmitOptions.SubmitOptions
  ): Statement
} = make

/** SQLSTATEs of what no retry cures: a wrong field, and a key that was used for another request. */
const refusals = new Set(["22023", "DM003"])

const fieldPattern = /^[a-z_]+(?:\.[a-z_]+)?(?= (?:must|is|needs|holds|has|was) )/

const refusalOf = (error: SqlError.SqlError): SqlError.SqlError | SubmitRefused => {
  const cause = error.reason.cause as { readonly code?: unknown; readonly message?: unknown } | undefined
  return typeof cause?.code === "string" && refusals.has(cause.code)
    ? new SubmitRefused(
      SubmitOptions.inOurWords(String(cause.message), fieldPattern.exec(String(cause.message))?.[0])
    )
    : error
}

/**
 * Stores a job by the SQL client in the context, within its transaction if there is one. Answers the job's id, also of
 * one that was there by its idempotencyKey or as a unique job.
 */
export const submit: {
  (
    type: string,
    payload?: unknown,
    options?: SubmitOptions.SubmitOptions
  ): Effect.Effect<string, SubmitRefused | SqlError.SqlError, SqlClient.SqlClient>
  <Payload, Value>(
    job: Definition<string, Payload, Value>,
    payload: NoInfer<Payload>,
    options?: SubmitOptions.SubmitOptions
  ): Effect.Effect<string, SubmitRefused | SqlError.SqlError, SqlClient.SqlClient>
} = Effect.fn("Transaction.submit")(function*(
  job: AnyDefinition | string,
  payload?: unknown,
  options?: SubmitOptions.SubmitOptions
) {
  const sql = yield* SqlClient.SqlClient
  const { text, values } = yield* Effect.try({
    try: () => make(job, payload, options),
    catch: (error) =>
      new SubmitRefused({ message: error instanceof Error ? error.message : "payload", field: "payload" })
  })
  const [row] = yield* Effect.mapError(sql.unsafe<{ readonly id: string }>(text, [...values]), refusalOf)
  return row?.id ?? (yield* Effect.die(new Error("deadman.submit answered no row")))
})
