/**
 * What all commands of `deadman` share: where the server is, how they answer, and how they fail.
 *
 * With `--json` stdout is one JSON document and nothing else, also of a failure; everything for people goes to stderr
 * then. Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 a server or service is not available.
 */
import { Config, Effect, Option, Schema } from "effect"
import { CliError, Command, Flag, TerminalCapabilities } from "effect/cli"
import { type Client, defaults, http, make } from "../adapters/http/Client.ts"
import { type ClientError, isClientError } from "../adapters/http/ClientError.ts"
import * as Table from "./cli/Table.ts"
import * as Text from "./cli/Text.ts"
import type * as Main from "./Main.ts"
import * as Variables from "./process/Variables.ts"

export const exits = { refused: 1, usage: 2, unavailable: 3 } as const

/** What a command says of itself when it cannot do what it was asked. */
export class CliFailed extends Schema.TaggedError<CliFailed>()("CliFailed", {
  code: Schema.String,
  exit: Schema.Literals([1, 2, 3]),
  message: Schema.String
}) {}

export const usage = (message: string): CliFailed => new CliFailed({ code: "usage", exit: exits.usage, message })

export const root = Command.make("deadman").pipe(
  Command.withSharedFlags({
    json: Flag.Boolean("json").pipe(
      Flag.withDescription("Answer with one JSON document on stdout"),
      Flag.withoutNegation,
      Flag.withDefault(false)
    ),
    url: Flag.String("url").pipe(
      Flag.withDescription(`The server (default: DEADMAN_URL, else ${defaults.url})`),
      Flag.optional
    )
  }),
  Command.withDescription("Runs background jobs, also when the worker that runs them is killed")
)

export const tokenOf = Effect.map(Config.option(Config.Redacted("DEADMAN_API_TOKEN")), Option.getOrUndefined)

/** Waited for: what is still in the buffer when the process ends is lost. */
const write = (text: string) =>
  Effect.callback<void>((resume) => {
    process.stdout.write(text, () => resume(Effect.void))
  })

export interface Answer {
  readonly json: boolean
  readonly look: Table.Look
  /** One line, or one document of a stream of them. */
  readonly line: (value: unknown, text: () => string) => Effect.Effect<void>
  /** The answer, once. */
  readonly show: (value: unknown, text: () => string) => Effect.Effect<void>
  /** For people, beside the answer. */
  readonly note: (text: string) => Effect.Effect<void>
}

const answerOf = Effect.fnUntraced(function*(json: boolean) {
  const { canColor } = yield* TerminalCapabilities.TerminalCapabilities
  const terminal = process.stdout.isTTY === true
  const look: Table.Look = {
    paint: canColor ? Table.coloured : Table.plain,
    width: terminal ? process.stdout.columns ?? null : null
  }
  const line: Answer["line"] = (value, text) => write(`${json ? JSON.stringify(value) : text()}\n`)
  return {
    json,
    look,
    line,
    show: (value, text) => json && terminal ? write(`${JSON.stringify(value, null, 2)}\n`) : line(value, text),
    note: (text) => Effect.sync(() => void (process.stderr.write(`${text}\n`)))
  } satisfies Answer
})

interface Told {
  readonly code: string
  readonly message: string
  readonly field?: string
  readonly state?: string
}

const snake = (tag: string): string => tag.replaceAll(/(?!^)[A-Z]/g, "_$&").toLowerCase()

const told = (error: unknown): Told => {
  if (isClientError(error)) {
    return error._tag === "InvalidRequest"
      ? { code: error.code, message: error.message, ...(error.field === null ? {} : { field: error.field }) }
      : {
        code: snake(error._tag),
        message: error.message,
        ...(error._tag === "WrongState" && error.state !== null ? { state: error.state } : {})
      }
  }
  if (error instanceof CliFailed) {
    return { code: error.code, message: error.message }
  }
  const { _tag, message } = error as { readonly _tag?: unknown; readonly message?: unknown }
  return { code: typeof _tag === "string" ? snake(_tag) : "failed", message: String(message ?? error) }
}

/** The handler of a command: what it fails with is said as JSON too, where that was asked for. */
export const answering = <A, E, R>(body: (answer: Answer) => Effect.Effect<A, E, R>) =>
  Effect.gen(function*() {
    const { json } = yield* root
    const answer = yield* answerOf(json)
    yield* body(answer).pipe(
      Effect.tapError((error) =>
        json && !CliError.isCliError(error) && !(error instanceof Unsaid)
          ? answer.show({ error: told(error) }, () => "")
          : Effect.void
      )
    )
  })

/** The answer itself says that something is wrong: only the exit code is left to say it again. */
export class Unsaid extends Schema.TaggedError<Unsaid>()("Unsaid", { exit: Schema.Literals([1, 2, 3]) }) {}

const tries = 3
const deadlineMs = 10_000

/** The handler of a command that asks a server. */
export const asking = <A, E, R>(body: (client: Client["Service"], answer: Answer) => Effect.Effect<A, E, R>) =>
  answering(Effect.fnUntraced(function*(answer: Answer) {
    const given = (yield* root).url
    const url = Option.getOrUndefined(given) ?? (yield* Variables.text("DEADMAN_URL")) ?? defaults.url
    const client = yield* make({ url, token: yield* tokenOf, tries, deadlineMs }).pipe(
      Effect.provide(http),
      Effect.mapError((error) => usage(`--url, or DEADMAN_URL, ${error.message.slice("url: ".length)}`))
    )
    return yield* body(client, answer)
  }))

/** More pages than anybody has queues or schedules. */
const pagesMax = 200

interface Page<A> {
  readonly items: ReadonlyArray<A>
  readonly next: string | null
}

export const allPages = Effect.fnUntraced(function*<A>(
  ask: (cursor: string | null) => Effect.Effect<Page<A>, ClientError>
): Effect.fn.Return<ReadonlyArray<A>, ClientError> {
  const all: Array<A> = []
  let cursor: string | null = null
  for (let page = 0; page < pagesMax; page++) {
    const { items, next }: Page<A> = yield* ask(cursor)
    all.push(...items)
    cursor = next
    if (cursor === null) {
      break
    }
  }
  return all
})

const exitOf = (error: ClientError): number => error._tag === "ServerUnavailable" ? exits.unavailable : exits.refused

const advice = (error: ClientError): string =>
  error._tag === "ServerUnavailable" && error.done === "nothing" && error.retryAfterMs === null
    ? `${error.message} (\`deadman dev\` or \`deadman server\` starts one; --url or DEADMAN_URL names another.)`
    : error._tag === "Unauthorized"
    ? `${error.message} Set DEADMAN_API_TOKEN here to the same.`
    : error.message

/** How the process ends after such a failure. */
export const endingOf = (error: unknown): Main.Ending | null => {
  if (CliError.isCliError(error)) {
    return error._tag === "ShowHelp"
      ? { code: error.errors.length > 0 ? exits.usage : 0, text: null }
      : { code: exits.usage, text: Text.clean(error.message) }
  }
  if (error instanceof Unsaid) {
    return { code: error.exit, text: null }
  }
  if (error instanceof CliFailed) {
    return { code: error.exit, text: Text.clean(error.message) }
  }
  if (isClientError(error)) {
    return { code: exitOf(error), text: Text.clean(advice(error)) }
  }
  return error instanceof Variables.Misconfigured || error instanceof Config.ConfigError
    ? { code: exits.usage, text: Text.clean(error.message) }
    : null
}
