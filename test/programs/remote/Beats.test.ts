/** Heartbeats of workers elsewhere: at any process, with the register or the store away, and past a timeout. */
import { assert, it } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { guestsMax } from "../../../src/programs/remote/Guests.ts"
import { eventually } from "../../support/Eventually.ts"
import * as World from "./World.ts"

const nothing = { held: [], lost: [], revoked: [] }

it.live("a lease that another process granted is held here, and one that nobody granted is lost", () =>
  Effect.gen(function*() {
    const { process, register, request, submit } = yield* World.make
    const [granting, other] = [yield* process, yield* process]
    yield* submit()
    const { lease } = yield* granting.claim(request())
    const strange = World.lease()
    assert.deepStrictEqual(yield* other.heartbeat("py", [strange, lease]), {
      ...nothing,
      held: [lease],
      lost: [strange]
    })
    // The register was told, so that a reaper that watches it sees the renewals.
    assert.deepStrictEqual(yield* register.renew([{ lease, leaseMs: 5_000 }]), ["held"])
    assert.deepStrictEqual(yield* other.heartbeat("py", []), nothing)
  }).pipe(Effect.scoped))

it.live("each heartbeat moves what a reaper watches", () =>
  Effect.gen(function*() {
    const { process, register, request, store, submit } = yield* World.make
    const remote = yield* process
    yield* submit()
    const { lease } = yield* remote.claim(request())
    const tokens = Effect.zip(
      Effect.map(register.look([lease]), (look) => look.tokens.get(lease)),
      Effect.map(store.look, ({ leases }) => leases.find((one) => one.lease === lease)?.token)
    )
    let before = yield* tokens
    for (let n = 0; n < 4; n++) {
      yield* remote.heartbeat("py", [lease])
      const after = yield* tokens
      assert.notDeepEqual(after, before)
      before = after
    }
    assert.isDefined(before[0], "the register knows it")
  }).pipe(Effect.scoped))

it.live("what was reclaimed is lost at the next heartbeat, though the register knows it still", () =>
  Effect.gen(function*() {
    const { job, process, register, request, store, submit } = yield* World.make
    const remote = yield* process
    const id = yield* submit()
    const { lease } = yield* remote.claim(request({ leaseMs: 500 }))
    yield* remote.heartbeat("py", [lease])
    const token = (yield* store.look).leases[0]!.token
    yield* register.markLapsed(lease, (yield* register.look([lease])).tokens.get(lease) ?? null)
    yield* store.reclaim([{ lease, token }], { counted: true, lossesMax: 7 })
    assert.deepStrictEqual(yield* remote.heartbeat("py", [lease]), { ...nothing, lost: [lease] })
    // What the register says of it from now on is nobody's.
    yield* register.release([lease])
    yield* register.hold([{ lease, leaseMs: 500 }])
    assert.deepStrictEqual(yield* remote.heartbeat("py", [lease]), { ...nothing, lost: [lease] })
    assert.deepInclude(yield* job(id), { state: "pending", leaseLosses: 1 })
  }).pipe(Effect.scoped))

it.live("a record that is gone is noticed within a length of the lease, though the register goes on renewing it", () =>
  Effect.gen(function*() {
    const { process, request, store, submit } = yield* World.make
    const remote = yield* process
    yield* submit()
    const { lease } = yield* remote.claim(request({ leaseMs: 1_000 }))
    assert.deepStrictEqual((yield* remote.heartbeat("py", [lease])).held, [lease])
    // As after a failover that has lost the claim: nobody has marked anything.
    const token = (yield* store.look).leases[0]!.token
    yield* store.reclaim([{ lease, token }], { counted: true, lossesMax: 7 })
    yield* eventually(
      "it is lost",
      Effect.map(remote.heartbeat("py", [lease]), ({ lost }) => lost.includes(lease)),
      "3 seconds"
    )
  }).pipe(Effect.scoped))

it.live("with the register away the record decides, and with the store away the register for one length", () =>
  Effect.gen(function*() {
    const { faults, process, request, submit } = yield* World.make
    const remote = yield* process
    yield* submit()
    const { lease } = yield* remote.claim(request({ leaseMs: 1_000 }))
    yield* remote.heartbeat("py", [lease])
    faults.set("renew", "away").set("hold", "away")
    assert.deepStrictEqual((yield* remote.heartbeat("py", [lease])).held, [lease])
    faults.clear()
    yield* remote.heartbeat("py", [lease])
    faults.set("verify", "away")
    assert.deepStrictEqual((yield* remote.heartbeat("py", [lease])).held, [lease])
    faults.set("renew", "away")
    assert.strictEqual((yield* Effect.flip(remote.heartbeat("py", [lease]))).reason, "store")
    // Nothing is decided about it, so it is neither held nor lost.
    faults.clear()
    assert.deepStrictEqual((yield* remote.heartbeat("py", [lease])).held, [lease])
  }).pipe(Effect.scoped))

it.live("a claim that was cut off is told with every heartbeat, at every process", () =>
  Effect.gen(function*() {
    const { process, request, store, submit } = yield* World.make
    const remote = yield* process
    const id = yield* submit()
    yield* submit()
    const { lease } = yield* remote.claim(request())
    yield* remote.heartbeat("py", [lease])
    yield* store.cancel(id)
    const revoked = [{ id, epoch: 1, reason: "cancelled" }]
    yield* eventually(
      "it is told",
      Effect.map(remote.heartbeat("py", [lease]), (beat) => beat.revoked.length === 1),
      "2 seconds"
    )
    assert.deepStrictEqual(yield* remote.heartbeat("py", [lease]), { held: [lease], lost: [], revoked })
    assert.deepStrictEqual(yield* (yield* process).heartbeat("py", [lease]), { held: [lease], lost: [], revoked })
  }).pipe(Effect.scoped))

