/** Outcomes of workers elsewhere: lost answers, locked rows, the job's own terms, and leases that end. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Metric } from "effect"
import { TestClock } from "effect/testing"
import type { Claim } from "../../../src/domain/Claim.ts"
import type { Outcome } from "../../../src/domain/Outcome.ts"
import { JobStore, type Settled } from "../../../src/ports/JobStore.ts"
import * as Meters from "../../../src/programs/process/Meters.ts"
import * as Grants from "../../../src/programs/remote/Grants.ts"
import * as Outcomes from "../../../src/programs/remote/Outcomes.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as World from "./World.ts"

const completed: Outcome = { _tag: "Completed", result: null }
const failed: Outcome = { _tag: "Failed", failure: { name: "Error", message: "no" } }

it.live("an outcome whose answer was lost is settled when it is sent again, and counted once", () =>
  Effect.gen(function*() {
    const { faults, job, process, request, submit } = yield* World.make
    const remote = yield* process
    const id = yield* submit()
    const claim = World.claimOf(yield* remote.claim(request()))
    faults.set("settle", "lost")
    assert.strictEqual((yield* Effect.flip(remote.settle([{ claim, outcome: failed }]))).reason, "store")
    faults.clear()
    for (const where of [remote, yield* process]) {
      assert.deepStrictEqual(yield* where.settle([{ claim, outcome: failed }]), {
        settled: [id],
        stale: [],
        undecided: []
      })
    }
    assert.deepInclude(yield* job(id), { state: "failed", attempts: 1, staleWrites: 0 })
  }).pipe(Effect.scoped))

it.live("a failure counts by the job's own terms, also at a process that did not grant its claim", () =>
  Effect.gen(function*() {
    const { calls, job, process, request, submit } = yield* World.make
    const [granting, other] = [yield* process, yield* process]
    const last = yield* submit({ maxAttempts: 1 })
    const first = yield* submit({ maxAttempts: 2, backoff: { kind: "fixed", delay_ms: 86_400_000 } })
    const claims = yield* granting.claim(request())
    yield* other.settle([{ claim: World.claimOf(claims, last), outcome: failed }])
    assert.strictEqual(calls.get("get"), 1)
    yield* granting.settle([{ claim: World.claimOf(claims, first), outcome: failed }])
    assert.strictEqual(calls.get("get"), 1, "who granted it remembers")
    assert.deepInclude(yield* job(last), { state: "dead", reason: "attempts_exhausted", attempts: 1 })
    const waiting = yield* job(first)
    assert.deepInclude(waiting, { state: "failed", attempts: 1 })
    assert.isAbove(waiting.runAtMs, waiting.createdAtMs + 60_000)
  }).pipe(Effect.scoped))

it.live("an outcome after its lease was lost is stale, and the others of the request are settled", () =>
  Effect.gen(function*() {
    const { job, process, request, store, submit } = yield* World.make
    const remote = yield* process
    const lost = yield* submit()
    const taken = yield* remote.claim(request())
    const token = (yield* store.look).leases[0]!.token
    yield* store.reclaim([{ lease: taken.lease, token }], { counted: true, lossesMax: 7 })
    const kept = yield* submit()
    const others = yield* remote.claim(request({ types: taken.jobs.map(({ type }) => type) }))
    assert.deepStrictEqual(
      yield* remote.settle([
        { claim: World.claimOf(taken), outcome: completed },
        { claim: World.claimOf(others, kept), outcome: completed }
      ]),
      { settled: [kept], stale: [lost], undecided: [] }
    )
    assert.deepInclude(yield* job(lost), { staleWrites: 1, attempts: 0 })
  }).pipe(Effect.scoped))

it.live("two claims of one job in one request are each answered", () =>
  Effect.gen(function*() {
    const { job, process, request, submit } = yield* World.make
    const remote = yield* process
    const id = yield* submit()
    const one = World.claimOf(yield* remote.claim(request()))
    yield* remote.settle([{ claim: one, outcome: { _tag: "Released", started: true } }])
    const two = World.claimOf(yield* remote.claim(request()))
    assert.deepStrictEqual(
      yield* remote.settle([{ claim: one, outcome: completed }, { claim: two, outcome: completed }]),
      { settled: [id, id], stale: [], undecided: [] }
    )
    assert.deepInclude(yield* job(id), { state: "completed", deliveries: 2 })
  }).pipe(Effect.scoped))

it.live("a lease's record goes with the last of its jobs, and not before", () =>
  Effect.gen(function*() {
    const { calls, process, request, store, submit } = yield* World.make
    const [granting, other] = [yield* process, yield* process]
    const [first, second] = [yield* submit(), yield* submit()]
    const claims = yield* granting.claim(request())
    yield* granting.settle([{ claim: World.claimOf(claims, first), outcome: completed }])
    yield* eventually("it was tried", Effect.sync(() => (calls.get("endLeases") ?? 0) > 0))
    assert.strictEqual((yield* store.look).leases.length, 1)
    yield* other.settle([{ claim: World.claimOf(claims, second), outcome: completed }])
    yield* eventually("it is gone", Effect.map(store.look, ({ leases }) => leases.length === 0), "3 seconds")
    assert.deepStrictEqual((yield* granting.heartbeat("py", [claims.lease])).lost, [claims.lease])
  }).pipe(Effect.scoped))

it.live("a lease whose end could not be told is told with the next ones", () =>
  Effect.gen(function*() {
    const { calls, faults, process, request, store, submit } = yield* World.make
    const remote = yield* process
    const end = Effect.gen(function*() {
      yield* submit()
      const claims = yield* remote.claim(request())
      yield* remote.settle([{ claim: World.claimOf(claims), outcome: completed }])
    })
    faults.set("endLeases", "away")
    yield* end
    yield* eventually("it was tried", Effect.sync(() => (calls.get("endLeases") ?? 0) > 0))
    faults.clear()
    yield* end
    yield* eventually("both are gone", Effect.map(store.look, ({ leases }) => leases.length === 0), "3 seconds")
  }).pipe(Effect.scoped))

it.live("what is locked is tried again alone, and named where it stays so", () =>
  Effect.gen(function*() {
    const world = yield* World.make
    const [free, locked] = [yield* world.submit(), yield* world.submit()]
    let until = 2
    const remote = yield* world.processOver((store) => ({
      ...store,
      settle: (settlements) =>
        Effect.map(
          store.settle(settlements.filter(({ claim }) => claim.id !== locked || until <= 0)),
          (answers) => {
            const left = [...answers]
            const out = settlements.map(({ claim }) =>
              claim.id === locked && until > 0 ? { _tag: "Undecided" } as const : left.shift()!
            )
            until -= 1
            return out
          }
        )
    }))
    const claims = yield* remote.claim(world.request())
    const both = [free, locked].map((id) => ({ claim: World.claimOf(claims, id), outcome: completed }))
    until = 1_000
    assert.deepStrictEqual(yield* remote.settle(both), { settled: [free], stale: [], undecided: [locked] })
    until = 2
    assert.deepStrictEqual(yield* remote.settle(both), { settled: [free, locked], stale: [], undecided: [] })
  }).pipe(Effect.scoped))

it.effect("what stays locked has not ended, and a repeat is told as settled and counted by nobody", () =>
  Effect.gen(function*() {
    const world = yield* World.make
    const ended: Array<string> = []
    const answers: Array<Settled> = [{ _tag: "Undecided" }, { _tag: "Settled", repeated: true }]
    const { settle } = yield* Outcomes.make({
      grants: Grants.make(),
      now: () => 0,
      ended: (lease) => ended.push(lease)
    }).pipe(Effect.provideService(JobStore, {
      ...world.store,
      settle: (settlements) => Effect.sync(() => settlements.map(() => answers.shift()!))
    }))
    const claim = { id: yield* Jobs.freshId, epoch: 1, lease: World.lease() } as Claim
    const completions = Metric.value(Meters.counters.completed)
    const before = yield* completions
    const settling = yield* Effect.forkChild(settle([{ claim, outcome: completed }]), { startImmediately: true })
    yield* Effect.yieldNow
    assert.deepStrictEqual(ended, [])
    yield* TestClock.adjust("100 millis")
    assert.deepStrictEqual(yield* Fiber.join(settling), { settled: [claim.id], stale: [], undecided: [] })
    assert.deepStrictEqual(ended, [claim.lease])
    assert.deepStrictEqual(yield* completions, before)
  }).pipe(Effect.scoped))

it.effect("a store that hangs is not waited for beyond what the asker can wait", () =>
  Effect.gen(function*() {
    const world = yield* World.make
    const { settle } = yield* Outcomes.make({ grants: Grants.make(), now: () => 0, ended: () => undefined }).pipe(
      Effect.provideService(JobStore, { ...world.store, settle: () => Effect.never })
    )
    const claim = { id: yield* Jobs.freshId, epoch: 1, lease: World.lease() } as Claim
    const settling = yield* Effect.forkChild(Effect.flip(settle([{ claim, outcome: completed }])))
    yield* TestClock.adjust("3600 millis")
    assert.strictEqual(settling.pollUnsafe()?._tag, "Success")
    assert.strictEqual((yield* Fiber.join(settling)).reason, "store")
  }).pipe(Effect.scoped))

/** A store whose next settle begins, and ends when the gate is opened. What it was given is written down. */
const gated = Effect.gen(function*() {
  const world = yield* World.make
  const gate = Deferred.makeUnsafe<void>()
  const sent: Array<string> = []
  const remote = yield* world.processOver((store) => ({
    ...store,
    settle: (settlements) =>
      Effect.suspend(() => {
        sent.push(...settlements.map(({ claim }) => claim.id))
        return Effect.andThen(Deferred.await(gate), store.settle(settlements))
      })
  }))
  const ids = yield* Effect.forEach(Array.from({ length: 8 }), () => world.submit())
  const claims = yield* remote.claim(world.request())
  const settle = (id: typeof ids[number], outcome = completed) =>
    Effect.forkChild(remote.settle([{ claim: World.claimOf(claims, id), outcome }]), { startImmediately: true })
  return { gate, ids, sent, settle, world }
})

