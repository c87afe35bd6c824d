/** Which Redis, from the environment: for every program that uses one, and for the doctor. */
import { type Config, Effect, Redacted } from "effect"
import type { Options } from "../adapters/redis/Redis.ts"
import * as Target from "../adapters/redis/Target.ts"
import * as PemFiles from "./PemFiles.ts"
import * as Variables from "./process/Variables.ts"

export type RedisConfig = Required<Pick<Options, "url" | "pem" | "prefix">>

const files: PemFiles.Names = {
  ca: "DEADMAN_REDIS_SSL_CA",
  cert: "DEADMAN_REDIS_SSL_CERT",
  key: "DEADMAN_REDIS_SSL_KEY"
}

const prefixed = "DEADMAN_REDIS_PREFIX"
const usual = "deadman:"

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
    const prefix = (yield* Variables.text(prefixed)) ?? usual
    if (text === null && prefix !== usual) {
      return yield* Variables.wrong(prefixed, "is set and DEADMAN_REDIS_URL is not: name the Redis, or leave it out")
    }
    if (!/^[A-Za-z0-9._:-]{1,100}$/.test(prefix)) {
      return yield* Variables.wrong(prefixed, "must be 1 to 100 of A-Z a-z 0-9 . _ : -: every key begins with it")
    }
    const pem = yield* PemFiles.fromEnv(files, target?.tls !== undefined, "write rediss: in DEADMAN_REDIS_URL")
    return text === null ? null : { url: Redacted.make(text), pem, prefix }
  }
)
