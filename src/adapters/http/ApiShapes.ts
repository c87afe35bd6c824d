/** What the groups of the API share: how they say what went wrong, and small shapes. */
import { Schema } from "effect"
import { HttpApiSchema } from "effect/http-api"
import { JobState } from "../../domain/JobState.ts"
import { type Code, codeNames, codes } from "./ApiError.ts"

const ErrorCode = Schema.Literals(codeNames)

export const ErrorBody = Schema.Struct({
  error: Schema.Struct({
    code: ErrorCode,
    message: Schema.String,
    field: Schema.optionalKey(Schema.String)
  })
}).annotate({ identifier: "Error" })

const errorsWith = <Fields extends Schema.Struct.Fields>(status: number, fields: Fields) => {
  const here = codeNames.filter((code) => codes[code] === status)
  return Schema.Struct({
    error: Schema.Struct({
      code: Schema.Literals(here as [Code, ...Array<Code>]),
      message: Schema.String,
      field: Schema.optionalKey(Schema.String),
      ...fields
    })
  }).annotate({ identifier: `Error${status}`, description: here.join(", ") }).pipe(HttpApiSchema.status(status))
}

const errorsAt = (status: number) => errorsWith(status, {})

export const Error400 = errorsAt(400)
export const Error401 = errorsAt(401)
export const Error403 = errorsAt(403)
export const Error404 = errorsAt(404)
export const Error405 = errorsAt(405)
export const Error408 = errorsAt(408)
export const Error409 = errorsWith(409, {
  state: Schema.optionalKey(JobState).annotate({ description: "Of the job to which it cannot be done" })
})
export const Error410 = errorsAt(410)
export const Error413 = errorsAt(413)
export const Error415 = errorsAt(415)
export const Error422 = errorsAt(422)
export const Error431 = errorsAt(431)
export const Error500 = errorsAt(500)
export const Error503 = errorsAt(503)

/** What any route may answer. */
export const always = [
  Error400,
  Error401,
  Error403,
  Error404,
  Error405,
  Error408,
  Error431,
  Error500,
  Error503
] as const
export const submitErrors = [...always, Error410, Error413, Error415, Error422] as const
export const controlErrors = [...always, Error409] as const

export const Count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))
