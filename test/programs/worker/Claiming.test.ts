/** How a worker finds work, and what it does when a claim's answer is lost. */
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect } from "effect"
import { TestClock } from "effect/testing"
import type { LeaseId } from "../../../src/domain/Claim.ts"
import { JobType, queueDefault } from "../../../src/domain/Job.ts"
import type { ClaimRequest, JobStore } from "../../../src/ports/JobStore.ts"
import * as Jobs from "../../support/Jobs.ts"
import { make, pass, settle, type World } from "../../support/WorkerWorld.ts"

const of = (world: World, operation: string) => world.calls.filter((call) => call.operation === operation)
const claims = (world: World) => of(world, "claim").map((call) => call.arguments[0] as ClaimRequest)

/** So many workers are lost with the job that is the first in order. */
const firstLost = Effect.fnUntraced(function*(world: World, times: number) {
  for (let n = 0; n < times; n++) {
    const lease = crypto.randomUUID() as LeaseId
    const [job] = yield* world.store.claim({
      lease,
      leaseMs: 1_000,
      worker: "gone",
      types: [JobType.make("work")],
      limit: 1,
      freeSlots: 1,
      bytes: 1_000
    })
    assert.isDefined(job)
    const row = (yield* world.store.look).leases.find((found) => found.lease === lease)
    yield* world.store.reclaim([{ lease, token: row!.token }], { counted: true, lossesMax: 9 })
    yield* TestClock.adjust(5_000)
    yield* world.store.promote(10)
  }
})

