import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Duration, Effect } from "effect"
import * as WorkerConfig from "../../../src/programs/worker/WorkerConfig.ts"

const read = (env: Record<string, string>) =>
  Effect.provide(
    WorkerConfig.fromEnv({ role: "worker", version: "1.2.3" }),
    ConfigProvider.layer(ConfigProvider.fromEnv({ env }))
  )

describe("WorkerConfig", () => {
  it.effect("has working defaults, and a name of its own per boot", () =>
    Effect.gen(function*() {
      const one = yield* read({})
      const two = yield* read({ DEADMAN_WORKER_NAME: "mill" })
      const three = yield* read({ DEADMAN_WORKER_NAME: "mill" })
      assert.strictEqual(one.slots, 4)
      assert.strictEqual(Duration.toMillis(one.lease), 5_000)
      assert.strictEqual(Duration.toMillis(one.drain), 10_000)
      assert.match(one.name, /^worker-[0-9a-f]{8}$/)
      assert.match(two.name, /^mill-[0-9a-f]{8}$/)
      assert.notStrictEqual(two.name, three.name)
    }))

  it.effect.each(
    [
      ["DEADMAN_WORKER_THREADS", "0"],
      ["DEADMAN_WORKER_THREADS", "1025"],
      ["DEADMAN_WORKER_THREADS", "2.5"],
      ["DEADMAN_WORKER_THREADS", "many"],
      ["DEADMAN_LEASE_MS", "499"],
      ["DEADMAN_LEASE_MS", "3600001"],
      ["DEADMAN_LEASE_MS", "five"],
      ["DEADMAN_LEASE_MS", "Infinity"],
      ["DEADMAN_DRAIN_MS", "-1"],
      ["DEADMAN_DRAIN_MS", "1e99"],
      ["DEADMAN_MAX_LEASE_LOSSES", "none"],
      ["DEADMAN_WORKER_NAME", "a name"],
      ["DEADMAN_WORKER_NAME", "x".repeat(200)]
    ] as const
  )("refuses %s=%s in one line that names it", ([name, value]) =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(read({ [name]: value }))
      assert.include(error.message, name)
      assert.notInclude(error.message, "\n")
      if (name !== "DEADMAN_WORKER_NAME") {
        assert.match(error.message, new RegExp(`^${name} must be a whole number from \\d+ to \\d+, not "${value}"$`))
      }
    }))
})
