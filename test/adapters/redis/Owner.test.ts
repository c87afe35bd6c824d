/** Two installations with the same keys in one Redis: it is said, and a prefix keeps them apart. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Logger, Redacted } from "effect"
import { randomBytes } from "node:crypto"
import * as Owner from "../../../src/adapters/redis/Owner.ts"
import * as Redis from "../../../src/adapters/redis/Redis.ts"
import { eventually } from "../../support/Eventually.ts"
import * as TestServers from "../../support/TestServers.ts"

TestServers.describeWithRedis("two installations on one Redis", () => {
  it.live("the second one says so, a third process of the first does not, nor one with keys of its own", () =>
    Effect.gen(function*() {
      const url = Redacted.make(yield* TestServers.redisUrl)
      const prefix = `owner-${randomBytes(4).toString("hex")}:`
      /** What a process of that installation says once its claim to the keys was answered. */
      const said = Effect.fnUntraced(function*(installation: string, prefix: string, lines: number) {
        const said: Array<string> = []
        const logger = Logger.make(({ message }) => {
          said.push(String(message))
        })
        const redis = yield* Layer.build(Redis.layer({ url, prefix }))
        yield* Owner.watch(installation).pipe(Effect.provideContext(redis), Effect.provide(Logger.layer([logger])))
        yield* eventually(
          `${installation} has asked`,
          Effect.gen(function*() {
            const script = Redis.script(`return redis.call('EXISTS', KEYS[1])`)
            const there = yield* Effect.provideContext(
              Effect.flatMap(Redis.Redis, (redis) => redis.run(script, [`${prefix}owner`], [], 1_000)),
              redis
            )
            return there === 1 && said.length === lines
          })
        )
        return said
      })
      assert.deepStrictEqual(yield* said("0000000a", prefix, 0), [])
      const [line] = yield* said("0000000b", prefix, 1)
      assert.match(
        line!,
        /^another installation of Deadman uses this Redis .* DEADMAN_REDIS_PREFIX, or a database number/
      )
      assert.deepStrictEqual(yield* said("0000000a", prefix, 0), [])
      assert.deepStrictEqual(yield* said("0000000b", `${prefix}b:`, 0), [])
    }).pipe(Effect.scoped))
})
