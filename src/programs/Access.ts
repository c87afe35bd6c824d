/** Where a process listens and who may ask: the address, and the token. */
import { Config, Effect, Option, Redacted } from "effect"
import * as Guard from "../adapters/http/Guard.ts"
import * as Variables from "./process/Variables.ts"

const tokenMinLength = 8

/** From `DEADMAN_HOST` and `DEADMAN_API_TOKEN`. Open to a network without a token, it is said in the log. */
export const fromEnv = Effect.gen(function*() {
  const host = (yield* Variables.text("DEADMAN_HOST")) ?? "127.0.0.1"
  const token = Option.getOrNull(yield* Config.option(Config.Redacted("DEADMAN_API_TOKEN")))
  // A token that was set to nothing is not one that was left out: whoever set it believes that there is one.
  if (token !== null && Redacted.value(token).length < tokenMinLength) {
    return yield* Variables.wrong("DEADMAN_API_TOKEN", `must have at least ${tokenMinLength} characters`)
  }
  if (token === null && !Guard.isLoopback(host)) {
    yield* Effect.logWarning(
      `DEADMAN_HOST is ${host} and DEADMAN_API_TOKEN is not set: whoever reaches this port can use it`
    )
  }
  return { host, token }
})
