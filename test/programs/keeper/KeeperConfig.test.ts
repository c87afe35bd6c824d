import { assert, it } from "@effect/vitest"
import { ConfigProvider, Duration, Effect } from "effect"
import * as KeeperConfig from "../../../src/programs/keeper/KeeperConfig.ts"

const read = (env: Record<string, string>) =>
  Effect.provide(KeeperConfig.fromEnv, ConfigProvider.layer(ConfigProvider.fromEnv({ env })))

it.effect("reads its variables, and has defaults for what is not set", () =>
  Effect.gen(function*() {
    assert.deepStrictEqual(yield* read({ DEADMAN_RETAIN_DEAD_MS: "" }), KeeperConfig.defaults)
    const given = yield* read({ DEADMAN_RETAIN_COMPLETED_MS: "60000", DEADMAN_MAX_LEASE_LOSSES: "9" })
    assert.strictEqual(Duration.toMillis(given.retainCompleted), 60_000)
    assert.strictEqual(given.lossesMax, 9)
  }))

it.effect.each(
  [
    ["DEADMAN_RETAIN_COMPLETED_MS", "7d", "from 60000 to 3155760000000"],
    ["DEADMAN_RETAIN_DEAD_MS", "59999", "from 60000 to 3155760000000"],
    ["DEADMAN_MAX_LEASE_LOSSES", "1.5", "from 1 to 1000"]
  ] as const
)("refuses %s=%s in words that help", ([name, value, bounds]) =>
  Effect.gen(function*() {
    const { message } = yield* Effect.flip(read({ [name]: value }))
    assert.strictEqual(message, `${name} must be a whole number ${bounds}, not "${value}"`)
  }))