it.live("a claim that was cut off is told also where the store was away when the register hinted at it", () =>
  Effect.gen(function*() {
    const { faults, process, register, request, store, submit } = yield* World.make
    const remote = yield* process
    const id = yield* submit()
    const { lease } = yield* remote.claim(request({ leaseMs: 600_000 }))
    yield* remote.heartbeat("py", [lease])
    faults.set("verify", "away")
    yield* store.cancel(id)
    yield* register.flag([lease])
    assert.deepStrictEqual(yield* remote.heartbeat("py", [lease]), { ...nothing, held: [lease] })
    faults.clear()
    assert.deepStrictEqual((yield* remote.heartbeat("py", [lease])).revoked, [{ id, epoch: 1, reason: "cancelled" }])
  }).pipe(Effect.scoped))

it.live("an attempt past its timeout is ended at any process, whenever it first heard of it, and not before its grace", () =>
  Effect.gen(function*() {
    const { job, process, request, submit } = yield* World.make
    const [granting, other] = [yield* process, yield* process]
    const timeoutMs = 700
    const id = yield* submit({ timeoutMs })
    yield* submit()
    const fromMs = yield* Clock.currentTimeMillis
    const { lease } = yield* granting.claim(request())
    // More than are read at once.
    yield* Effect.forEach(Array.from({ length: 60 }), () => submit({ timeoutMs }))
    yield* submit()
    const many = yield* granting.claim(request({ limit: 61 }))
    yield* Effect.sleep("500 millis")
    const beat = Effect.all([granting.heartbeat("py", [lease]), other.heartbeat("py", [many.lease])])
    yield* eventually(
      "one is cut off",
      Effect.map(beat, (beats) => beats.some(({ revoked }) => revoked.length > 0)),
      "5 seconds"
    )
    assert.isAtLeast((yield* Clock.currentTimeMillis) - fromMs, 1_700)
    // Whoever counted from another time would be later than this.
    yield* Effect.sleep("300 millis")
    const [here, there] = yield* beat
    assert.deepStrictEqual(here.revoked, [{ id, epoch: 1, reason: "timeout" }])
    assert.lengthOf(there.revoked, 60)
    assert.deepStrictEqual([...here.held, ...there.held], [lease, many.lease])
    yield* eventually("it has failed", Effect.map(job(id), ({ state }) => state === "failed"), "2 seconds")
    const failed = yield* job(id)
    assert.deepInclude(failed, { attempts: 1, leaseLosses: 0 })
    assert.deepInclude(failed.errors[0], { name: "Timeout", message: "The run did not end within its 700 ms." })
  }).pipe(Effect.scoped))

it.live("a job that has ended at another process is not timed out at this one, which remembers it", () =>
  Effect.gen(function*() {
    const { process, request, submit } = yield* World.make
    const [granting, other] = [yield* process, yield* process]
    const id = yield* submit({ timeoutMs: 700 })
    yield* submit()
    const claims = yield* granting.claim(request({ leaseMs: 1_000 }))
    const { lease } = claims
    yield* other.settle([{ claim: World.claimOf(claims, id), outcome: { _tag: "Completed", result: null } }])
    const fromMs = yield* Clock.currentTimeMillis
    while ((yield* Clock.currentTimeMillis) - fromMs < 2_300) {
      assert.deepStrictEqual(yield* granting.heartbeat("py", [lease]), { ...nothing, held: [lease] })
      yield* Effect.sleep("100 millis")
    }
  }).pipe(Effect.scoped))

it.live("many heartbeats at once are few calls", () =>
  Effect.gen(function*() {
    const { calls, process, request, submit } = yield* World.make
    const remote = yield* process
    const leases = yield* Effect.forEach(
      Array.from({ length: 50 }),
      () => Effect.andThen(submit(), Effect.map(remote.claim(request({ limit: 1 })), ({ lease }) => lease))
    )
    const beats = yield* Effect.forEach(leases, (lease) => remote.heartbeat("py", [lease]), {
      concurrency: "unbounded"
    })
    assert.deepStrictEqual(beats.map(({ held }) => held), leases.map((lease) => [lease]))
    assert.include([1, 2, 3, 4], calls.get("verify"))
  }).pipe(Effect.scoped))

it.live("workers are listed by name, few, and apart from processes", () =>
  Effect.gen(function*() {
    const { process, request, sessions, submit } = yield* World.make
    const remote = yield* process
    yield* submit()
    yield* remote.claim(request({ worker: "first" }))
    for (let n = 0; n < guestsMax + 100; n++) {
      yield* remote.heartbeat(`crowd-${n}`, [])
    }
    yield* eventually(
      "some are listed",
      Effect.map(sessions.list(15_000), (listed) => listed.length >= 20 && listed.length <= guestsMax)
    )
    const listed = yield* sessions.list(15_000)
    // Whoever was heard of longest ago gives way, else it would have been said first.
    assert.isFalse(listed.some(({ name }) => name === "http:first"))
    assert.isTrue(listed.every(({ counters, name, role }) =>
      name.startsWith("http:") && role === "http" && Object.keys(counters).length === 0
    ))
  }).pipe(Effect.scoped))
