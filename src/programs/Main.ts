/**
 * Runs a program until it ends or is told to stop.
 *
 * The first signal closes the program's scope, which is the shutdown; the second one exits at once. A start that fails
 * says why in one line on stderr.
 */
import { Cause, Config, ConfigProvider, Effect, Exit, Layer } from "effect"
import * as Logging from "./Logging.ts"
import * as Strangers from "./Strangers.ts"

const numbers: Readonly<Record<string, number>> = { SIGINT: 2, SIGTERM: 15 }

const lineMax = 1_000

/** `… at ["DEADMAN"]["MAX_LEASE_LOSSES"]` names a variable, in the words of a library. */
const variableOf = (message: string): string => {
  const [, what, path] = /^SchemaError\(([\s\S]*?)\s+at ((?:\["[A-Z_]+"\])+)\)$/.exec(message) ?? []
  return what === undefined || path === undefined
    ? `The configuration is wrong: ${message}`
    : `${path.slice(2, -2).replaceAll("\"][\"", "_")} is wrong: ${what}`
}

/** What stopped the program, in one line for people. */
export const describe = (cause: Cause.Cause<unknown>): string => {
  const error = Cause.squash(cause)
  const text = error instanceof Config.ConfigError
    ? variableOf(error.message)
    : error instanceof Error
    ? error.message === "" ? error.name : error.message
    : String(error)
  return text.replaceAll(/\s*\n\s*/g, " ").slice(0, lineMax)
}

/** Ctrl-C under npm arrives twice, from the terminal and from npm: less apart than a person's second thought. */
const echoMs = 250

/** How a program that failed ends, where it has more to say than 1. */
export interface Ending {
  readonly code: number
  /** `null` where all was said before. */
  readonly text: string | null
}

type EndingOf = (error: unknown) => Ending | null

/** Ends the process as its program ended. */
export const end = (exit: Exit.Exit<unknown, unknown>, endingOf: EndingOf): void => {
  if (Exit.isSuccess(exit)) {
    process.exit(0)
  }
  const ending = Cause.hasDies(exit.cause) ? null : endingOf(Cause.squash(exit.cause))
  const text = ending === null ? describe(exit.cause) : ending.text
  process.stderr.write(text === null ? "" : `${text}\n`)
  if (Cause.hasDies(exit.cause)) {
    process.stderr.write(`${Cause.pretty(exit.cause)}\n`)
  }
  process.exit(ending?.code ?? 1)
}

/** `endless`: it runs until it is told to stop, and so being told is success. */
const start = <E>(
  program: Effect.Effect<unknown, E>,
  { endingOf = () => null, endless }: { readonly endless: boolean; readonly endingOf?: EndingOf | undefined }
): void => {
  // The environment as it is now: Effect's own provider keeps what it found when it was asked first, and `deadman dev` has
  // been asked for its port before it changes what the server is to find.
  const asItIs = ConfigProvider.layer(ConfigProvider.fromEnv())
  const fiber = Effect.runFork(Effect.provide(program, asItIs))
  let told: number | null = null
  let code = 0
  const onSignal = (signal: NodeJS.Signals) => {
    if (told !== null && performance.now() - told > echoMs) {
      process.exit(128 + (numbers[signal] ?? 0))
    }
    if (told === null) {
      told = performance.now()
      code = endless ? 0 : 128 + (numbers[signal] ?? 0)
      fiber.interruptUnsafe()
    }
  }
  process.on("SIGINT", onSignal)
  process.on("SIGTERM", onSignal)
  fiber.addObserver((exit) => {
    if (told !== null && Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause)) {
      process.exit(code)
    }
    end(exit, endingOf)
  })
}

const whenTold = (line: string) => <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.onExit(
    self,
    (exit) => Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause) ? Effect.logInfo(line) : Effect.void
  )

/** As `Layer.launch`, and the log says that it was told to stop, whatever runs, and at the end that nothing is open. */
const launched = <A, E>(program: Layer.Layer<A, E>): Effect.Effect<never, E> =>
  Layer.build(program).pipe(
    Effect.andThen(Effect.never),
    whenTold("told to stop"),
    Effect.scoped,
    whenTold("stopped")
  )

/** Runs for ever, until it is told to stop. */
export const run = <A, E>(program: Layer.Layer<A, E>): void =>
  start(
    Effect.gen(function*() {
      // Nothing else may hold the process up while it waits for its first connection.
      yield* Effect.forkChild(Effect.forever(Effect.sleep("1 hour")))
      yield* Strangers.say
      return yield* launched(program)
    }).pipe(Effect.provide(Logging.layer(process.stdout))),
    { endless: true }
  )

/**
 * Runs a program that ends by itself; stopped before, it has failed. What it answers is on stdout, what it logs on
 * stderr.
 */
export const once = <A, E>(program: Effect.Effect<A, E>, endingOf?: EndingOf): void =>
  start(Effect.andThen(Strangers.say, program).pipe(Effect.provide(Logging.layer(process.stderr))), {
    endless: false,
    endingOf
  })
