/** Which Redis, from the environment: for every program that uses one, and for the doctor. */
import { type Config, Effect, Redacted } from "effect"
import type { Options } from "../adapters/redis/Redis.ts"
import * as Target from "../adapters/redis/Target.ts"
import * as Pem from "./Pem.ts"
import * as Variables from "./process/Variables.ts"

export type RedisConfig = Required<Pick<Options, "url" | "pem">>

const files: Pem.Names = {
  ca: "DEADMAN_REDIS_SSL_CA",
  cert: "DEADMAN_REDIS_SSL_CERT",
  key: "DEADMAN_REDIS_SSL_KEY"
}

/** `null` where none is named. */
export const fromEnv: Effect.Effect<RedisConfig | null, Variables.Misconfigured | Config.ConfigError> = Effect.gen(
  function*() {
    const text = yield* Variables.text("DEADMAN_REDIS_URL")
    const target = text === null ? null : Target.parse(text)
    if (text !== null && target === null) {
      return yield* Variables.wrong(
        "DEADMAN_REDIS_URL",
        "must look like redis://user:password@host:6379/0, or rediss:// for TLS, with what is special in the password " +
          "escaped (%40 for @)"
      )
    }
    const pem = yield* Pem.fromEnv(files, target?.tls !== undefined, "write rediss: in DEADMAN_REDIS_URL")
    return text === null ? null : { url: Redacted.make(text), pem }
  }
)
