/** Reads `DEADMAN_*` variables; whatever is wrong with one is said in a line that names it. */
import { Config, Effect, Option, Schema } from "effect"

/** A variable is wrong or contradicts another. One line, to be printed as it is. */
export class Misconfigured extends Schema.TaggedError<Misconfigured>()("Misconfigured", { message: Schema.String }) {}

export const wrong = (name: string, rule: string): Misconfigured => new Misconfigured({ message: `${name} ${rule}` })

/** `null` if it is not set, or to nothing: that is how compose files leave a variable out. */
export const text = (name: string): Effect.Effect<string | null, Misconfigured | Config.ConfigError> =>
  Effect.map(Config.option(Config.String(name)), (given) => Option.getOrElse(given, () => "").trim() || null)

export const whole = (
  name: string,
  otherwise: number,
  { maximum, minimum }: { readonly minimum: number; readonly maximum: number }
): Effect.Effect<number, Misconfigured | Config.ConfigError> =>
  Effect.flatMap(text(name), (given) => {
    if (given === null) {
      return Effect.succeed(otherwise)
    }
    const value = /^-?[0-9]{1,16}$/.test(given) ? Number(given) : Number.NaN
    return value >= minimum && value <= maximum
      ? Effect.succeed(value)
      : Effect.fail(wrong(name, `must be a whole number from ${minimum} to ${maximum}, not "${given.slice(0, 50)}"`))
  })

export const oneOf = <const A extends string>(
  name: string,
  values: ReadonlyArray<A>,
  otherwise: A
): Effect.Effect<A, Misconfigured | Config.ConfigError> =>
  Effect.flatMap(text(name), (given) => {
    const found = given === null ? otherwise : values.find((value) => value === given.toLowerCase())
    return found === undefined
      ? Effect.fail(wrong(name, `must be one of ${values.join(", ")}, not "${String(given).slice(0, 50)}"`))
      : Effect.succeed(found)
  })
