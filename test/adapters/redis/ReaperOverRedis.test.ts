/** A reaper and a register in Redis, with rows that nobody touches: only the register stands between it and the deed. */
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Layer, type Scope } from "effect"
import * as JobStoreMemory from "../../../src/adapters/memory/JobStoreMemory.ts"
import type { LeaseId } from "../../../src/domain/Claim.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import * as Watch from "../../../src/domain/Watch.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import { LeaseRegister } from "../../../src/ports/LeaseRegister.ts"
import * as KeeperConfig from "../../../src/programs/keeper/KeeperConfig.ts"
import * as Reaper from "../../../src/programs/keeper/Reaper.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Redis from "../../support/Redis.ts"
import * as TestServers from "../../support/TestServers.ts"

const leaseMs = 1_500

const claimed = Effect.gen(function*() {
  const store = yield* JobStore
  const register = yield* LeaseRegister
  const job = yield* Jobs.job()
  const lease = yield* Jobs.freshLease
  yield* store.submit([job], { atomic: false })
  yield* store.claim({ lease, leaseMs, worker: "ada", types: [job.type], limit: 1, freeSlots: 1, bytes: 1_000 })
  yield* register.hold([{ lease, leaseMs }])
  return { id: job.id, lease }
})

const state = (id: JobId) => Effect.flatMap(JobStore, (store) => Effect.map(store.get([id]), ([job]) => job?.state))

const renew = Effect.fnUntraced(function*(lease: LeaseId) {
  const register = yield* LeaseRegister
  const [answer] = yield* register.renew([{ lease, leaseMs }])
  if (answer === "lost") {
    yield* register.hold([{ lease, leaseMs }])
  }
  return answer
})

/** A round every so often, for so long, and between two of them what happens meanwhile. */
const watching = Effect.fnUntraced(function*(
  ms: number,
  meanwhile: (round: number) => Effect.Effect<unknown, unknown, LeaseRegister | Redis.Server>,
  reaper: Effect.Success<typeof Reaper.make>
) {
  const from = yield* Clock.currentTimeMillis
  for (let n = 0; (yield* Clock.currentTimeMillis) - from < ms; n++) {
    yield* Effect.ignore(reaper.round)
    yield* Effect.ignore(meanwhile(n))
    yield* Effect.sleep("100 millis")
  }
})

/** How long after `fromMs` it was seen to be taken, with rounds all the while. */
const takenAfter = Effect.fnUntraced(function*(
  id: JobId,
  fromMs: number,
  reaper: Effect.Success<typeof Reaper.make>
) {
  yield* eventually(
    "it is taken",
    Effect.andThen(
      Effect.andThen(Effect.ignore(reaper.round), Effect.sleep("50 millis")),
      Effect.map(state(id), (now) => now !== "running")
    )
  )
  return (yield* Clock.currentTimeMillis) - fromMs
})

TestServers.describeWithRedis("a reaper over Redis", () => {
  const suite = (
    what: string,
    test: Effect.Effect<
      void,
      unknown,
      JobStore | LeaseRegister | Redis.Server | KeeperConfig.KeeperConfig | Scope.Scope
    >
  ) =>
    it.layer(
      Layer.mergeAll(
        JobStoreMemory.layer,
        KeeperConfig.layer(),
        Redis.onServer.pipe(Layer.provideMerge(Redis.server()))
      ),
      { excludeTestServices: true, timeout: "2 minutes" }
    )("", (it) => {
      it.effect(what, () => test)
    })

  suite(
    "takes what is silent for a length and a heartbeat, and marks it first",
    Effect.gen(function*() {
      const reaper = yield* Reaper.make
      const { id, lease } = yield* claimed
      const fromMs = yield* Clock.currentTimeMillis
      assert.isAtLeast(yield* takenAfter(id, fromMs, reaper), leaseMs + Watch.heartbeatMs(leaseMs))
      const register = yield* LeaseRegister
      assert.deepStrictEqual(yield* register.renew([{ lease, leaseMs }]), ["lost"])
    })
  )

  suite(
    "takes nothing that is renewed, though everything is flushed now and then",
    Effect.gen(function*() {
      const server = yield* Redis.Server
      const reaper = yield* Reaper.make
      const { id, lease } = yield* claimed
      // Two losses: more within half a minute, and the rows would be watched, which nobody touches here.
      yield* watching(
        4_500,
        (n) =>
          Effect.andThen(
            n % 3 === 0 ? Effect.asVoid(renew(lease)) : Effect.void,
            n === 12 || n === 26 ? server.flushAll : Effect.void
          ),
        reaper
      )
      assert.strictEqual(yield* state(id), "running")
      // And it is not that it takes nothing at all.
      yield* takenAfter(id, yield* Clock.currentTimeMillis, reaper)
    })
  )

  suite(
    "does not take a step back in time for silence",
    Effect.gen(function*() {
      const server = yield* Redis.Server
      const reaper = yield* Reaper.make
      const { id, lease } = yield* claimed
      yield* reaper.round
      yield* server.call("SAVE")
      // Renewed twice, and each time the renewal is undone before anybody has seen it.
      const undone = Effect.andThen(renew(lease), server.call("DEBUG", "RELOAD", "NOSAVE"))
      for (const round of [undone, undone, Effect.void]) {
        yield* watching(800, () => Effect.void, reaper)
        yield* round
      }
      assert.strictEqual(yield* state(id), "running")
      yield* takenAfter(id, yield* Clock.currentTimeMillis, reaper)
    })
  )

  suite(
    "takes nothing after it was frozen, and Redis replaced by an older one meanwhile",
    Effect.gen(function*() {
      const server = yield* Redis.Server
      const reaper = yield* Reaper.make
      const { id, lease } = yield* claimed
      yield* server.call("SAVE")
      yield* watching(1_000, () => Effect.void, reaper)
      yield* server.kill
      yield* Effect.sleep("1 second")
      yield* server.start
      yield* watching(1_200, (n) => n % 3 === 0 ? renew(lease) : Effect.void, reaper)
      assert.strictEqual(yield* state(id), "running")
    })
  )

  suite(
    "while Redis hangs, what was not renewed is taken from the row after two lengths, and not before",
    Effect.gen(function*() {
      const server = yield* Redis.Server
      const reaper = yield* Reaper.make
      const { id } = yield* claimed
      yield* watching(500, () => Effect.void, reaper)
      const fromMs = yield* Clock.currentTimeMillis
      yield* server.freeze
      const tookMs = yield* takenAfter(id, fromMs, reaper)
      yield* server.thaw
      assert.isAtLeast(tookMs, 2 * leaseMs)
    })
  )
})
