/** What happens to running jobs when their lease is lost, doubted or taken: the dead man's switch. */
import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect } from "effect"
import type { LeaseId } from "../../../src/domain/Claim.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import { LeaseRegisterUnavailable } from "../../../src/ports/LeaseRegister.ts"
import * as Meters from "../../../src/programs/process/Meters.ts"
import type { Handler } from "../../../src/programs/worker/HandlerApi.ts"
import { make, pass, settle, type World } from "../../support/WorkerWorld.ts"

/** A handler that runs until it is interrupted, and what became of its runs. */
const endless = () => {
  const seen = { started: 0, interrupted: 0, running: 0 }
  const handler: Handler = () =>
    Effect.suspend(() => {
      seen.started += 1
      seen.running += 1
      return Effect.never
    }).pipe(Effect.ensuring(Effect.sync(() => {
      seen.interrupted += 1
      seen.running -= 1
    })))
  return { seen, handler }
}

/** A world in which one endless job runs, under a lease that was renewed. */
const holding = Effect.fnUntraced(function*(options?: { readonly slots: number }) {
  const world = yield* make()
  const { handler, seen } = endless()
  const id = yield* world.submit("endless")
  const pool = yield* world.start({ endless: handler }, options)
  yield* pass(2_500)
  return { world, seen, id, pool }
})

/** Nobody answers about leases any more, or takes what is said of jobs. */
const silence = (world: World) => {
  for (const operation of ["renew", "hold", "verify", "settle"]) {
    world.faults.set(operation, "silent")
  }
}

/** Lets time pass until the clock that the calls are dated by says so much. */
const until = Effect.fnUntraced(function*(atMs: number) {
  const nowMs = Number((yield* Clock.monotonicTimeNanos) / 1_000_000n)
  assert.isAtLeast(atMs, nowMs)
  yield* pass(atMs - nowMs)
})

/** The process stands still for so long, once, and goes on. */
const thaw = (world: World, freezes: { ms: number }, when: boolean) =>
  Effect.sync(() => {
    if (when) {
      world.frozen.ms += freezes.ms
      freezes.ms = 0
    }
  })

const leaseOf = Effect.fnUntraced(function*(world: World) {
  const { leases } = yield* world.store.look
  assert.strictEqual(leases.length, 1)
  return leases[0]!
})

/** What a reaper does that is certain. */
const takeAway = Effect.fnUntraced(function*(world: World) {
  const lease = yield* leaseOf(world)
  const { tokens } = yield* world.register.look([lease.lease])
  const token = tokens.get(lease.lease)
  if (token !== undefined) {
    yield* world.register.markLapsed(lease.lease, token)
  }
  return yield* world.store.reclaim([{ lease: lease.lease, token: lease.token }], { counted: true, lossesMax: 5 })
})

const settles = (world: World) => world.calls.filter((call) => call.operation === "settle")

