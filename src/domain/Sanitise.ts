/**
 * Makes whatever a handler returned or threw fit to be stored. It never fails, and what it gives is bounded.
 *
 * A job whose result cannot be written down would be run again for ever, so every oddity of JavaScript has an answer
 * here: cycles, BigInt, getters and `toJSON` that throw, proxies, NUL and half surrogates, megabytes. `JsonText.check`
 * accepts every text that comes out.
 */
import { Cause } from "effect"
import type { Failure } from "./Outcome.ts"

/** Bytes of one result as JSON text. */
export const resultMaxBytes = 262_144
export const nameMax = 100
export const messageMax = 2_000

const depthMax = 64
/** Values of one result: what bounds the work, since a getter may answer with a new object each time. */
const valuesMax = 50_000
const stringMax = 65_536
const keyMax = 256
/** Characters of all strings together: written out as JSON they are one string, and those have an end in JavaScript. */
const charactersMax = 16_777_216

/** Without NUL and without half surrogates, which a jsonb column refuses. */
const storable = (text: string): string => text.replaceAll("\u0000", "\ufffd").replaceAll(/\p{Surrogate}/gu, "\ufffd")

const cut = (text: string, max: number): string => {
  if (text.length <= max) {
    return storable(text)
  }
  const marker = `… (${text.length} characters)`
  return storable(text.slice(0, max - marker.length)) + marker
}

/** One line of a log: text of any kind, cut to `max` characters. */
export const line = (value: unknown, max: number): string =>
  cut(typeof value === "string" ? value : attempt(() => String(value), "[unreadable]"), max)

/** What `read` answers, or `fallback` where it throws. */
const attempt = <A, B>(read: () => A, fallback: B): A | B => {
  try {
    return read()
  } catch {
    return fallback
  }
}

interface Work {
  readonly above: Set<object>
  values: number
  characters: number
}

const isExhausted = (work: Work): boolean => work.values > valuesMax || work.characters > charactersMax

const text = (value: string, work: Work): string => {
  const shown = cut(value, stringMax)
  work.characters += shown.length
  return shown
}

const members = (entries: Iterable<readonly [unknown, () => unknown]>, work: Work): object => {
  // Without a prototype, so that a member called `__proto__` is a member like any other.
  const out: Record<string, unknown> = Object.create(null)
  for (const [name, read] of entries) {
    if (isExhausted(work)) break
    const value = attempt(read, "[unreadable]")
    if (value !== undefined) {
      out[cut(String(name), keyMax)] = plain(value, work)
    }
  }
  return out
}

const items = (values: Iterable<unknown>, work: Work): ReadonlyArray<unknown> => {
  const out: Array<unknown> = []
  for (const value of values) {
    if (isExhausted(work)) break
    out.push(plain(value, work))
  }
  return out
}

const plainObject = (value: object, work: Work, asked: boolean): unknown => {
  if (value instanceof Date) {
    return Number.isNaN(value.getTime()) ? null : value.toISOString()
  }
  if (ArrayBuffer.isView(value)) {
    return `[${value.byteLength} bytes]`
  }
  if (!asked && "toJSON" in value && typeof value.toJSON === "function") {
    const shown: unknown = value.toJSON()
    return typeof shown === "object" && shown !== null ? plain(shown, work, true) : plain(shown, work)
  }
  if (value instanceof Error) {
    const shown = failure(value)
    work.characters += shown.name.length + shown.message.length
    return { ...shown }
  }
  if (Array.isArray(value)) {
    return items(value, work)
  }
  if (value instanceof Set) {
    return items(value, work)
  }
  if (value instanceof Map) {
    const entries = [...value.entries()]
    return entries.every(([key]) => typeof key === "string")
      ? members(entries.map(([key, member]) => [key, () => member]), work)
      : items(entries, work)
  }
  return members(Object.keys(value).map((key) => [key, () => Reflect.get(value, key)]), work)
}

