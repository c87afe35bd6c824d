/**
 * Requests as JSON, as HTTP takes them: what a definition says about its jobs and the payload that its Schema has
 * written included. What cannot be one is refused before anybody is asked.
 */
import { Effect, Result } from "effect"
import * as JsonText from "../../domain/JsonText.ts"
import { type Entry, type ScheduleEntry, SubmitRefused } from "./Contract.ts"
import * as SubmitOptions from "./SubmitOptions.ts"

export const refuse = (message: string, field: string | null = null) => new SubmitRefused({ message, field })

/** JSON would write `null` for it, and nobody would notice. */
const unwritable = (value: unknown): string | null =>
  typeof value === "number" && !Number.isFinite(value) ? String(value) : typeof value === "bigint" ? "a BigInt" : null

/** The payload as it is after a trip through JSON, or what keeps it from that trip. */
const throughJson = (payload: unknown): Result.Result<unknown, SubmitRefused> => {
  let text: string | undefined
  try {
    text = JSON.stringify(payload ?? null, (key, value: unknown) => {
      const found = unwritable(value)
      if (found !== null) {
        throw new TypeError(`${key === "" ? "it" : key} is ${found}, which JSON cannot hold`)
      }
      return value
    })
  } catch (error) {
    return Result.fail(refuse(`the payload cannot be written as JSON: ${(error as Error).message}`, "payload"))
  }
  if (text === undefined) {
    return Result.fail(refuse(`a payload must be JSON, not a ${typeof payload}`, "payload"))
  }
  const fault = JsonText.check(text, "payload")
  return fault === null
    ? Result.succeed(JSON.parse(text) as unknown)
    : Result.fail(refuse(`${fault.path} ${fault.reason}`, fault.path))
}

/** The body of `POST /jobs`. */
export const ofJob = Effect.fnUntraced(function*({ job, options = {}, payload }: Entry): Effect.fn.Return<
  Record<string, unknown>,
  SubmitRefused
> {
  const defined = typeof job === "string" ? null : job
  const encoded = defined === null ? Result.succeed(payload) : defined.encode(payload)
  if (Result.isFailure(encoded)) {
    return yield* refuse(encoded.failure.message, encoded.failure.faults[0]?.path ?? "payload")
  }
  const json = yield* Effect.fromResult(throughJson(encoded.success))
  return SubmitOptions.bodyOf(defined?.type ?? (job as string), json, { ...defined?.defaults, ...options })
})

/** The body of `PUT /schedules/{name}`. */
export const ofSchedule = ({ job, payload, ...rest }: ScheduleEntry) =>
  ofJob({ job, payload, options: rest as SubmitOptions.SubmitOptions })