describe("Heartbeat", () => {
  it.effect("a job may run for many lengths of its lease", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const { handler, seen } = endless()
      const id = yield* world.submit("endless")
      yield* world.start({ endless: handler })
      yield* pass(100_000, 250)
      assert.strictEqual(seen.started, 1)
      assert.strictEqual(seen.running, 1)
      assert.strictEqual((yield* world.job(id)).deliveries, 1)
      // Once per heartbeat in the register, once per length in the store.
      assert.approximately(world.calls.filter(({ operation }) => operation === "renew").length, 99, 4)
      assert.approximately(world.calls.filter(({ operation }) => operation === "verify").length, 20, 4)
    }))

  it.effect("a lease that was taken away interrupts its handlers within a heartbeat, and nothing is recorded", () =>
    Effect.gen(function*() {
      const { id, pool, seen, world } = yield* holding()
      const { lease_losses: losses } = yield* Meters.read
      yield* takeAway(world)
      yield* pool.stop.pipe(Effect.forkChild)
      yield* pass(1_100)
      assert.strictEqual(seen.interrupted, 1)
      assert.strictEqual((yield* Meters.read).lease_losses, losses + 1)
      assert.strictEqual(settles(world).length, 0)
      const job = yield* world.job(id)
      assert.strictEqual(job.leaseLosses, 1)
      assert.strictEqual(job.attempts, 0)
      assert.strictEqual(job.staleWrites, 0)
    }))

  it.effect("a register that is away costs nothing while the record stands", () =>
    Effect.gen(function*() {
      const { seen, world } = yield* holding()
      for (const fault of ["away", "silent"] as const) {
        world.faults.set("renew", fault).set("hold", fault)
        yield* pass(20_000)
        assert.strictEqual(seen.running, 1)
      }
      assert.strictEqual(seen.started, 1)
    }))

  it.effect("a register that forgot everything is told again, and the handler goes on", () =>
    Effect.gen(function*() {
      const { seen, world } = yield* holding()
      const { lease } = yield* leaseOf(world)
      yield* world.forget
      yield* pass(1_100)
      assert.isTrue((yield* world.register.look([lease])).tokens.has(lease))
      assert.strictEqual(seen.running, 1)
      assert.strictEqual(seen.interrupted, 0)
    }))

  it.effect("a marked lease is not held again before its record was seen to stand", () =>
    Effect.gen(function*() {
      const { world } = yield* holding()
      const { lease } = yield* leaseOf(world)
      const { tokens } = yield* world.register.look([lease])
      yield* world.register.markLapsed(lease, tokens.get(lease)!)
      world.faults.set("verify", "away")
      const before = world.calls.filter(({ operation }) => operation === "hold").length
      yield* pass(2_000)
      assert.strictEqual(world.calls.filter(({ operation }) => operation === "hold").length, before)
      world.faults.clear()
      yield* pass(1_100)
      assert.strictEqual(world.calls.filter(({ operation }) => operation === "hold").length, before + 1)
    }))

  it.effect("a lease nobody confirmed for its length is given up, and its job handed back when the store answers", () =>
    Effect.gen(function*() {
      const { id, seen, world } = yield* holding({ slots: 1 })
      for (const operation of ["renew", "hold", "verify", "settle", "claim", "recall"]) {
        world.faults.set(operation, "silent")
      }
      const { lease_losses: losses } = yield* Meters.read
      // Confirmed last between 2 and 2.5 s.
      yield* pass(4_300)
      assert.strictEqual(seen.running, 1)
      yield* pass(900)
      assert.strictEqual(seen.running, 0)
      const renewals = world.calls.filter(({ operation }) => operation === "renew" || operation === "verify").length
      yield* pass(10_000)
      assert.strictEqual(
        world.calls.filter(({ operation }) => operation === "renew" || operation === "verify").length,
        renewals
      )

      world.faults.clear()
      world.faults.set("claim", "away")
      yield* pass(5_000)
      const job = yield* world.job(id)
      assert.strictEqual(job.state, "pending")
      assert.strictEqual(job.attempts, 0)
      assert.strictEqual(job.leaseLosses, 0)
      assert.strictEqual((yield* Meters.read).lease_losses, losses + 1)
    }))

  it.effect("a lease's age counts from when its renewal was sent, however late that was answered", () =>
    Effect.gen(function*() {
      const world = yield* make({
        register: (register) => ({ ...register, renew: (leases) => Effect.delay(register.renew(leases), 800) })
      })
      const { handler, seen } = endless()
      yield* world.submit("endless")
      yield* world.start({ endless: handler }, { slots: 1 })
      yield* pass(3_500)
      const renewals = world.calls.filter(({ operation }) => operation === "renew")
      assert.isAtLeast(renewals.length, 2)
      silence(world)
      yield* until(renewals.at(-1)!.atMs + 4_900)
      assert.strictEqual(seen.running, 1)
      yield* pass(200)
      assert.strictEqual(seen.running, 0)
    }))

  it.effect("a lease's age counts from when its claim was sent, however late that was answered", () =>
    Effect.gen(function*() {
      const world = yield* make({
        store: (store) => ({ ...store, claim: (request) => Effect.delay(store.claim(request), 800) })
      })
      const { handler, seen } = endless()
      yield* world.submit("endless")
      silence(world)
      yield* world.start({ endless: handler }, { slots: 1 })
      yield* pass(2_000)
      assert.strictEqual(seen.running, 1)
      yield* until(world.calls.findLast(({ operation }) => operation === "claim")!.atMs + 4_900)
      assert.strictEqual(seen.running, 1)
      yield* pass(200)
      assert.strictEqual(seen.running, 0)
    }))

  it.effect("what a claim has brought whose answer came after its lease's length is not begun, and handed back", () =>
    Effect.gen(function*() {
      const freezes = { ms: 20_000 }
      const world: World = yield* make({
        store: (store) => ({
          ...store,
          claim: (request) => Effect.tap(store.claim(request), (jobs) => thaw(world, freezes, jobs.length > 0))
        })
      })
      const { handler, seen } = endless()
      const id = yield* world.submit("endless")
      yield* world.start({ endless: handler }, { slots: 1 })
      yield* pass(2_500)
      const { deliveries, events, leaseLosses } = yield* world.job(id)
      assert.strictEqual(seen.started, 1)
      assert.deepStrictEqual([deliveries, leaseLosses, events], [2, 0, []])
    }))

  it.effect("a worker that freezes while it renews asks nobody about leases that are past their length", () =>
    Effect.gen(function*() {
      const freezes = { ms: 0 }
      const world: World = yield* make({
        register: (register) => ({
          ...register,
          renew: (leases) =>
            freezes.ms > 0
              ? Effect.andThen(
                thaw(world, freezes, true),
                Effect.fail(new LeaseRegisterUnavailable({ operation: "renew", cause: "it was too late" }))
              )
              : register.renew(leases)
        })
      })
      const { handler, seen } = endless()
      yield* world.submit("endless")
      yield* world.start({ endless: handler }, { slots: 1 })
      yield* pass(2_500)
      world.faults.set("claim", "away")
      freezes.ms = 20_000
      yield* pass(2_000)
      assert.strictEqual(seen.running, 0)
      assert.strictEqual(world.calls.filter(({ operation }) => operation === "verify").length, 0)
    }))

  it.effect("a worker that freezes while it asks for the record tells the register of no lease past its length", () =>
    Effect.gen(function*() {
      const freezes = { ms: 0 }
      const world: World = yield* make({
        store: (store) => ({
          ...store,
          verify: (leases) => Effect.tap(store.verify(leases), () => thaw(world, freezes, freezes.ms > 0))
        })
      })
      const { handler, seen } = endless()
      yield* world.submit("endless")
      yield* world.start({ endless: handler }, { slots: 1 })
      yield* pass(2_500)
      const holds = () => world.calls.filter(({ operation }) => operation === "hold").length
      const before = holds()
      world.faults.set("claim", "away")
      yield* world.forget
      freezes.ms = 20_000
      yield* pass(2_000)
      assert.strictEqual(seen.running, 0)
      assert.strictEqual(holds(), before)
    }))

  it.effect("a worker that was frozen past its lease renews nothing when it wakes", () =>
    Effect.gen(function*() {
      const { seen, world } = yield* holding({ slots: 1 })
      world.faults.set("claim", "away")
      const before = world.calls.filter(({ operation }) => operation === "renew").length
      world.frozen.ms += 20_000
      yield* pass(2_000)
      assert.strictEqual(seen.running, 0)
      assert.strictEqual(world.calls.filter(({ operation }) => operation === "renew").length, before)
      assert.strictEqual(world.calls.filter(({ operation }) => operation === "verify").length, 0)
    }))

  it.effect("a job that is cancelled is interrupted at once where the wake arrives, and nothing is recorded", () =>
    Effect.gen(function*() {
      const { id, seen, world } = yield* holding()
      const cancelled = yield* world.store.cancel(id)
      assert.isTrue(cancelled._tag === "Cancelled" && cancelled.cutOff !== null)
      if (cancelled._tag === "Cancelled" && cancelled.cutOff !== null) {
        yield* world.transport.wake([{ _tag: "Revoked", id, ...cancelled.cutOff }])
      }
      yield* settle
      yield* settle
      assert.strictEqual(seen.running, 0)
      yield* pass(5_000)
      assert.strictEqual(settles(world).length, 0)
      assert.deepStrictEqual((yield* world.store.look).leases, [])
    }))

  it.effect("the lease of a job that was taken away is renewed no more, also while its handler has not ended", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const id = yield* world.submit("deaf")
      yield* world.start({ deaf: () => new Promise(() => {}) })
      yield* pass(2_500)
      const cancelled = yield* world.store.cancel(id)
      assert.isTrue(cancelled._tag === "Cancelled" && cancelled.cutOff !== null)
      if (cancelled._tag === "Cancelled" && cancelled.cutOff !== null) {
        yield* world.transport.wake([{ _tag: "Revoked", id, ...cancelled.cutOff }])
      }
      yield* settle
      const renewals = () => world.calls.filter(({ operation }) => operation === "renew").length
      const before = renewals()
      // One heartbeat, and not yet a second since the interruption.
      yield* pass(900)
      assert.strictEqual(renewals(), before)
      yield* pass(5_000)
      assert.strictEqual(settles(world).length, 0)
    }))

  it.effect("a job that is cancelled is interrupted with the next heartbeat where no wake arrives", () =>
    Effect.gen(function*() {
      const { id, seen, world } = yield* holding()
      const cancelled = yield* world.store.cancel(id)
      if (cancelled._tag === "Cancelled" && cancelled.cutOff !== null) {
        yield* world.register.flag([cancelled.cutOff.lease])
      }
      yield* pass(1_100)
      assert.strictEqual(seen.running, 0)
      assert.strictEqual(settles(world).length, 0)
    }))

  it.effect("a running job of the lease that nobody here knows of is handed back at no cost", () =>
    Effect.gen(function*() {
      const forgotten = new Set<JobId>()
      // What a failover does: the answer was given, and the write is gone.
      const world = yield* make({
        store: (store) => ({
          ...store,
          settle: (settlements) =>
            Effect.flatMap(
              store.settle(settlements.filter(({ claim }) => !forgotten.has(claim.id))),
              () => Effect.succeed(settlements.map(() => ({ _tag: "Settled" as const, repeated: false })))
            )
        })
      })
      const { handler } = endless()
      const quick = yield* world.submit("quick")
      forgotten.add(quick)
      yield* world.submit("endless")
      yield* world.start({ endless: handler, quick: () => "done" })
      yield* pass(2_000)
      assert.strictEqual((yield* world.job(quick)).state, "running")
      forgotten.clear()
      yield* pass(5_000)
      const job = yield* world.job(quick)
      assert.strictEqual(job.state, "completed")
      assert.strictEqual(job.deliveries, 2)
      assert.strictEqual(job.leaseLosses, 0)
      assert.strictEqual(job.attempts, 0)
    }))

  it.effect("one lease per claim statement, ended once nothing is left under it", () =>
    Effect.gen(function*() {
      const world = yield* make()
      for (let n = 0; n < 5; n++) {
        yield* world.submit("noop")
      }
      yield* world.start({ noop: () => undefined }, { slots: 10 })
      yield* pass(2_000)
      const ended = world.calls.filter(({ operation }) => operation === "endLeases")
        .flatMap((call) => call.arguments[0] as ReadonlyArray<LeaseId>)
      const claimed = world.calls.filter(({ operation }) => operation === "claim")
        .map((call) => (call.arguments[0] as { readonly lease: LeaseId }).lease)
      assert.isTrue(ended.length > 0 && ended.every((lease) => claimed.includes(lease)))
      assert.strictEqual(new Set(claimed).size, claimed.length)
      assert.deepStrictEqual((yield* world.store.look).leases, [])
    }))
})
