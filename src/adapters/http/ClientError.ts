/**
 * How a call of the client can fail, as a closed list: each tag is another decision of the caller, and the message says
 * which.
 *
 * `ServerUnavailable`: perhaps later; `done` says whether it may have taken effect. `Unauthorized`, `InvalidRequest`:
 * never as it is. `NotFound`, `WrongState`, `KeyReused`: the job decides. `UnexpectedAnswer`: somebody has to look.
 */
import { Schema } from "effect"
import { because } from "../../domain/Because.ts"
import { type Code, codes } from "./ApiError.ts"

export class ServerUnavailable extends Schema.TaggedError<ServerUnavailable>()("ServerUnavailable", {
  /** `nothing`: it did not take effect, and repeating it is safe. `unknown`: it may have. */
  done: Schema.Literals(["nothing", "unknown"]),
  retryAfterMs: Schema.NullOr(Schema.Finite),
  message: Schema.String
}) {}

export class Unauthorized extends Schema.TaggedError<Unauthorized>()("Unauthorized", { message: Schema.String }) {}

export class NotFound extends Schema.TaggedError<NotFound>()("NotFound", { message: Schema.String }) {}

/** What was asked cannot be done to a thing in that state. */
export class WrongState extends Schema.TaggedError<WrongState>()("WrongState", {
  message: Schema.String,
  /** Of the job; `null` where it is about something else. */
  state: Schema.NullOr(Schema.String)
}) {}

/** The Idempotency-Key belongs to another request, or to a job that was pruned. */
export class KeyReused extends Schema.TaggedError<KeyReused>()("KeyReused", { message: Schema.String }) {}

export class InvalidRequest extends Schema.TaggedError<InvalidRequest>()("InvalidRequest", {
  code: Schema.String,
  field: Schema.NullOr(Schema.String),
  message: Schema.String
}) {}

export class UnexpectedAnswer extends Schema.TaggedError<UnexpectedAnswer>()("UnexpectedAnswer", {
  status: Schema.NullOr(Schema.Int),
  message: Schema.String
}) {}

export type ClientError =
  | ServerUnavailable
  | Unauthorized
  | NotFound
  | WrongState
  | KeyReused
  | InvalidRequest
  | UnexpectedAnswer

const tags: ReadonlySet<string> = new Set<ClientError["_tag"]>([
  "ServerUnavailable",
  "Unauthorized",
  "NotFound",
  "WrongState",
  "KeyReused",
  "InvalidRequest",
  "UnexpectedAnswer"
])

export const isClientError = (error: unknown): error is ClientError =>
  typeof error === "object" && error !== null && "_tag" in error && tags.has(String(error._tag))

/**
 * What the operating system says when nothing of the request has left: repeating it is safe, whatever it was. `bad port`
 * says fetch itself, of ports that it never asks.
 */
const unsent: ReadonlySet<string> = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "bad port"
])

const codeOf = (error: unknown, depth = 0): string | null => {
  if (typeof error !== "object" || error === null || depth > 5) {
    return null
  }
  const { cause, code } = error as { readonly cause?: unknown; readonly code?: unknown }
  // `fetch failed` says nothing; the code is what happened, a few causes further down.
  return typeof code === "string" && code !== "" ? code : codeOf(cause, depth + 1)
}

/** `fetch failed` wraps what happened; what wraps itself is let be. */
const innermost = (error: unknown): unknown => {
  let inner = error
  for (let depth = 0; depth < 5; depth++) {
    const cause = typeof inner === "object" && inner !== null && "cause" in inner ? inner.cause : undefined
    if (cause === undefined || cause === null) {
      break
    }
    inner = cause
  }
  return inner
}

/** No answer came. */
export const noAnswer = (url: string, cause: unknown): ServerUnavailable => {
  const reason = codeOf(cause) ?? because(innermost(cause))
  const done = unsent.has(reason) ? "nothing" : "unknown"
  return new ServerUnavailable({
    done,
    retryAfterMs: null,
    message: done === "nothing"
      ? `No server answers at ${url} (${reason}). Nothing was done: start one, or check the address.`
      : `The server at ${url} did not answer to the end (${reason}). It may have done it: look, or ask again.`
  })
}

export const tooLate = (url: string, ms: number): ServerUnavailable =>
  new ServerUnavailable({
    done: "unknown",
    retryAfterMs: null,
    message: `The server at ${url} did not answer within ${ms} ms. It may have done it: look, or ask again.`
  })

interface Refusal {
  readonly code: string
  readonly message: string
  readonly field: string | null
  readonly state: string | null
}

const textOr = (value: unknown): string | null => typeof value === "string" ? value : null

const refusalOf = (text: string): Refusal | null => {
  try {
    const { code, field, message, state } = (JSON.parse(text) as { error: Record<string, unknown> }).error
    return typeof code === "string" && typeof message === "string"
      ? { code, message, field: textOr(field), state: textOr(state) }
      : null
  } catch {
    return null
  }
}

/** Refused before anything was begun. */
const nothingDone: ReadonlySet<string> = new Set<Code>(["overloaded", "stopping", "key_locked"])

const retryAfterMax = 60

const waitOf = (header: string | undefined): number | null =>
  header !== undefined && /^[0-9]{1,6}$/.test(header) ? Math.min(Number(header), retryAfterMax) * 1_000 : null

export interface Answer {
  readonly url: string
  readonly status: number
  readonly text: string
  readonly retryAfter: string | undefined
}

/** An answer that is no success. A newer server may know codes that this client does not: then the status decides. */
export const fromAnswer = ({ retryAfter, status, text, url }: Answer): ClientError => {
  const refusal = refusalOf(text)
  if (refusal === null) {
    return status === 502 || status === 503 || status === 504
      ? new ServerUnavailable({
        done: "unknown",
        retryAfterMs: waitOf(retryAfter),
        message: `What stands at ${url} answered ${status}. It may have been done: look, or ask again.`
      })
      : new UnexpectedAnswer({
        status,
        message: `What answers at ${url} with ${status} does not look like a Deadman server: check the address.`
      })
  }
  const { code, field, message, state } = refusal
  const known = Object.hasOwn(codes, code) ? codes[code as Code] : status
  if (known === 401) {
    return new Unauthorized({ message: `${message} Its value is that of DEADMAN_API_TOKEN at the server.` })
  }
  if (known === 404) {
    return new NotFound({ message })
  }
  if (known === 409) {
    return new WrongState({ message, state })
  }
  if (code === "idempotency_key_reused" || known === 410) {
    return new KeyReused({ message })
  }
  if (known === 503 || known === 408) {
    return new ServerUnavailable({
      done: nothingDone.has(code) ? "nothing" : "unknown",
      retryAfterMs: waitOf(retryAfter),
      message
    })
  }
  return known >= 500
    ? new UnexpectedAnswer({ status, message })
    : new InvalidRequest({ code, field, message })
}
