/** Two installations with the same keys in one Redis: it is said, and a prefix keeps them apart. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Logger, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { randomBytes } from "node:crypto"
import * as Owner from "../../../src/adapters/redis/Owner.ts"
import * as Redis from "../../../src/adapters/redis/Redis.ts"
import { eventually } from "../../support/Eventually.ts"
import * as TestServers from "../../support/TestServers.ts"

it.effect("a process that Redis does not answer asks again soon", () =>
  Effect.gen(function*() {
    let asked = 0
    const away = Effect.suspend(() => {
      asked += 1
      return Effect.fail(new Redis.RedisFailed({ message: "away" }))
    })
    yield* Owner.watch(Effect.succeed("0000000a")).pipe(
      Effect.provideService(Redis.Redis, { prefix: "", run: () => away, del: () => away, isUp: Effect.succeed(false) })
    )
    yield* TestClock.adjust("1 second")
    assert.strictEqual(asked, 1)
    yield* TestClock.adjust("10 seconds")
    assert.strictEqual(asked, 2)
  }).pipe(Effect.scoped))

TestServers.describeWithRedis("two installations on one Redis", () => {
  const stage = Effect.gen(function*() {
    const url = Redacted.make(yield* TestServers.redisUrl)
    const prefix = `owner-${randomBytes(4).toString("hex")}:`
    /** What a process has said so far. */
    const process = Effect.fnUntraced(function*(installation: Effect.Effect<string | null>, prefix: string) {
      const said: Array<string> = []
      const logger = Logger.make(({ message }) => {
        said.push(String(message))
      })
      const redis = yield* Layer.build(Redis.layer({ url, prefix }))
      yield* Owner.watch(installation).pipe(Effect.provideContext(redis), Effect.provide(Logger.layer([logger])))
      return said
    })
    const judge = Context.get(yield* Layer.build(Redis.layer({ url, prefix })), Redis.Redis)
    const ask = (lua: string, prefix: string) => judge.run(Redis.script(lua), [`${prefix}owner`], [], 1_000)
    return { prefix, process, ask }
  })

  it.effect("the second one says so, a third process of the first does not, nor one with keys of its own", () =>
    Effect.gen(function*() {
      const { ask, prefix, process } = yield* stage
      /** What a process of that installation says by the time that it has taken the keys anew, or has said something. */
      const said = Effect.fnUntraced(function*(installation: string, prefix: string) {
        yield* ask(`return redis.call('PEXPIRE', KEYS[1], 60000)`, prefix)
        const said = yield* process(Effect.succeed(installation), prefix)
        yield* eventually(
          `${installation} has asked`,
          Effect.map(
            ask(`return redis.call('PTTL', KEYS[1])`, prefix),
            (leftMs) => Number(leftMs) > 60_000 || said.length > 0
          )
        )
        return said
      })
      assert.deepStrictEqual(yield* said("0000000a", prefix), [])
      const [line] = yield* said("0000000b", prefix)
      assert.match(
        line!,
        /^another installation of Deadman uses this Redis .* DEADMAN_REDIS_PREFIX, or a database number/
      )
      assert.deepStrictEqual(yield* said("0000000a", prefix), [])
      assert.deepStrictEqual(yield* said("0000000b", `${prefix}b:`), [])
    }).pipe(Effect.scoped))

  it.effect("a process whose database is replaced keeps its keys, and asks again soon where that did not answer", () =>
    Effect.gen(function*() {
      const { ask, prefix, process } = yield* stage
      const owns = (installation: string | null) =>
        Effect.map(ask(`return redis.call('GET', KEYS[1])`, prefix), (owner) => owner === installation)
      let installation: string | null = null
      let asked = 0
      const said = yield* process(
        Effect.sync(() => {
          asked += 1
          return installation
        }),
        prefix
      )
      yield* eventually("it has asked", Effect.sync(() => asked === 1))
      assert.isTrue(yield* owns(null))
      installation = "0000000a"
      yield* TestClock.adjust("10 seconds")
      yield* eventually("the keys are the first one's", owns("0000000a"))
      installation = "0000000c"
      yield* eventually(
        "the keys are the next one's",
        Effect.andThen(TestClock.adjust("10 minutes"), owns("0000000c"))
      )
      assert.deepStrictEqual(said, [])
    }).pipe(Effect.scoped))
})
