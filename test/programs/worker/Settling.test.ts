/** Outcomes reach the store, whatever happens to it. */
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect } from "effect"
import { JobType } from "../../../src/domain/Job.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import type { Settlement } from "../../../src/domain/Outcome.ts"
import type { Settled } from "../../../src/ports/JobStore.ts"
import * as Meters from "../../../src/programs/process/Meters.ts"
import { roomMax } from "../../../src/programs/worker/Room.ts"
import { keptMax } from "../../../src/programs/worker/Settler.ts"
import * as Jobs from "../../support/Jobs.ts"
import { make, pass, type World } from "../../support/WorkerWorld.ts"

const batches = (world: World) =>
  world.calls.filter(({ operation }) => operation === "settle")
    .map((call) => call.arguments[0] as ReadonlyArray<Settlement>)

/** Neither what it resolves to nor what that throws lets itself be looked at. */
const unspeakable = () => {
  const throwing = () => {
    throw new Proxy({}, { getPrototypeOf: throwing, get: throwing })
  }
  return Promise.resolve(new Proxy({}, { get: (_, name) => name === "then" ? undefined : throwing() }))
}

describe("Settler", () => {
  it.effect("a run whose ending cannot be told has failed, and its job is not held for ever", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const id = yield* world.submit("strange", { maxAttempts: 1 })
      yield* world.start({ strange: unspeakable })
      yield* pass(1_000)
      const job = yield* world.job(id)
      assert.strictEqual(job.state, "dead")
      assert.strictEqual(job.errors.length, 1)
    }))

  it.effect("an outcome whose answer was lost is sent again, and counted once on the job", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const id = yield* world.submit("fails", { maxAttempts: 3 })
      world.faults.set("settle", "lost")
      yield* world.start({ fails: () => Promise.reject(new Error("no")) })
      yield* pass(1_000)
      world.faults.clear()
      yield* pass(500)
      const job = yield* world.job(id)
      assert.isAbove(batches(world).length, 1)
      assert.strictEqual(job.errors.length, job.attempts)
      assert.strictEqual(job.staleWrites, 0)
    }))

  it.effect("outcomes wait while the store is away, also past the lease's end, and are then settled", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const ids = yield* Effect.forEach([1, 2, 3, 4], () => world.submit("work"))
      yield* world.start({ work: () => Effect.as(Effect.sleep(200), "done") })
      yield* pass(100)
      world.faults.set("settle", "away").set("verify", "away").set("renew", "away").set("claim", "away")
      yield* pass(20_000)
      for (const id of ids) {
        assert.strictEqual((yield* world.job(id)).state, "running")
      }
      assert.isBelow(batches(world).length, 40)
      assert.isFalse((yield* world.loops.status).find(({ name }) => name === "settle")?.ok)
      world.faults.clear()
      yield* pass(4_000)
      for (const id of ids) {
        const job = yield* world.job(id)
        assert.strictEqual(job.result, "done")
        assert.strictEqual(job.deliveries, 1)
      }
      assert.deepStrictEqual((yield* world.store.look).leases, [])
    }))

  it.effect("what ends while one statement is under way goes out with the next", () =>
    Effect.gen(function*() {
      const world = yield* make({
        store: (store) => ({
          ...store,
          settle: (settlements) => Effect.delay(store.settle(settlements), 100)
        })
      })
      for (let n = 0; n < 40; n++) {
        yield* world.submit("noop")
      }
      yield* world.start({ noop: () => undefined }, { slots: 10 })
      yield* pass(3_000, 10)
      assert.strictEqual((yield* world.store.counts).byState.completed, 40)
      assert.isBelow(batches(world).length, 8)
    }))

  it.effect("a locked row is tried again alone, and holds up no other", () =>
    Effect.gen(function*() {
      const locked = new Set<JobId>()
      const world = yield* make({
        store: (store) => ({
          ...store,
          settle: Effect.fnUntraced(function*(settlements) {
            const free = settlements.filter(({ claim }) => !locked.has(claim.id))
            const answers = yield* store.settle(free)
            const byId = new Map(free.map(({ claim }, index) => [claim.id, answers[index]!]))
            return settlements.map(({ claim }): Settled => byId.get(claim.id) ?? { _tag: "Undecided" })
          })
        })
      })
      const ids = yield* Effect.forEach([1, 2, 3, 4, 5], () => world.submit("noop"))
      locked.add(ids[2]!)
      yield* world.start({ noop: () => undefined }, { slots: 5 })
      yield* pass(2_000)
      for (const id of ids) {
        assert.strictEqual((yield* world.job(id)).state, id === ids[2] ? "running" : "completed")
      }
      const after = batches(world).filter((batch) => batch.some(({ claim }) => claim.id === ids[2])).slice(1)
      assert.isAbove(after.length, 2)
      assert.isTrue(after.every((batch) => batch.length === 1))
      locked.clear()
      yield* pass(1_500)
      assert.strictEqual((yield* world.job(ids[2]!)).state, "completed")
    }))

  it.effect("a batch that breaks the store is taken apart, and only the guilty outcome stays", () =>
    Effect.gen(function*() {
      const guilty = new Set<JobId>()
      const world = yield* make({
        store: (store) => ({
          ...store,
          settle: (settlements) =>
            settlements.some(({ claim }) => guilty.has(claim.id))
              ? Effect.die(new Error("broken"))
              : store.settle(settlements)
        })
      })
      const ids = yield* Effect.forEach([1, 2, 3, 4, 5], () => world.submit("noop"))
      guilty.add(ids[0]!)
      yield* world.start({ noop: () => undefined }, { slots: 5 })
      yield* pass(15_000)
      for (const id of ids.slice(1)) {
        assert.strictEqual((yield* world.job(id)).state, "completed")
      }
    }))

  it.effect("a stale outcome is counted and never sent again", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const before = (yield* Meters.read).stale_writes
      const id = yield* world.submit("work")
      yield* world.start({ work: () => Effect.sleep(500) }, { slots: 1 })
      yield* pass(200)
      // Taken away a moment before it ends: too late for any heartbeat to tell.
      const lease = (yield* world.store.look).leases[0]!
      yield* world.store.reclaim([{ lease: lease.lease, token: lease.token }], { counted: true, lossesMax: 9 })
      world.faults.set("claim", "away")
      yield* pass(5_000)
      const job = yield* world.job(id)
      assert.strictEqual(job.state, "pending")
      assert.strictEqual(job.staleWrites, 1)
      assert.strictEqual((yield* Meters.read).stale_writes - before, 1)
      assert.strictEqual(batches(world).length, 1)
    }))

  it.effect("claims stop while too many outcomes are kept", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const jobs = yield* Jobs.jobs(14_000, { type: JobType.make("noop") })
      yield* world.store.submit(jobs, { atomic: false })
      world.faults.set("settle", "away").set("verify", "away")
      yield* world.start({ noop: () => undefined }, { slots: 100, lease: Duration.minutes(10) })
      for (let n = 0; n < 60; n++) {
        yield* pass(100, 20)
      }
      const running = (yield* world.store.counts).byState.running
      assert.isAtLeast(running, keptMax)
      assert.isAtMost(running, keptMax + roomMax + 100)
    }), 180_000)
})
