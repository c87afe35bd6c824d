/**
 * Requests as JSON, as HTTP takes them: what a definition says about its jobs and the payload that its Schema has
 * written included. What cannot be one is refused before anybody is asked.
 */
import { Effect, Result } from "effect"
import * as Limits from "../../domain/Job.ts"
import * as JsonText from "../../domain/JsonText.ts"
import { type Entry, type QueueChange, type ScheduleEntry, SubmitRefused } from "./Contract.ts"
import * as SubmitOptions from "./SubmitOptions.ts"

const saidMax = 300

export const refuse = (message: string, field: string | null = null) => new SubmitRefused({ message, field })

/** JSON would write `null` or `{}` for it, and nobody would notice. `before`: what it was before its `toJSON`. */
const unwritable = (value: unknown, before: unknown): string | null => {
  switch (typeof value) {
    case "number":
      return Number.isFinite(value) ? null : String(value)
    case "bigint":
      return "a BigInt"
    case "object":
      if (value === null) {
        return before instanceof Date ? "an invalid Date" : null
      }
      return value instanceof Map || value instanceof Set
        ? `a ${value instanceof Map ? "Map" : "Set"}`
        : value instanceof Promise
        ? "a Promise that was not awaited"
        : null
    default:
      return null
  }
}

/** What V8 says of a cycle is a drawing of several lines. */
const oneLine = (error: unknown): string =>
  (error instanceof Error ? error.message : String(error)).replaceAll(/\s+/g, " ").slice(0, saidMax)

const nameOf = (payload: unknown): string =>
  typeof payload === "object" ? "what has a toJSON that answers nothing" : `a ${typeof payload}`

/** The payload as it is after a trip through JSON, or what keeps it from that trip. */
const throughJson = (payload: unknown): Result.Result<unknown, SubmitRefused> => {
  let text: string | undefined
  try {
    text = JSON.stringify(payload ?? null, function(this: Readonly<Record<string, unknown>>, key, value: unknown) {
      const found = unwritable(value, this[key])
      if (found !== null) {
        throw new TypeError(`${key === "" ? "it" : key} is ${found}, which JSON cannot hold`)
      }
      return value
    })
  } catch (error) {
    return Result.fail(refuse(`the payload cannot be written as JSON: ${oneLine(error)}`, "payload"))
  }
  if (text === undefined) {
    return Result.fail(refuse(`a payload must be JSON, not ${nameOf(payload)}`, "payload"))
  }
  const fault = JsonText.check(text, "payload")
  return fault === null
    ? Result.succeed(JSON.parse(text) as unknown)
    : Result.fail(refuse(`${fault.path} ${fault.reason}`, fault.path))
}

const inParts = "is stored in one commit: submit it in parts, each of which is then stored as a whole or not at all"

const isObject = (given: unknown): given is object => typeof given === "object" && given !== null

/** What is no object says nothing: what is missing, the rules say. */
const orNone = (given: unknown): object => isObject(given) ? given : {}

/** A batch with too many jobs, before anything of it is read. */
export const checkBatch = (entries: ReadonlyArray<unknown>): Effect.Effect<void, SubmitRefused> =>
  !Array.isArray(entries)
    ? Effect.fail(refuse("submitAll takes an array: [{ job, payload, options }, …]"))
    : entries.length <= Limits.batchJobsMax
    ? Effect.void
    : Effect.fail(
      refuse(`a batch of ${entries.length} jobs is too long; one of at most ${Limits.batchJobsMax} ${inParts}`)
    )

/** A batch with too much in it. Over HTTP it is the server that counts. */
export const checkBytes = (drafts: ReadonlyArray<{ readonly payload: string }>): Effect.Effect<void, SubmitRefused> =>
  Effect.suspend(() => {
    const bytes = drafts.reduce((sum, { payload }) => sum + Buffer.byteLength(payload), 0)
    return bytes <= Limits.batchMaxBytes
      ? Effect.void
      : Effect.fail(
        refuse(`the payloads of the batch are ${bytes} bytes; one of at most ${Limits.batchMaxBytes} bytes ${inParts}`)
      )
  })

/** Of one job of several it is also said which one. */
export const at = (index: number) => ({ field, message }: SubmitRefused): SubmitRefused =>
  refuse(`[${index}]: ${message}`, field === null ? `[${index}]` : `[${index}].${field}`)

/** What is no definition, such as `undefined` where two modules import each other. */
const isJob = (job: unknown): boolean =>
  typeof job === "string" ||
  (typeof job === "object" && job !== null && (job as { readonly _tag?: unknown })._tag === "deadman/Definition")

/** These are said once, and are checked by the definition. */
const said = new Set(["type", "payload"])

/** The body of `POST /jobs`. */
export const ofJob = Effect.fnUntraced(function*(entry: Entry): Effect.fn.Return<
  Record<string, unknown>,
  SubmitRefused
> {
  const { job, options = {}, payload } = orNone(entry) as Entry
  if (!isJob(job)) {
    return yield* refuse(
      `a job must be a definition, as Job.define makes it, or the name of a type: not ${
        job === null ? job : typeof job
      }`,
      "type"
    )
  }
  const twice = Object.keys(options ?? {}).find((name) => said.has(name))
  if (twice !== undefined) {
    return yield* refuse(`${twice} is no option: it is said in front of them`, twice)
  }
  const defined = typeof job === "string" ? null : job
  const encoded = defined === null ? Result.succeed(payload) : defined.encode(payload)
  if (Result.isFailure(encoded)) {
    return yield* refuse(encoded.failure.message, encoded.failure.faults[0]?.path ?? "payload")
  }
  const json = yield* Effect.fromResult(throughJson(encoded.success))
  return SubmitOptions.bodyOf(defined?.type ?? (job as string), json, { ...defined?.defaults, ...options })
})

/** The body of `PUT /schedules/{name}`. */
export const ofSchedule = (entry: ScheduleEntry) => {
  const { job, payload, ...rest } = orNone(entry) as ScheduleEntry
  return ofJob({ job, payload, options: rest as SubmitOptions.SubmitOptions })
}

/** The body of `PUT /queues/{name}`. */
export const ofQueue = (change: QueueChange): Effect.Effect<Record<string, unknown>, SubmitRefused> =>
  isObject(change)
    ? Effect.succeed(SubmitOptions.fieldsOf(change))
    : Effect.fail(refuse("say what to change: queues.set(name, { paused, concurrency, stepMs })"))
