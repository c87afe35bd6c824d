/**
 * What may be said about a job when it is submitted, as TypeScript writes it, and as the API does.
 *
 * One place decides what a job may be: what the client takes is turned into the body that HTTP takes, and is read as
 * that is. So one Idempotency-Key means the same request whichever way it came in.
 */
import type { JobState } from "../../domain/JobState.ts"
import * as Casing from "./Casing.ts"

/**
 * How long a failed job waits: drawn from zero up to `delayMs` after each failure, or up to `baseMs`, twice that,
 * four times that, and so on until `capMs`. Drawn, so that jobs that failed together do not come back together.
 */
export type Backoff =
  | { readonly kind: "fixed"; readonly delayMs: number }
  | { readonly kind: "exponential"; readonly baseMs: number; readonly capMs: number }

/** When a job is taken for one that is there already. */
export interface Unique {
  /** The top-level fields of the payload that are compared; absent: all of it. */
  readonly fields?: ReadonlyArray<string> | undefined
  /** For how long after its submit a job stands in the way. */
  readonly windowMs?: number | undefined
  /** In which states a job stands in the way: pending, running or failed if nothing is said, completed too in a window. */
  readonly states?: ReadonlyArray<JobState> | undefined
  /** `skip` (the default) answers the job that is there; `replace` cancels it, if it does not run yet. */
  readonly onConflict?: "skip" | "replace" | undefined
}

export interface SubmitOptions {
  /** Absent: `default`. */
  readonly queue?: string | undefined
  /** From -1000 to 1000, higher first; absent: 0. */
  readonly priority?: number | undefined
  /** Runs that may end in failure, the first included; absent: 10. */
  readonly maxAttempts?: number | undefined
  /** Absent: exponential, from a second to 15 minutes. Ten attempts are over after some four minutes then. */
  readonly backoff?: Backoff | undefined
  /** An attempt that takes longer is interrupted, and has failed, a week at most; absent: as long as it likes. */
  readonly timeoutMs?: number | undefined
  /** When the job is due: an instant, in milliseconds since the epoch by the database's clock; absent: now. */
  readonly runAtMs?: number | undefined
  /** In place of `runAtMs`: so long after it is stored the job is due, whatever clock the caller has. */
  readonly delayMs?: number | undefined
  /** An instant, as `runAtMs`: not started by then, the job is dead as `expired`. */
  readonly startByMs?: number | undefined
  /** How long the job is kept after its end; absent: as configured, 7 days if it completed and 30 if it is dead. */
  readonly retainMs?: number | undefined
  /** To find jobs by: at most 32, of 1 to 64 printable ASCII characters. */
  readonly tags?: ReadonlyArray<string> | undefined
  /**
   * One key is one job: a submit that repeats it answers the job that is there, until a day (`keyTtlMs`) after
   * its end. The same key with another request is refused. 1 to 255 printable ASCII characters without spaces.
   */
  readonly idempotencyKey?: string | undefined
  /** At most one job of this type with the same payload, while the other one has not ended; `{}` for the defaults. */
  readonly unique?: Unique | undefined
}

/** The same as it is stored, and as HTTP takes it. What is no object is left for the check to refuse. */
const inside = (value: unknown): unknown =>
  typeof value === "object" && value !== null ? Casing.snakeFields(value) : value

/** A field whose value has fields of its own. */
const nested = new Set(["backoff", "unique"])

/** Options as the fields of HTTP. */
export const fieldsOf = (options: object): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(Casing.snakeFields(options)).map(([name, value]) => [name, nested.has(name) ? inside(value) : value])
  )

/** The body of the same request over HTTP. */
export const bodyOf = (type: string, payload: unknown, options: SubmitOptions): Record<string, unknown> => ({
  type,
  payload,
  ...fieldsOf(options)
})

/** A message about that body, in the words of these options: `max_attempts must be …` is about `maxAttempts`. */
export const inOurWords = (
  message: string,
  field: string | null | undefined
): { message: string; field: string | null } =>
  field === undefined || field === null || field.startsWith("payload")
    ? { message, field: field ?? null }
    : { message: Casing.camel(message), field: Casing.camel(field) }
