/** Reads the field `unique` of what is posted, as strictly as `SubmitBody.ts` the rest, and fills in its defaults. */
import { type JobState, jobStates } from "../../domain/JobState.ts"
import { fieldMax, statesDefault, type Unique, windowMaxMs } from "../../domain/Unique.ts"
import type * as ApiError from "./ApiError.ts"
import { isRecord, isWhole, notKnown, unknownOf, whole, wrong } from "./Fields.ts"

const known = ["fields", "window_ms", "states", "on_conflict"]
const fieldLengthMax = 128

const isDifferent = (values: ReadonlyArray<unknown>): boolean => new Set(values).size === values.length

const isFieldList = (value: unknown): value is ReadonlyArray<string> =>
  Array.isArray(value) && value.length > 0 && value.length <= fieldMax && isDifferent(value) &&
  value.every((name) => typeof name === "string" && name.length > 0 && name.length <= fieldLengthMax)

const isStateList = (value: unknown): value is ReadonlyArray<JobState> =>
  Array.isArray(value) && value.length > 0 && isDifferent(value) &&
  value.every((state) => (jobStates as ReadonlyArray<unknown>).includes(state))

/** `path` is where it stands. */
export const decode = (value: unknown, payload: unknown, path: string): Unique | ApiError.ApiError => {
  if (!isRecord(value)) {
    return wrong(path, `must be an object, with any of ${known.join(", ")}`)
  }
  const strange = unknownOf(value, known)
  if (strange !== undefined) {
    return notKnown(
      `${path}.${strange} is not a field of unique; these are: ${known.join(", ")}.`,
      strange,
      known,
      `${path}.`
    )
  }
  const fields = value["fields"] ?? null
  if (fields !== null && !isFieldList(fields)) {
    return wrong(
      `${path}.fields`,
      `must be an array of 1 to ${fieldMax} different names of 1 to ${fieldLengthMax} characters`
    )
  }
  if (fields !== null && !isRecord(payload)) {
    return wrong(`${path}.fields`, "needs a payload that is an object")
  }
  const windowMs = value["window_ms"] ?? null
  if (windowMs !== null && !isWhole(windowMs, 1, windowMaxMs)) {
    return wrong(`${path}.window_ms`, whole(1, windowMaxMs))
  }
  const states = value["states"] ?? (Object.hasOwn(value, "states") ? null : statesDefault(windowMs))
  if (!isStateList(states)) {
    return wrong(`${path}.states`, `must be an array of different states of ${jobStates.join(", ")}`)
  }
  const onConflict = value["on_conflict"] ?? (Object.hasOwn(value, "on_conflict") ? null : "skip")
  return onConflict === "skip" || onConflict === "replace"
    ? { fields, window_ms: windowMs, states, on_conflict: onConflict }
    : wrong(`${path}.on_conflict`, "must be skip or replace")
}
