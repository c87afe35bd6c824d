/**
 * Unique jobs: at most one of a type with the same payload, or the same of its fields, for a while.
 *
 * Who asks for it is compared with the newest job that asked for the same before. Whether that one stands in the way is
 * decided by what the newcomer asks for: how old it may be, and in which states.
 */
import { Schema } from "effect"
import { JobState } from "./JobState.ts"
import * as JsonText from "./JsonText.ts"

export const fieldMax = 16
export const UniqueField = Schema.String.check(Schema.isBetweenLength(1, 128))

/** A year. */
export const windowMaxMs = 31_622_400_000
export const WindowMs = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: windowMaxMs }))

export const OnConflict = Schema.Literals(["skip", "replace"])
export type OnConflict = typeof OnConflict.Type

/** As it stands in the API and in the tables, defaults filled in. */
export const Unique = Schema.Struct({
  /** Names of the payload's fields, in order; `null` is all of the payload. */
  fields: Schema.NullOr(Schema.Array(UniqueField)),
  /** How old a job may be that still counts; `null` is any age. */
  window_ms: Schema.NullOr(WindowMs),
  /** The states in which it counts. */
  states: Schema.Array(JobState),
  /** A job that waits is cancelled by `replace`; one that runs or is final stands. */
  on_conflict: OnConflict
})
export type Unique = typeof Unique.Type

const active: ReadonlyArray<JobState> = ["pending", "running", "failed"]

/** Without a window a job counts until it is final. Within one, a job that was done counts too, and a dead one does not. */
export const statesDefault = (windowMs: number | null): ReadonlyArray<JobState> =>
  windowMs === null ? active : [...active, "completed"]

/** Two jobs with one place are alike: the type, which fields count, and what they are. */
export const placeOf = (type: string, payload: unknown, { fields }: Pick<Unique, "fields">): string => {
  if (fields === null || typeof payload !== "object" || payload === null) {
    return `${type}:${JsonText.canonical([payload])}`
  }
  const names = fields.toSorted((a, b) => a < b ? -1 : 1)
  const chosen = Object.entries(payload).filter(([name]) => names.includes(name))
  return `${type}:${JsonText.canonical([Object.fromEntries(chosen), names])}`
}

/** Whether a job that is in the same place keeps a newcomer out. */
export const standsInWay = (
  unique: Unique,
  other: { readonly state: JobState; readonly createdAtMs: number },
  nowMs: number
): boolean =>
  unique.states.includes(other.state) && (unique.window_ms === null || other.createdAtMs > nowMs - unique.window_ms)
