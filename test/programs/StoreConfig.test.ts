import { assert, it } from "@effect/vitest"
import { ConfigProvider, Effect, Redacted } from "effect"
import { userInfo } from "node:os"
import * as StoreConfig from "../../src/programs/StoreConfig.ts"

const urlOf = (env: Record<string, string>) =>
  Effect.map(
    Effect.provide(StoreConfig.fromEnv, ConfigProvider.layer(ConfigProvider.fromEnv({ env }))),
    ({ profile }) => profile._tag === "postgres" ? Redacted.value(profile.url) : null
  )

it.effect("an address without a user gets the one that psql would take", () =>
  Effect.gen(function*() {
    const address = "postgres://host:5432/name?sslmode=disable"
    const own = encodeURIComponent(userInfo().username)
    assert.strictEqual(
      yield* urlOf({ DEADMAN_DATABASE_URL: address }),
      `postgres://${own}@host:5432/name?sslmode=disable`
    )
    assert.strictEqual(
      yield* urlOf({ DEADMAN_DATABASE_URL: address, PGUSER: "a b@c" }),
      "postgres://a%20b%40c@host:5432/name?sslmode=disable"
    )
    assert.strictEqual(
      yield* urlOf({ DEADMAN_DATABASE_URL: "postgres://:secret@host/name", PGUSER: "me" }),
      "postgres://me:secret@host/name"
    )
  }))

it.effect("an address with a user stays as it is", () =>
  Effect.gen(function*() {
    for (
      const address of ["postgres://you@host/name", "postgres://host/name?user=you", "postgresql://you:x@[::1]:1/n"]
    ) {
      assert.strictEqual(yield* urlOf({ DEADMAN_DATABASE_URL: address, PGUSER: "me" }), address)
    }
  }))