describe("ClaimLoop", () => {
  it.effect("an idle worker looks once a second, more rarely when all is calm, and a wake makes it ask at once", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.start({ noop: () => undefined })
      yield* pass(10_000)
      assert.approximately(of(world, "claim").length, 10, 3)
      const early = of(world, "claim").length
      yield* pass(40_000)
      assert.approximately(of(world, "claim").length - early, 8, 2)
      assert.strictEqual(of(world, "renew").length + of(world, "verify").length, 0)
      assert.isTrue((yield* world.loops.status).every((loop) => loop.ok))
      const id = yield* world.submit("noop")
      yield* settle
      yield* settle
      assert.strictEqual((yield* world.job(id)).state, "completed")
      // Something stirred: what a claim had to pass over is found soon.
      const late = of(world, "claim").length
      yield* pass(10_000)
      assert.approximately(of(world, "claim").length - late, 10, 3)
    }))

  it.effect("a worker that hears nothing looks once a second, however long it is idle", () =>
    Effect.gen(function*() {
      let well = true
      const world = yield* make({
        transport: (transport) => ({
          ...transport,
          subscribe: (how) =>
            Effect.map(transport.subscribe(how), (subscription) => ({
              ...subscription,
              wakesForAll: true,
              healthy: Effect.sync(() => well)
            }))
        })
      })
      yield* world.start({ noop: () => undefined })
      yield* pass(30_000)
      well = false
      // Health is looked at every five seconds.
      yield* pass(6_300)
      const before = of(world, "claim").length
      yield* pass(20_000)
      assert.approximately(of(world, "claim").length - before, 20, 5)
    }))

  it.effect("what was found by looking ends the calm for a while, and so does a wake for nothing", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.start({ noop: () => undefined })
      const looksIn = Effect.fnUntraced(function*(ms: number) {
        const before = of(world, "claim").length
        yield* pass(ms)
        return of(world, "claim").length - before
      })
      yield* pass(30_000)
      assert.isAtMost(yield* looksIn(4_000), 1)
      yield* world.transport.wake([{ _tag: "Ready" }])
      assert.isAtLeast(yield* looksIn(4_000), 3)
      yield* pass(30_000)
      // Nobody is told.
      const job = yield* Jobs.job({ type: JobType.make("noop") })
      yield* world.store.submit([job], { atomic: false })
      yield* pass(6_000)
      assert.strictEqual((yield* world.job(job.id)).state, "completed")
      assert.isAtLeast(yield* looksIn(4_000), 3)
    }))

  it.effect("looking glances first, and who was woken asks for a few at once and goes on while it gets all of them", () =>
    Effect.gen(function*() {
      const world = yield* make()
      // Only a worker that has measured quick runs claims ahead.
      yield* world.start({ noop: () => undefined })
      yield* world.submit("noop")
      yield* pass(3_000)
      assert.isTrue(claims(world).slice(2).every(({ glance }) => glance === true))
      for (
        const [count, limits] of [[1, [64]], [100, [64, 1_000]], [40, [1_000]], [1, [1_000]], [31, [64]], [1, [
          64
        ]]] as const
      ) {
        const before = claims(world).length
        const jobs = yield* Effect.forEach(
          Array.from({ length: count }),
          () => Jobs.job({ type: JobType.make("noop") })
        )
        yield* world.store.submit(jobs, { atomic: false })
        yield* world.transport.wake([{ _tag: "Ready" }])
        yield* pass(200)
        const asked = claims(world).slice(before).filter(({ glance }) => glance !== true)
        assert.deepStrictEqual(asked.map(({ limit }) => limit), [...limits], `${count} jobs`)
      }
    }))

  it.effect("a full worker asks for nothing, and takes no more than it has slots for", () =>
    Effect.gen(function*() {
      const world = yield* make()
      for (let n = 0; n < 10; n++) {
        yield* world.submit("endless")
      }
      yield* world.start({ endless: () => Effect.never }, { slots: 3 })
      yield* pass(10_000)
      assert.strictEqual((yield* world.store.counts).byState.running, 3)
      assert.strictEqual(of(world, "claim").length, 1)
      assert.isTrue((yield* world.loops.status).every((loop) => loop.ok))
    }))

  it.effect("a job whose wake was lost is found by looking", () =>
    Effect.gen(function*() {
      const world = yield* make({ transport: (transport) => ({ ...transport, publish: () => Effect.void }) })
      yield* world.start({ noop: () => undefined })
      yield* pass(100)
      const id = yield* world.submit("noop")
      yield* pass(1_300)
      assert.strictEqual((yield* world.job(id)).state, "completed")
    }))

  it.effect("what a claim took whose answer was lost is asked for under the same lease, and runs once", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const ids = yield* Effect.forEach([1, 2, 3], () => world.submit("work"))
      let runs = 0
      world.faults.set("claim", "lost").set("recall", "away")
      yield* world.start({
        work: () => {
          runs += 1
        }
      })
      yield* pass(1_000)
      assert.strictEqual(runs, 0)
      world.faults.clear()
      yield* pass(3_000)
      assert.strictEqual(runs, 3)
      const [first] = claims(world)
      assert.isTrue(of(world, "recall").every((call) => call.arguments[0] === first?.lease))
      for (const id of ids) {
        const job = yield* world.job(id)
        assert.strictEqual(job.deliveries, 1)
        assert.strictEqual(job.leaseLosses, 0)
      }
    }))

  it.effect("a claim that takes effect after its answer was given up is handed back with the heartbeat", () =>
    Effect.gen(function*() {
      const late: Array<ClaimRequest> = []
      const inner: Array<JobStore["Service"]> = []
      const world = yield* make({
        store: (store) => ({
          ...store,
          claim: (request) =>
            Effect.suspend(() => {
              inner.push(store)
              late.push(request)
              return Effect.succeed([])
            })
        })
      })
      const id = yield* world.submit("work")
      world.faults.set("claim", "lost")
      yield* world.start({ work: () => undefined })
      yield* pass(500)
      // Recalled, and nothing was there; now the statement arrives.
      world.faults.set("claim", "away")
      yield* inner[0]!.claim({ ...late[0]!, limit: 1 })
      assert.strictEqual((yield* world.job(id)).state, "running")
      yield* pass(1_100)
      const job = yield* world.job(id)
      assert.strictEqual(job.state, "pending")
      assert.strictEqual(job.leaseLosses + job.attempts, 0)
      const abandoned = of(world, "abandon").length
      assert.isAbove(abandoned, 0)
      yield* pass(10_000)
      const after = of(world, "abandon").flatMap((call) => call.arguments[0] as ReadonlyArray<LeaseId>)
      assert.isAtMost(after.filter((lease) => lease === late[0]!.lease).length, 6)
    }))

  it.effect("a suspect runs alone, under a lease of its own", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.submit("work", { priority: 1 })
      yield* firstLost(world, 2)
      yield* world.submit("work")
      yield* world.start({ work: () => Effect.never }, { slots: 4 })
      yield* pass(200)
      const leases = (yield* world.store.look).leases
      assert.deepStrictEqual(leases.map((lease) => lease.jobs), [1, 1])
      assert.strictEqual((yield* world.store.counts).byState.running, 2)
    }))

  it.effect("what had to be left for a claim of its own is claimed at once, not at the next look", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.submit("work")
      yield* firstLost(world, 2)
      // Lost with the same worker, and in front of the suspect.
      yield* world.submit("work", { priority: 1 })
      yield* firstLost(world, 1)
      yield* world.start({ work: () => Effect.never }, { slots: 4 })
      yield* pass(200)
      assert.strictEqual((yield* world.store.counts).byState.running, 2)
    }))

  const sideBySide = Effect.fnUntraced(function*(lossesMax: number) {
    const world = yield* make()
    const suspects = [yield* world.submit("work"), yield* world.submit("work")]
    const type = (yield* world.job(suspects[0]!)).type
    for (let n = 0; n < 2; n++) {
      const lease = crypto.randomUUID() as LeaseId
      yield* world.store.claim({
        lease,
        leaseMs: 1_000,
        worker: "gone",
        types: [type],
        limit: 2,
        freeSlots: 1,
        bytes: 9
      })
      const row = (yield* world.store.look).leases.find((found) => found.lease === lease)
      yield* world.store.reclaim([{ lease, token: row!.token }], { counted: true, lossesMax: 9 })
      yield* TestClock.adjust(5_000)
      yield* world.store.promote(10)
    }
    let most = 0
    let running = 0
    yield* world.start({
      work: () =>
        Effect.sync(() => {
          running += 1
          most = Math.max(most, running)
        }).pipe(
          Effect.andThen(Effect.sleep(2_000)),
          Effect.ensuring(Effect.sync(() => {
            running -= 1
          }))
        )
    }, { slots: 4, lossesMax })
    yield* pass(4_500)
    return { most, states: yield* Effect.forEach(suspects, (id) => Effect.map(world.job(id), ({ state }) => state)) }
  })

  it.effect("two suspects may run side by side while they may lose more than once", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* sideBySide(5), { most: 2, states: ["completed", "completed"] })
    }))

  it.effect("two jobs that may lose only once more do not run side by side, and the second one has its turn", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* sideBySide(3), { most: 1, states: ["completed", "completed"] })
    }))

  it.effect("delivered ids are claimed by id, and acknowledged when they are settled or dropped", () =>
    Effect.gen(function*() {
      const world = yield* make({
        delivering: true,
        transport: (transport) => ({
          ...transport,
          subscribe: (options) => Effect.map(transport.subscribe(options), (subscription) => subscription)
        })
      })
      const pool = yield* world.start({ work: () => Effect.sleep(300) }, { slots: 2 })
      yield* pass(100)
      const ids = yield* Effect.forEach([1, 2, 3, 4], () => world.submit("work"))
      yield* pass(2_000)
      for (const id of ids) {
        assert.strictEqual((yield* world.job(id)).deliveries, 1)
      }
      assert.isAbove(of(world, "claimIds").length, 0)
      // Nothing is delivered again to the next one once this one is gone.
      yield* pool.stop
      const before = of(world, "claimIds").length
      yield* world.start({ work: () => Effect.sleep(300) })
      yield* pass(1_000)
      assert.strictEqual(of(world, "claimIds").length, before)
    }))

  it.effect("a delivered job whose claim is over before its handler has begun is acknowledged", () =>
    Effect.gen(function*() {
      const world = yield* make({ delivering: true })
      const pool = yield* world.start({
        work: () => {
          throw Object.assign(new Error("the claim is not current"), { code: "DM001" })
        }
      })
      yield* pass(100)
      yield* world.submit("work")
      yield* pass(300)
      assert.isAbove(of(world, "claimIds").length, 0)
      yield* pool.stop
      const before = of(world, "claimIds").length
      yield* world.start({ work: () => Effect.void })
      yield* pass(1_000)
      assert.strictEqual(of(world, "claimIds").length, before)
    }))

  it.effect("a thousand redeliveries of a running job run nothing again and leave nothing behind", () =>
    Effect.gen(function*() {
      const world = yield* make({ delivering: true })
      let runs = 0
      const pool = yield* world.start({
        work: () => {
          runs += 1
          return Effect.sleep(3_000)
        }
      })
      yield* pass(100)
      const id = yield* world.submit("work")
      yield* pass(100)
      const job = yield* world.job(id)
      for (let n = 0; n < 1_000; n++) {
        yield* world.transport.publish([job])
        if (n % 20 === 0) {
          yield* pass(20, 10)
        }
      }
      yield* pass(5_000)
      assert.strictEqual(runs, 1)
      assert.strictEqual((yield* world.job(id)).deliveries, 1)
      assert.deepStrictEqual((yield* world.store.look).leases, [])
      const renewals = of(world, "renew").length
      const asked = of(world, "claimIds").length
      yield* pass(5_000)
      // What was dropped is not asked for again.
      assert.strictEqual(of(world, "claimIds").length, asked)
      assert.strictEqual(of(world, "renew").length, renewals)
      yield* pool.stop
      const before = of(world, "claimIds").length
      yield* world.start({ work: () => undefined })
      yield* pass(1_000)
      assert.strictEqual(of(world, "claimIds").length, before)
    }))

  it.effect("old messages are dropped by few claims, however few slots there are, and what is new among them runs", () =>
    Effect.gen(function*() {
      const world = yield* make({
        delivering: true,
        // As long as a statement takes, so that more arrives meanwhile.
        store: (store) => ({ ...store, claimIds: (request) => Effect.delay(store.claimIds(request), 5) })
      })
      yield* world.start({ work: () => Effect.sleep(10) }, { slots: 2 })
      yield* pass(100)
      const queue = queueDefault
      const old = yield* Effect.forEach(Array.from({ length: 10_000 }), () => Jobs.freshId)
      yield* world.transport.publish(old.map((id) => ({ id, type: JobType.make("work"), queue })))
      const ids = yield* Effect.forEach(Array.from({ length: 5 }), () => world.submit("work"))
      yield* pass(1_000, 5)
      for (const id of ids) {
        assert.deepInclude(yield* world.job(id), { state: "completed", deliveries: 1 })
      }
      assert.isAtMost(of(world, "claimIds").length, 60)
      const most = Math.max(...of(world, "claimIds").map((call) => (call.arguments[0] as ClaimRequest).limit))
      assert.isBelow(most, 1_000, "the room is not larger for it")
    }))

  it.effect("however busy with deliveries, the oldest ready job gets a slot within seconds", () =>
    Effect.gen(function*() {
      const world = yield* make({ delivering: true })
      yield* world.start({ flood: () => Effect.sleep(50), old: () => "ran" }, { slots: 2 })
      yield* pass(100)
      // Its message was lost: nobody is told of it.
      const old = yield* Jobs.job({ type: JobType.make("old") })
      yield* world.store.submit([old], { atomic: false })
      for (let n = 0; n < 100; n++) {
        yield* world.submit("flood")
        yield* world.submit("flood")
        yield* pass(25, 25)
      }
      assert.strictEqual((yield* world.job(old.id)).state, "completed")
    }))

  it.effect("a delivered job that is not due yet goes back to what is delayed, and its id is dropped", () =>
    Effect.gen(function*() {
      const world = yield* make({ delivering: true })
      yield* world.start({ work: () => undefined })
      yield* pass(100)
      const nowMs = yield* world.store.now
      const id = yield* world.submit("work", { runAtMs: nowMs + 60_000 })
      yield* pass(500)
      assert.strictEqual((yield* world.job(id)).state, "pending")
      assert.deepStrictEqual((yield* world.delayed.due(nowMs + 61_000, 10)).ids, [id])
    }))

  it.effect("a drain hands back a claim that is never answered", () =>
    Effect.gen(function*() {
      const world = yield* make({
        store: (store) => ({ ...store, claim: (request) => Effect.andThen(store.claim(request), Effect.never) })
      })
      const id = yield* world.submit("work")
      const pool = yield* world.start({ work: () => undefined }, { drain: Duration.seconds(1) })
      yield* pass(300)
      assert.strictEqual((yield* world.job(id)).state, "running")
      const stopping = yield* Effect.forkChild(pool.stop)
      yield* pass(4_000)
      assert.isDefined(stopping.pollUnsafe())
      const job = yield* world.job(id)
      assert.strictEqual(job.state, "pending")
      assert.strictEqual(job.events.length + job.attempts + job.leaseLosses, 0)
    }))

  it.effect("a drain hands back a claim that is answered only then", () =>
    Effect.gen(function*() {
      const world = yield* make({
        store: (store) => ({ ...store, claim: (request) => Effect.delay(store.claim(request), 700) })
      })
      const id = yield* world.submit("work")
      let runs = 0
      const pool = yield* world.start({
        work: () => {
          runs += 1
        }
      })
      yield* pass(300)
      const stopping = yield* Effect.forkChild(pool.stop)
      yield* pass(2_000)
      assert.isDefined(stopping.pollUnsafe())
      assert.strictEqual(runs, 0)
      const job = yield* world.job(id)
      assert.strictEqual(job.state, "pending")
      assert.strictEqual(job.events.length + job.attempts + job.leaseLosses, 0)
      assert.deepStrictEqual((yield* world.store.look).leases, [])
    }))
})
