/** The fault catalogue, chapter G, on the built programs over Postgres, Redis and Kafka. */
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Fiber } from "effect"
import type * as ApiClient from "../support/ApiClient.ts"
import * as Processes from "../support/Processes.ts"
import * as TestServers from "../support/TestServers.ts"
import * as Scale from "./ScaleStage.ts"
import { Stage } from "./Stage.ts"

const many = (count: number, body: object) => Array.from({ length: count }, () => body)

/** What `/ready` says of Redis, as long as the server is ready. */
const redis = (api: ApiClient.ApiClient) =>
  Effect.map(api.send("GET", "/ready"), ({ body, status }) => status === 200 ? body.services.redis : null)

/** Posts and reads jobs until it is interrupted; how long each took, and the ids. */
const client = Effect.fnUntraced(function*(api: ApiClient.ApiClient) {
  const ids: Array<string> = []
  const tookMs: Array<number> = []
  const timed = Effect.fnUntraced(function*(method: string, path: string, body?: object) {
    const startMs = yield* Clock.currentTimeMillis
    const answer = yield* api.send(method, path, body)
    tookMs.push((yield* Clock.currentTimeMillis) - startMs)
    assert.include([200, 201], answer.status, JSON.stringify(answer.body))
    return String(answer.body.id)
  })
  const fiber = yield* Effect.forkChild(Effect.forever(Effect.gen(function*() {
    const id = yield* timed("POST", "/jobs", { type: "sleep", payload: 20 })
    ids.push(id)
    yield* timed("GET", `/jobs/${id}`)
    yield* Effect.sleep("20 millis")
  })))
  const stop = Effect.map(Fiber.interrupt(fiber), () => ({
    ids,
    p99Ms: tookMs.toSorted((a, b) => a - b)[Math.floor(tookMs.length * 0.99)] ?? Infinity
  }))
  return { ids, stop }
})

/** The fault, with a job that outlasts it and a client at work, and how all ends. */
const during = <E, R>(what: string, fault: Effect.Effect<void, E, R>, undo: Effect.Effect<void, E, R>) =>
  Effect.gen(function*() {
    const { clean, ended, running, shared, submit, worker } = yield* Stage
    const { api, program } = yield* shared
    const crew = [yield* worker("a"), yield* worker("b")]
    yield* Processes.eventually("Redis is up", Effect.map(redis(api), (is) => is === "up"))
    const long = yield* submit(api, many(2, { type: "sleep", payload: 7_000 }))
    yield* running(long)
    const calls = yield* client(api)
    yield* Effect.sleep("1 second")
    const held = yield* Scale.residentBytes(program.pid)
    yield* fault
    yield* Processes.eventually(`/ready shows that Redis ${what}`, Effect.map(redis(api), (is) => is === "away"))
    yield* Effect.sleep("4 seconds")
    yield* undo
    yield* Processes.eventually("Redis is up again", Effect.map(redis(api), (is) => is === "up"))
    yield* Processes.eventually("enough is asked", Effect.sync(() => calls.ids.length > 50))
    const { ids, p99Ms } = yield* calls.stop
    assert.isBelow(p99Ms, 1_000, "POST and GET")
    assert.isBelow((yield* Scale.residentBytes(program.pid)) - held, 100e6)
    yield* ended([...long, ...ids])
    // Nothing was taken from a live worker, and nothing ran twice.
    yield* clean([...long, ...ids], 1)
    assert.isTrue([program, ...crew].every((one) => one.alive()))
  })

TestServers.describeWithKafka("fault catalogue, Redis", () => {
  it.layer(Scale.layer(), { excludeTestServices: true, timeout: "2 minutes" })("over all three", (it) => {
    it.effect("62: stopped for some leases and started again", () =>
      Effect.gen(function*() {
        const { redis } = yield* Scale.Servers
        yield* during("is away", redis.kill, redis.start)
      }), 180_000)

    it.effect(
      "63: frozen: who posts and reads does not notice, and no lease is revived when it thaws",
      () =>
        Effect.gen(function*() {
          const { redis } = yield* Scale.Servers
          yield* during("hangs", redis.freeze, redis.thaw)
        }),
      180_000
    )

    it.effect("64: made a replica, and a master again", () =>
      Effect.gen(function*() {
        const { redis } = yield* Scale.Servers
        yield* during(
          "is read-only",
          Effect.asVoid(redis.call("REPLICAOF", "127.0.0.1", "1")),
          Effect.asVoid(redis.call("REPLICAOF", "NO", "ONE"))
        )
      }), 180_000)

    it.effect("66: without memory: jobs are taken and run, and /ready shows it", () =>
      Effect.gen(function*() {
        const { redis } = yield* Scale.Servers
        yield* redis.configSet("maxmemory-policy", "noeviction")
        yield* during("takes nothing", redis.configSet("maxmemory", "1"), redis.configSet("maxmemory", "0"))
      }), 180_000)

    it.effect("65: a Redis that may throw keys away is named at the start", () =>
      Effect.gen(function*() {
        const { redis } = yield* Scale.Servers
        const { worker } = yield* Stage
        const said = (program: Processes.Program) => program.output().includes("redis may throw keys away")
        yield* redis.configSet("maxmemory", "100mb")
        yield* redis.configSet("maxmemory-policy", "allkeys-lru")
        const warned = yield* worker("warned")
        yield* Processes.eventually("it says so", Effect.sync(() => said(warned)))
        yield* redis.configSet("maxmemory", "0")
      }), 180_000)
  })
})
