/**
 * Reads what is posted to `/jobs`, strictly, and says which field is wrong.
 *
 * By hand rather than by Schema: each submit comes through here, and a Schema that names unknown fields costs several
 * times as much. The bounds are the domain's own. The text is scanned before it is parsed, since afterwards nobody could
 * tell that a number was changed.
 */
import { Schema } from "effect"
import { createHash } from "node:crypto"
import * as Backoff from "../../domain/Backoff.ts"
import {
  attemptDefault,
  attemptMax,
  delayMaxMs,
  IdempotencyKey,
  instantMaxMs,
  isSeconds,
  type JobType,
  namePattern,
  nameRule,
  payloadMaxBytes,
  priorityMax,
  type Queue,
  queueDefault,
  retainMaxMs,
  secondsRule,
  Tag,
  tagMax,
  timeoutMaxMs
} from "../../domain/Job.ts"
import * as JsonText from "../../domain/JsonText.ts"
import type { Unique } from "../../domain/Unique.ts"
import type { JobDraft } from "../../ports/Submitter.ts"
import * as ApiError from "./ApiError.ts"
import { type Fields, isRecord, isWhole, notKnown, whole, wrong as wrongAt } from "./Fields.ts"
import * as UniqueBody from "./UniqueBody.ts"

const isTag = Schema.is(Tag)
const isKey = Schema.is(IdempotencyKey)

export const keyRule = "must be 1 to 255 printable ASCII characters without spaces"
const tagsRule =
  `must be an array of at most ${tagMax} tags of 1 to 64 printable ASCII characters, without a space at ` +
  "either end"
const backoffRule = `must be {"kind":"fixed","delay_ms"} or {"kind":"exponential","base_ms","cap_ms"}, each a whole ` +
  `number from 0 to ${Backoff.delayMaxMs}`

export const fields = [
  "type",
  "payload",
  "queue",
  "priority",
  "max_attempts",
  "run_at_ms",
  "delay_ms",
  "backoff",
  "timeout_ms",
  "tags",
  "idempotency_key",
  "start_by_ms",
  "retain_ms",
  "unique"
]
const reserved = new Set(["key", "debounce"])

const wrong = (prefix: string, field: string, rule: string) => wrongAt(prefix + field, rule)

const decodeBackoff = (value: unknown): Backoff.Backoff | null => {
  if (!isRecord(value)) {
    return null
  }
  const names = Object.keys(value).sort().join()
  const isDelay = (delay: unknown): delay is number => isWhole(delay, 0, Backoff.delayMaxMs)
  const { base_ms, cap_ms, delay_ms, kind } = value
  if (kind === "fixed" && names === "delay_ms,kind" && isDelay(delay_ms)) {
    return { kind, delay_ms }
  }
  return kind === "exponential" && names === "base_ms,cap_ms,kind" && isDelay(base_ms) && isDelay(cap_ms)
    ? { kind, base_ms, cap_ms }
    : null
}

/**
 * Over the fields as sent, the key itself left out: JSON that means the same has the same fingerprint. A delay is in it and
 * not the instant that comes of it, so that a repeat is one whenever it comes; and none at all is as before there were any.
 */
export const fingerprint = (body: Fields): string => {
  const { idempotency_key: _, ...sent }: Record<string, unknown> = body
  if (sent["delay_ms"] === 0 || sent["delay_ms"] === null) {
    delete sent["delay_ms"]
  }
  return createHash("sha256").update(JsonText.canonical(sent)).digest("base64url")
}

/** What is wrong with a time, or `null`. */
const instantRule = (value: unknown): string | null =>
  !isWhole(value, 0, instantMaxMs)
    // Neither a Date nor a text: of one without a zone nobody knows when it is.
    ? `must be milliseconds since the epoch, a whole number from 0 to ${instantMaxMs}`
    : isSeconds(value)
    ? secondsRule(value)
    : null

