/** Where the jobs are kept, from the environment: which profile, and what its connections may be. */
import { type Config, Effect, Redacted, Result, Schema } from "effect"
import { userInfo } from "node:os"
import * as Target from "../adapters/postgres/Target.ts"
import type { Pem } from "../domain/Pem.ts"
import * as PemFiles from "./PemFiles.ts"
import * as Variables from "./process/Variables.ts"

export type Profile =
  | { readonly _tag: "embedded"; readonly dataDir: string }
  | {
    readonly _tag: "postgres"
    readonly url: Redacted.Redacted
    readonly pem: Pem
    /** Over TLS, but nobody looks at who answers. */
    readonly unverified: boolean
    /** Parameters of the address that mean nothing here. */
    readonly ignored: ReadonlyArray<string>
  }

export interface StoreConfig {
  readonly profile: Profile
  /** Connections for submits, claims and settles. */
  readonly storePool: number
  /** Connections for transactions that handlers take part in. */
  readonly handlerPool: number
  /** How long an Idempotency-Key outlives its job's end. */
  readonly keyTtlMs: number
  /** The longest that a claim, a submit or a settle may run: below one lease. */
  readonly statementMs: number
}

const poolMax = 100
/** A hundred years: a wrong unit is more likely than a longer wish. */
const keyTtlMaxMs = 3_155_760_000_000

const variable = "DEADMAN_DATABASE_URL"

/** Who runs this process; `null` where the system has no name for it, as in some containers. */
const osUser = Effect.sync(() => {
  try {
    return userInfo().username || null
  } catch {
    return null
  }
})

/** With a user, which is psql's where the address names none: `PGUSER`, else who runs this process. */
const withUser = Effect.fnUntraced(function*({ hasUser, url: text }: Target.Address) {
  if (hasUser) {
    return text
  }
  const user = (yield* Variables.text("PGUSER")) ?? (yield* osUser)
  if (user === null) {
    return yield* Variables.wrong(variable, "names no user: write postgres://user@host:5432/name")
  }
  const url = new URL(text)
  url.username = encodeURIComponent(user)
  return url.href
})

const postgres = Effect.fnUntraced(function*(
  text: string
): Effect.fn.Return<Profile, Variables.Misconfigured | Config.ConfigError> {
  const parsed = Target.parse(text)
  if (Result.isFailure(parsed)) {
    return yield* Variables.wrong(variable, parsed.failure)
  }
  const address = parsed.success
  const file = (parameter: string, path: string | null) => ({ name: `${parameter} in ${variable}`, path })
  const pem = yield* PemFiles.load(
    {
      ca: file("sslrootcert", address.files.ca),
      cert: file("sslcert", address.files.cert),
      key: file("sslkey", address.files.key)
    },
    Target.encrypts(address),
    "write sslmode=verify-full"
  )
  return {
    _tag: "postgres",
    url: Redacted.make(yield* withUser(address)),
    pem,
    unverified: Target.isUnverified(address, pem),
    ignored: address.ignored
  }
})

export const fromEnv: Effect.Effect<StoreConfig, Variables.Misconfigured | Config.ConfigError> = Effect.gen(
  function*() {
    const given = yield* Variables.text("DEADMAN_DATABASE_URL")
    const dataDir = yield* Variables.text("DEADMAN_DATA_DIR")
    if (given !== null && dataDir !== null) {
      return yield* Variables.wrong("DEADMAN_DATA_DIR", "and DEADMAN_DATABASE_URL exclude each other: set one of them")
    }
    const leaseMs = yield* Variables.whole("DEADMAN_LEASE_MS", 5_000, { minimum: 500, maximum: 3_600_000 })
    return {
      statementMs: Math.min(3_000, Math.floor(leaseMs * 0.8)),
      profile: given !== null ? yield* postgres(given) : { _tag: "embedded", dataDir: dataDir ?? ".deadman" },
      storePool: yield* Variables.whole("DEADMAN_STORE_POOL", 4, { minimum: 1, maximum: poolMax }),
      handlerPool: yield* Variables.whole("DEADMAN_HANDLER_POOL", 3, { minimum: 1, maximum: poolMax }),
      keyTtlMs: yield* Variables.whole("DEADMAN_KEY_TTL_MS", 86_400_000, { minimum: 0, maximum: keyTtlMaxMs })
    }
  }
)

/** What is said of a database that cannot be used, in one line. */
export class StoreFailed extends Schema.TaggedError<StoreFailed>()("StoreFailed", { message: Schema.String }) {}
