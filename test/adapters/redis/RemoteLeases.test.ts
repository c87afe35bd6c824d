/** Leases of workers over HTTP in Redis: a reaper that watches it sees their heartbeats, and their silence. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as JobStoreMemory from "../../../src/adapters/memory/JobStoreMemory.ts"
import * as SessionsMemory from "../../../src/adapters/memory/SessionsMemory.ts"
import * as TransportMemory from "../../../src/adapters/memory/TransportMemory.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import { LeaseRegister } from "../../../src/ports/LeaseRegister.ts"
import { Queues } from "../../../src/ports/Queues.ts"
import { RemoteWorkers } from "../../../src/ports/RemoteWorkers.ts"
import * as KeeperConfig from "../../../src/programs/keeper/KeeperConfig.ts"
import * as Reaper from "../../../src/programs/keeper/Reaper.ts"
import * as Stopping from "../../../src/programs/process/Stopping.ts"
import * as Remote from "../../../src/programs/remote/RemoteWorkers.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Redis from "../../support/Redis.ts"
import * as TestServers from "../../support/TestServers.ts"

const leaseMs = 1_500

const unused = Effect.die(new Error("nobody asks for this"))
const noLimits = Layer.succeed(Queues, {
  list: () => unused,
  get: () => unused,
  put: () => unused,
  rerank: () => unused,
  limits: Effect.succeed([])
})

const world = Remote.layer.pipe(
  Layer.provideMerge(Layer.mergeAll(
    JobStoreMemory.layer,
    TransportMemory.layer,
    SessionsMemory.layer,
    Stopping.layer,
    noLimits,
    KeeperConfig.layer(),
    Redis.onServer.pipe(Layer.provideMerge(Redis.server()))
  ))
)

TestServers.describeWithRedis("workers over HTTP and Redis", () => {
  it.layer(world, { excludeTestServices: true, timeout: "2 minutes" })("", (it) => {
    it.effect("a lease lives in Redis while its worker sends heartbeats, and lapses when it does not", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const register = yield* LeaseRegister
        const remote = yield* RemoteWorkers
        const server = yield* Redis.Server
        const reaper = yield* Reaper.make
        const job = yield* Jobs.job()
        yield* store.submit([job], { atomic: false })
        const { lease } = yield* remote.claim({
          worker: "py",
          lease: null,
          leaseMs,
          types: [job.type],
          queues: null,
          limit: 1,
          waitMs: 0
        })
        const found = Effect.map(store.get([job.id]), ([one]) => one!)
        const tokens = new Set<string | undefined>()
        for (let n = 0; n < 45; n++) {
          yield* Effect.ignore(reaper.round)
          if (n % 3 === 0) {
            assert.deepStrictEqual((yield* remote.heartbeat("py", [lease])).held, [lease])
            tokens.add((yield* register.look([lease])).tokens.get(lease))
          }
          if (n === 20) {
            yield* server.flushAll
          }
          yield* Effect.sleep("100 millis")
        }
        assert.strictEqual((yield* found).state, "running")
        assert.isAtLeast(tokens.size, 10, "heartbeats move the token in Redis")
        yield* eventually(
          "it is taken from the silent worker",
          Effect.andThen(
            Effect.andThen(Effect.ignore(reaper.round), Effect.sleep("50 millis")),
            Effect.map(found, ({ state }) => state === "pending")
          )
        )
        assert.strictEqual((yield* found).leaseLosses, 1)
        assert.deepStrictEqual((yield* remote.heartbeat("py", [lease])).lost, [lease])
      }))
  })
})