it.live("what was brought by an asker that has gone is not written, unless it was under way", () =>
  Effect.gen(function*() {
    const { gate, ids: [first, second, third], sent, settle, world } = yield* gated
    const under = yield* settle(first!)
    yield* eventually("it is under way", Effect.sync(() => sent.length === 1))
    const gone = yield* settle(second!)
    const stays = yield* settle(third!)
    yield* Effect.sleep("20 millis")
    yield* Fiber.interrupt(gone)
    yield* Fiber.interrupt(under)
    yield* Deferred.succeed(gate, undefined)
    assert.deepStrictEqual((yield* Fiber.join(stays)).settled, [third!])
    assert.deepStrictEqual(sent, [first!, third!])
    assert.strictEqual((yield* world.job(first!)).state, "completed")
    assert.strictEqual((yield* world.job(second!)).state, "running")
  }).pipe(Effect.scoped))

it.live("outcomes that gather behind a slow store are bounded in bytes, and may be brought again", () =>
  Effect.gen(function*() {
    const { gate, ids, sent, settle } = yield* gated
    const large: Outcome = { _tag: "Completed", result: JSON.stringify("x".repeat(12 * 1_048_576)) }
    const fibers = yield* Effect.forEach(ids.slice(0, 6), (id) => settle(id, large))
    const full = yield* Effect.flip(Fiber.join(fibers[5]!))
    assert.strictEqual(full.reason, "full")
    yield* Deferred.succeed(gate, undefined)
    yield* Effect.forEach(fibers.slice(0, 5), Fiber.join)
    assert.lengthOf(sent, 5)
    assert.deepStrictEqual((yield* Fiber.join(yield* settle(ids[5]!, large))).settled, [ids[5]!])
  }).pipe(Effect.scoped))

it.live("many outcomes at once are few statements", () =>
  Effect.gen(function*() {
    const { calls, process, request, submit } = yield* World.make
    const remote = yield* process
    yield* Effect.forEach(Array.from({ length: 100 }), () => submit())
    const claims = yield* remote.claim(request({ limit: 100 }))
    const answers = yield* Effect.forEach(
      claims.jobs,
      ({ id }) => remote.settle([{ claim: World.claimOf(claims, id), outcome: completed }]),
      { concurrency: "unbounded" }
    )
    assert.lengthOf(answers.flatMap(({ settled }) => settled), 100)
    assert.include([1, 2, 3], calls.get("settle"))
  }).pipe(Effect.scoped))
