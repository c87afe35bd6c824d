import { Effect, Layer } from "effect"
import * as LeaseRegisterContract from "../../contracts/LeaseRegisterContract.ts"
import * as Redis from "../../support/Redis.ts"
import * as TestServers from "../../support/TestServers.ts"

TestServers.describeWithRedis("LeaseRegisterRedis", () => {
  LeaseRegisterContract.suite("redis", Redis.onServer.pipe(Layer.provideMerge(Redis.server())), {
    clock: "live",
    keptMs: (leaseMs) => 4 * leaseMs,
    forget: Effect.flatMap(Redis.Server, ({ flushAll }) => flushAll)
  })
})
