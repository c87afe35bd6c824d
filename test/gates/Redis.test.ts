/** What a job costs Redis at load: commands for each lease, none for each job. A command per job turns it red. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as TransportPostgres from "../../src/adapters/postgres/TransportPostgres.ts"
import * as Redis from "../support/Redis.ts"
import * as TestServers from "../support/TestServers.ts"
import * as Counting from "./Counting.ts"

/** Two would be a lease for each job, taken and let go. A claim at load takes hundreds. */
const perJobMax = 0.05

const layer = Layer.provideMerge(
  Layer.mergeAll(Counting.ports(), TransportPostgres.layer, Redis.onServer),
  Layer.merge(Counting.layer, Redis.server())
)

TestServers.describeWithRedis("leases in Redis", () => {
  it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })("at load", (it) => {
    it.effect("cost few commands for hundreds of jobs", () =>
      Effect.gen(function*() {
        const server = yield* Redis.Server
        const commands = Effect.map(server.call("INFO", "commandstats"), (text) =>
          [...String(text).matchAll(/^cmdstat_(\S+?):calls=(\d+)/gm)]
            .filter(([, name]) =>
              !/^(info|client|hello|ping|config)/.test(name ?? "")
            )
            .reduce((sum, [, , calls]) => sum + Number(calls), 0))
        const jobs = yield* Counting.submit(256, 40)
        const before = yield* commands
        // Long enough for some heartbeats: what ends before the first of them is not told to Redis at all.
        yield* Counting.work(() => Effect.sleep("20 millis"), { slots: 64 })
        const used = (yield* commands) - before
        assert.isAtMost(used / jobs, perJobMax, `${used} commands for ${jobs} jobs`)
        // Else the leases were not there.
        assert.isAbove(used, 0)
      }), 180_000)
  })
})