/** One job from its parsed fields. `prefix` is where they stand, `headerKey` the Idempotency-Key header. */
export const decode = (value: unknown, prefix: string, headerKey: string | null): JobDraft | ApiError.ApiError => {
  if (!isRecord(value)) {
    return ApiError.make(
      "invalid_body",
      `${prefix === "" ? "The body" : prefix.slice(0, -1)} must be a JSON object with at least a type.`,
      prefix === "" ? undefined : prefix.slice(0, -1)
    )
  }
  let queue: Queue = queueDefault
  let priority = 0
  let maxAttempts = attemptDefault
  let backoff = Backoff.defaults
  let timeoutMs: number | null = null
  let runAtMs: number | null = null
  let tags: ReadonlyArray<string> = []
  let key = headerKey
  // Set only where they are sent: most jobs have none of them.
  const terms: { delayMs?: number; startByMs?: number | null; retainMs?: number | null; unique?: Unique | null } = {}
  for (const field of Object.keys(value)) {
    const given = value[field]
    switch (field) {
      case "type":
      case "payload":
        break
      case "queue":
        if (typeof given !== "string" || !namePattern.test(given)) return wrong(prefix, field, nameRule)
        queue = given as Queue
        break
      case "priority":
        if (!isWhole(given, -priorityMax, priorityMax)) return wrong(prefix, field, whole(-priorityMax, priorityMax))
        priority = given
        break
      case "max_attempts":
        if (!isWhole(given, 1, attemptMax)) return wrong(prefix, field, whole(1, attemptMax))
        maxAttempts = given
        break
      case "run_at_ms":
      case "start_by_ms": {
        const rule = given === null ? null : instantRule(given)
        if (rule !== null) return wrong(prefix, field, rule)
        if (field === "run_at_ms") runAtMs = given as number | null
        else terms.startByMs = given as number | null
        break
      }
      case "delay_ms":
        if (given !== null && !isWhole(given, 0, delayMaxMs)) return wrong(prefix, field, whole(0, delayMaxMs))
        if (given !== null && (value["run_at_ms"] ?? null) !== null) {
          return wrong(prefix, field, "must not be given with run_at_ms: one of the two says when the job is due")
        }
        if (given !== null && given !== 0) terms.delayMs = given
        break
      case "timeout_ms":
        if (given !== null && !isWhole(given, 1, timeoutMaxMs)) return wrong(prefix, field, whole(1, timeoutMaxMs))
        timeoutMs = given
        break
      case "backoff": {
        const decoded = decodeBackoff(given)
        if (decoded === null) return wrong(prefix, field, backoffRule)
        backoff = decoded
        break
      }
      case "tags":
        if (!Array.isArray(given) || given.length > tagMax || !given.every(isTag)) return wrong(prefix, field, tagsRule)
        tags = given
        break
      case "retain_ms":
        if (given !== null && !isWhole(given, 0, retainMaxMs)) return wrong(prefix, field, whole(0, retainMaxMs))
        terms.retainMs = given
        break
      case "unique": {
        const decoded = given === null ? null : UniqueBody.decode(given, value["payload"], `${prefix}unique`)
        if (decoded instanceof ApiError.ApiError) return decoded
        terms.unique = decoded
        break
      }
      case "idempotency_key":
        if (typeof given !== "string" || !isKey(given)) return wrong(prefix, field, keyRule)
        if (headerKey !== null && headerKey !== given) {
          return ApiError.make(
            "invalid_idempotency_key",
            "The Idempotency-Key header and the field idempotency_key differ: send one of them.",
            prefix + field
          )
        }
        key = given
        break
      default: {
        const shown = field.slice(0, 100)
        return reserved.has(field)
          ? ApiError.make("unknown_field", `${prefix}${field} is reserved for later.`, prefix + field)
          : notKnown(
            `${prefix}${shown} is not a field of a job; these are: ${fields.join(", ")}.`,
            shown,
            fields,
            prefix
          )
      }
    }
  }
  const type = value["type"]
  if (typeof type !== "string" || !namePattern.test(type)) {
    return wrong(prefix, "type", nameRule)
  }
  if (runAtMs !== null && runAtMs > (terms.startByMs ?? runAtMs)) {
    return wrong(prefix, "start_by_ms", "must not be before run_at_ms")
  }
  const payload = JSON.stringify(value["payload"] ?? null)
  // Three bytes are the most that one unit of a string takes.
  if (payload.length * 3 > payloadMaxBytes && Buffer.byteLength(payload) > payloadMaxBytes) {
    return ApiError.make("too_large", `${prefix}payload has more than ${payloadMaxBytes} bytes.`, `${prefix}payload`)
  }
  return {
    type: type as JobType,
    queue,
    payload,
    priority,
    maxAttempts,
    backoff,
    timeoutMs,
    runAtMs,
    tags,
    key: key === null ? null : { key, fingerprint: fingerprint(value) },
    resubmittedFrom: null,
    ...terms
  }
}

/** JSON text that survives storage, parsed; or what is wrong with it. `prefix` as for `decode`. */
export const parse = (text: string, prefix = ""): { readonly value: unknown } | ApiError.ApiError => {
  const refused = JsonText.check(text, "")
  if (refused === null) {
    return { value: JSON.parse(text) as unknown }
  }
  const field = (prefix === "" ? "" : prefix.slice(0, -1)) + refused.path
  const named = field.startsWith(".") ? field.slice(1) : field
  return refused.kind === "syntax"
    ? ApiError.make("invalid_json", `The body ${refused.reason}.`)
    : ApiError.make("invalid_field", `${named === "" ? "The body" : named} ${refused.reason}.`, named || undefined)
}

export const decodeText = (text: string, headerKey: string | null): JobDraft | ApiError.ApiError => {
  const parsed = parse(text)
  return "value" in parsed ? decode(parsed.value, "", headerKey) : parsed
}

/**
 * The Idempotency-Key of a request, `null` if there is none.
 *
 * The quoted form of the header (a structured-field string) and the bare one are the same key. Given twice, the values
 * must be the same.
 */
export const headerKey = (values: ReadonlyArray<string>): string | null | ApiError.ApiError => {
  const keys = new Set(values.map((value) => {
    const trimmed = value.trim()
    return /^".*"$/.test(trimmed)
      ? trimmed.slice(1, -1).replaceAll(/\\(["\\])/g, "$1")
      : trimmed
  }))
  const [key] = keys
  if (key === undefined) {
    return null
  }
  if (keys.size > 1) {
    return ApiError.make("invalid_idempotency_key", "The Idempotency-Key header was sent twice with different values.")
  }
  return isKey(key) ? key : ApiError.make("invalid_idempotency_key", `The Idempotency-Key header ${keyRule}.`)
}
