/** What the readers of bodies have in common: shapes that nobody vouches for, and what is said of a wrong field. */
import * as Spelling from "../../domain/Spelling.ts"
import * as ApiError from "./ApiError.ts"

export type Fields = Readonly<Record<string, unknown>>

export const isRecord = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value)

export const isWhole = (value: unknown, minimum: number, maximum: number): value is number =>
  typeof value === "number" && Number.isInteger(value) && value >= minimum && value <= maximum

export const whole = (minimum: number, maximum: number): string =>
  `must be a whole number from ${minimum} to ${maximum}`

export const wrong = (field: string, rule: string): ApiError.ApiError =>
  ApiError.make("invalid_field", `${field} ${rule}`, field)

/** A field that is none of the known ones, as much of it as is worth showing. */
export const unknownOf = (value: Fields, known: ReadonlyArray<string>): string | undefined =>
  Object.keys(value).find((field) => !known.includes(field))?.slice(0, 100)

/** `text` refuses `field`, which is none of the known ones; the one that may be meant is named behind it. */
export const notKnown = (
  text: string,
  field: string,
  known: Iterable<string>,
  prefix: string = ""
): ApiError.ApiError => {
  const near = Spelling.meant(field, Array.from(known))
  return ApiError.make("unknown_field", near === null ? text : `${text} Is ${near} meant?`, prefix + field)
}
