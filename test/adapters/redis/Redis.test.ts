import { assert, it } from "@effect/vitest"
import { Effect, Exit, Layer, Logger, Redacted, Ref, References } from "effect"
import * as Client from "../../../src/adapters/redis/Redis.ts"
import * as Target from "../../../src/adapters/redis/Target.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Redis from "../../support/Redis.ts"
import * as TestServers from "../../support/TestServers.ts"

it("reads a URL, and no other text", () => {
  assert.deepInclude(Target.parse("redis://127.0.0.1"), { host: "127.0.0.1", port: 6_379, db: 0 })
  assert.deepInclude(Target.parse("rediss://ada:p%40ss@[::1]:6380/3"), {
    host: "::1",
    port: 6_380,
    db: 3,
    username: "ada",
    password: "p@ss",
    tls: {}
  })
  // A server that is one of many behind an address has to be told which is meant.
  assert.deepInclude(Target.parse("rediss://redis.example:6380"), { tls: { servername: "redis.example" } })
  for (
    const text of [
      "",
      "127.0.0.1:6379",
      "http://127.0.0.1",
      "redis://",
      "redis://h/x",
      "redis://h?family=6",
      "redis://h:x"
    ]
  ) {
    assert.isNull(Target.parse(text), text)
  }
})

TestServers.describeWithRedis("Redis", () => {
  it.layer(Redis.server(), { excludeTestServices: true, timeout: "60 seconds" })("", (it) => {
    /** What the layer logs from here on. */
    const logged = Effect.gen(function*() {
      const lines = yield* Ref.make<ReadonlyArray<string>>([])
      const logger = Logger.make(({ message }) => {
        Effect.runSync(Ref.update(lines, (all) => [...all, String(message)]))
      })
      return { lines, layer: Layer.merge(Logger.layer([logger]), Layer.succeed(References.MinimumLogLevel, "Info")) }
    })

    const sees = (lines: Ref.Ref<ReadonlyArray<string>>, words: string) =>
      eventually(words, Effect.map(Ref.get(lines), (all) => all.some((line) => line.includes(words))))

    it.effect("says once that keys may be thrown away", () =>
      Effect.gen(function*() {
        const { url, ...server } = yield* Redis.Server
        yield* server.configSet("maxmemory", "100000000")
        yield* server.configSet("maxmemory-policy", "allkeys-lru")
        const { layer, lines } = yield* logged
        yield* Effect.scoped(Effect.andThen(
          Layer.build(Client.layer({ url: Redacted.make(url) }).pipe(Layer.provide(layer))),
          sees(lines, "maxmemory-policy allkeys-lru")
        ))
        yield* server.configSet("maxmemory", "0")
      }))

    it.effect("says when it is away, and when it is back, and starts without it", () =>
      Effect.gen(function*() {
        const server = yield* Redis.Server
        yield* server.kill
        const { layer, lines } = yield* logged
        yield* Effect.scoped(Effect.gen(function*() {
          yield* Layer.build(Client.layer({ url: Redacted.make(server.url) }).pipe(Layer.provide(layer)))
          yield* sees(lines, "redis does not answer")
          yield* server.start
          yield* sees(lines, "redis answers again")
        }))
        assert.lengthOf((yield* Ref.get(lines)).filter((line) => line.includes("does not answer")), 1)
      }))

    it.effect("a wrong password ends the start, and is not shown", () =>
      Effect.gen(function*() {
        const server = yield* Redis.Server
        yield* server.configSet("requirepass", "right")
        for (const user of ["", ":wrong-secret@"]) {
          const url = server.url.replace("://", `://${user}`)
          const exit = yield* Effect.exit(Effect.scoped(Layer.build(Client.layer({ url: Redacted.make(url) }))))
          assert.isTrue(Exit.isFailure(exit))
          const text = String(Exit.isFailure(exit) ? exit.cause : "")
          assert.match(text, /RedisRefused/)
          assert.match(text, /WRONGPASS|NOAUTH/)
          assert.notInclude(text, "wrong-secret")
        }
      }))
  })
})
