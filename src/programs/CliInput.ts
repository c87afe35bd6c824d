/** What commands are given: a payload as JSON, from the command line or from stdin, and lengths of time. */
import { Effect, Option } from "effect"
import { Argument, Flag } from "effect/cli"
import type { NewJob } from "../adapters/http/Client.ts"
import { payloadMaxBytes } from "../domain/Job.ts"
import * as JsonText from "../domain/JsonText.ts"
import * as Text from "./cli/Text.ts"
import { usage } from "./CliRoot.ts"

export const payloadArgument = Argument.String("payload").pipe(
  Argument.withDescription("Any JSON; - reads it from stdin (default: null)"),
  Argument.optional
)

/** Bounded: somebody may have given us the wrong pipe. */
const stdin = Effect.callback<string, ReturnType<typeof usage>>((resume) => {
  const chunks: Array<Buffer> = []
  let size = 0
  const done = () => {
    process.stdin.off("data", take).off("end", end).off("error", done)
    process.stdin.pause()
  }
  const take = (chunk: Buffer) => {
    chunks.push(chunk)
    size += chunk.length
    if (size > payloadMaxBytes) {
      done()
      resume(Effect.fail(usage(`The payload on stdin is longer than ${payloadMaxBytes} bytes.`)))
    }
  }
  const end = () => {
    done()
    resume(Effect.succeed(Buffer.concat(chunks).toString("utf8")))
  }
  process.stdin.on("data", take).on("end", end).on("error", end)
  return Effect.sync(done)
})

export const payloadOf = Effect.fnUntraced(function*(given: Option.Option<string>) {
  if (Option.isNone(given)) {
    return {}
  }
  const text = given.value === "-" ? yield* stdin : given.value
  // Before it is parsed: a number that JavaScript cannot hold would be rounded without a word.
  const fault = JsonText.check(text)
  if (fault !== null) {
    return yield* usage(
      `The payload is not JSON that can be stored (${fault.reason}). Quote it for the shell: ` +
        `'{"to":"ada"}', or '"text"' for a text; - reads it from stdin.`
    )
  }
  return { payload: JSON.parse(text) as NonNullable<NewJob["payload"]> }
})

export const lengthFlag = (name: string, description: string) =>
  Flag.String(name).pipe(
    Flag.withDescription(`${description} (10m, 90s, 1h30m)`),
    Flag.withMetavar("length"),
    Flag.filterMap(
      (text) => Option.fromNullishOr(Text.lengthOf(text)),
      // Behind `Expected: `.
      () => "a length like 10m, 90s or 1h30m"
    )
  )