const plain = (value: unknown, work: Work, asked = false): unknown => {
  work.values += 1
  switch (typeof value) {
    case "string":
      return text(value, work)
    case "number":
      return Number.isFinite(value) ? value : null
    case "boolean":
      return value
    case "bigint":
      return text(String(value), work)
    case "undefined":
      return null
    case "symbol":
      return cut(String(value), keyMax)
    case "function":
      return "[function]"
    case "object": {
      if (value === null) {
        return null
      }
      if (!asked && work.above.has(value)) {
        return "[circular]"
      }
      if (work.above.size >= depthMax || isExhausted(work)) {
        return "[too deep]"
      }
      work.above.add(value)
      const shown = attempt(() => plainObject(value, work, asked), "[unreadable]")
      work.above.delete(value)
      return shown
    }
  }
}

/** The value as JSON text, or `null` for nothing at all. */
export const result = (value: unknown, maxBytes: number = resultMaxBytes): string | null => {
  if (value === undefined) {
    return null
  }
  const work: Work = { above: new Set(), values: 0, characters: 0 }
  const shown = plain(value, work)
  if (work.values > valuesMax) {
    return JSON.stringify({ too_large: true, values_max: valuesMax })
  }
  if (work.characters > charactersMax) {
    return JSON.stringify({ too_large: true, bytes_max: maxBytes })
  }
  const written = JSON.stringify(shown) ?? "null"
  const bytes = bytesOf(written)
  return bytes > maxBytes ? JSON.stringify({ too_large: true, bytes, bytes_max: maxBytes }) : written
}

/** As UTF-8; the text has no half surrogates. */
const bytesOf = (text: string): number => {
  let bytes = 0
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index)
    // Either half of a pair is two of its four bytes.
    bytes += unit < 0x80 ? 1 : unit < 0x800 || (unit >= 0xd800 && unit <= 0xdfff) ? 2 : 3
  }
  return bytes
}

const textOf = (error: object, field: string): string | null => {
  const value: unknown = attempt(() => Reflect.get(error, field), null)
  return typeof value === "string" && value !== "" ? value : null
}

const nameDefault = "Error"
/** `new Error()`, and what else says nothing. */
const messageDefault = "no message"

/** `fetch failed` says nothing without the cause below it; what lies deeper than this seldom says more. */
const causesMax = 3
const causeMax = 500

/** What an `AggregateError` without words of its own gathers, such as one refusal per address. */
const innerOf = (error: object): string | null =>
  attempt(() => {
    const inner: unknown = error instanceof AggregateError ? error.errors[0] : null
    return typeof inner === "object" && inner !== null ? textOf(inner, "message") : null
  }, null)

const wordsOf = (cause: unknown): string | null => {
  if (typeof cause === "string") {
    return cause
  }
  return typeof cause !== "object" || cause === null
    ? null
    : textOf(cause, "message") ?? innerOf(cause) ?? textOf(cause, "code")
}

/** `message`, and what lies below `error`: unless it is said already, as by errors that quote their cause. */
const withCauses = (message: string, error: object): string => {
  let said = message
  let at: unknown = error
  for (let depth = 0; depth < causesMax && typeof at === "object" && at !== null; depth++) {
    const from = at
    at = attempt((): unknown => Reflect.get(from, "cause"), null)
    const words = cut(wordsOf(at) ?? "", causeMax)
    if (said.length < messageMax && !said.includes(words)) {
      said = said === "" ? words : `${said}: ${words}`
    }
  }
  return said
}

/** Tagged errors say what they have to say in their fields. */
const fieldsOf = (error: object): string | null => {
  const fields = result({ ...error })
  return fields === "{}" ? null : fields
}

const failureOf = (error: unknown): Failure => {
  if (typeof error !== "object" || error === null) {
    return { name: nameDefault, message: String(error) }
  }
  if (Cause.isCause(error)) {
    return failureOf(Cause.squash(error))
  }
  const words = textOf(error, "message") ?? innerOf(error)
  const fields = words === null ? fieldsOf(error) : null
  return {
    name: textOf(error, "_tag") ?? textOf(error, "name") ?? nameDefault,
    message: fields ?? (withCauses(words ?? "", error) || messageDefault)
  }
}

/** Why a run failed, from anything that can be thrown. */
export const failure = (error: unknown): Failure => {
  const { message, name } = attempt(() => failureOf(error), { name: nameDefault, message: "[unreadable]" })
  return { name: cut(name, nameMax), message: cut(message, messageMax) }
}
