/**
 * Runs a program until it is told to stop. Being told to stop is success.
 *
 * The first signal closes the program's scope, which is the shutdown; the second one exits at once. A start that fails
 * says why in one line on stderr.
 */
import { Cause, Config, Effect, Exit, Layer } from "effect"
import * as Logging from "./Logging.ts"

const numbers: Readonly<Record<string, number>> = { SIGINT: 2, SIGTERM: 15 }

const lineMax = 1_000

/** What stopped the program, in one line for people. */
export const describe = (cause: Cause.Cause<unknown>): string => {
  const error = Cause.squash(cause)
  const text = error instanceof Config.ConfigError
    ? `The configuration is wrong: ${error.message}`
    : error instanceof Error
    ? error.message === "" ? error.name : error.message
    : String(error)
  return text.replaceAll(/\s*\n\s*/g, " ").slice(0, lineMax)
}

export const run = <A, E>(program: Layer.Layer<A, E>): void => {
  const fiber = Effect.runFork(
    Effect.gen(function*() {
      // Nothing else may hold the process up while it waits for its first connection.
      yield* Effect.forkChild(Effect.forever(Effect.sleep("1 hour")))
      return yield* Layer.launch(program)
    }).pipe(Effect.provide(Logging.layer))
  )
  let told = false
  const onSignal = (signal: NodeJS.Signals) => {
    if (told) {
      process.exit(128 + (numbers[signal] ?? 0))
    }
    told = true
    fiber.interruptUnsafe()
  }
  process.on("SIGINT", onSignal)
  process.on("SIGTERM", onSignal)
  // A promise that a handler left behind must not take down the jobs of others.
  process.on("unhandledRejection", (reason) => {
    process.stderr.write(`A rejected promise was handled by nobody: ${describe(Cause.die(reason))}\n`)
  })
  fiber.addObserver((exit) => {
    if (Exit.isSuccess(exit) || (told && Cause.hasInterruptsOnly(exit.cause))) {
      process.exit(0)
    }
    process.stderr.write(`${describe(exit.cause)}\n`)
    if (Cause.hasDies(exit.cause)) {
      process.stderr.write(`${Cause.pretty(exit.cause)}\n`)
    }
    process.exit(1)
  })
}
