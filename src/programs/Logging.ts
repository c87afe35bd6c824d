/**
 * How a process logs: one line per event, whatever is in it.
 *
 * For people on a terminal, as JSON otherwise. Line breaks in text that came from users are escaped, so that nobody can
 * forge a line.
 */
import { Cause, Effect, Layer, Logger, References } from "effect"
import * as Variables from "./process/Variables.ts"

const levels = { debug: "Debug", info: "Info", warn: "Warn", error: "Error", none: "None" } as const
const levelNames = Object.keys(levels) as ReadonlyArray<keyof typeof levels>
const partMax = 4_000

export type Format = "pretty" | "json"

export const formatFromEnv = Effect.suspend(() =>
  Variables.oneOf<Format>("DEADMAN_LOG_FORMAT", ["pretty", "json"], process.stdout.isTTY ? "pretty" : "json")
)

const shorten = (text: string): string => text.length > partMax ? `${text.slice(0, partMax)}…` : text

const errorText = (error: Error): string => shorten(error.message === "" ? error.name : error.message)

/** A failure that was foreseen is its message; a defect is worth its stack. */
const causeText = (cause: Cause.Cause<unknown>): string => {
  const error = Cause.squash(cause)
  return Cause.hasDies(cause) || !(error instanceof Error) ? shorten(Cause.pretty(cause)) : errorText(error)
}

const partOf = (part: unknown): unknown => {
  if (typeof part === "string" || typeof part === "number" || typeof part === "boolean" || part === null) {
    return typeof part === "string" ? shorten(part) : part
  }
  if (Cause.isCause(part)) {
    return causeText(part)
  }
  if (part instanceof Error) {
    return errorText(part)
  }
  try {
    return shorten(JSON.stringify(part) ?? String(part))
  } catch {
    return "[something that is no JSON]"
  }
}

/** Objects stay objects where they are small, so that JSON lines can be searched. */
const shown = (value: unknown): unknown => {
  const text = partOf(value)
  return typeof value === "object" && typeof text === "string" && !text.endsWith("…") && /^[[{]/.test(text)
    ? JSON.parse(text)
    : text
}

interface Event {
  readonly message: string
  readonly rest: Readonly<Record<string, unknown>>
}

const eventOf = (options: Logger.Options<unknown>): Event => {
  const given: ReadonlyArray<unknown> = Array.isArray(options.message) ? options.message : [options.message]
  const [said, error, ...others] = given
  // An error behind a message is its cause; alone it is the message.
  const isBehind = error instanceof Error && others.length === 0 && options.cause.reasons.length === 0
  const parts = (isBehind ? [said] : given).map(partOf)
  const annotations = options.fiber.getRef(References.CurrentLogAnnotations)
  const rest: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(annotations)) {
    rest[name] = shown(value)
  }
  if (options.cause.reasons.length > 0) {
    rest["cause"] = causeText(options.cause)
  } else if (isBehind) {
    rest["cause"] = errorText(error)
  }
  return { message: parts.map(String).join(" "), rest }
}

const oneLine = (text: string): string =>
  // oxlint-disable-next-line no-control-regex -- control characters are what must not reach a terminal
  text.replaceAll("\n", "\\n").replaceAll(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g, "·")

/** What JSON leaves as it is, and a terminal takes for a command or a reader for the end of a line. */
const escaped = (line: string): string =>
  line.replaceAll(
    /[\u007f-\u009f\u2028\u2029]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`
  )

type Write = (line: string) => void

const json = (write: Write) =>
  Logger.make((options) => {
    const { message, rest } = eventOf(options)
    write(escaped(
      JSON.stringify({ at: options.date.toISOString(), level: options.logLevel.toLowerCase(), message, ...rest })
    ))
  })

const pretty = (write: Write) =>
  Logger.make((options) => {
    const { message, rest } = eventOf(options)
    const details = Object.entries(rest).map(([name, value]) =>
      ` ${name}=${typeof value === "object" ? JSON.stringify(value) : String(value)}`
    ).join("")
    const level = options.logLevel.toUpperCase().padEnd(5)
    write(oneLine(`${options.date.toISOString().slice(11, 23)} ${level} ${message}${details}`))
  })

/** A reader that went away (`node dist/server.js | head`) is no reason to stop working. */
const goOn = () => {}

/** To `stream`, from `DEADMAN_LOG_LEVEL` and `DEADMAN_LOG_FORMAT`. */
export const layer = (stream: NodeJS.WriteStream) =>
  Layer.unwrap(Effect.gen(function*() {
    const level = yield* Variables.oneOf("DEADMAN_LOG_LEVEL", levelNames, "info")
    const format = yield* formatFromEnv
    // Once for a stream, however often a program starts Deadman.
    if (!stream.listeners("error").includes(goOn)) {
      stream.on("error", goOn)
    }
    const write: Write = (line) => void stream.write(`${line}\n`)
    return Layer.mergeAll(
      Logger.layer([format === "json" ? json(write) : pretty(write)]),
      Layer.succeed(References.MinimumLogLevel, levels[level])
    )
  }))
