import { Effect, Layer } from "effect"
import * as LeaseRegisterRedis from "../../../src/adapters/redis/LeaseRegisterRedis.ts"
import * as LeaseRegisterContract from "../../contracts/LeaseRegisterContract.ts"
import * as Redis from "../../support/Redis.ts"
import * as TestServers from "../../support/TestServers.ts"

const layer = LeaseRegisterRedis.layer.pipe(Layer.provide(Redis.client), Layer.provideMerge(Redis.server()))

TestServers.describeWithRedis("LeaseRegisterRedis", () => {
  LeaseRegisterContract.suite("redis", layer, {
    clock: "live",
    keptMs: (leaseMs) => 4 * leaseMs,
    forget: Effect.flatMap(Redis.Server, ({ flushAll }) => flushAll)
  })
})
