import { assert, it } from "@effect/vitest"
import { Duration, Effect, Exit, Ref } from "effect"
import { TestClock } from "effect/testing"
import type { JobId } from "../../../src/domain/JobId.ts"
import { JobStore, JobStoreUnavailable } from "../../../src/ports/JobStore.ts"
import { LeaseRegister, LeaseRegisterUnavailable } from "../../../src/ports/LeaseRegister.ts"
import * as KeeperConfig from "../../../src/programs/keeper/KeeperConfig.ts"
import * as Reaper from "../../../src/programs/keeper/Reaper.ts"
import * as Ids from "../../support/Ids.ts"
import * as Stage from "./Stage.ts"

/** What a lease is watched for before it is taken. */
const watchMs = Stage.leaseMs + Stage.heartbeatMs

const provided = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.provide(effect, Stage.memory)

it.effect("a worker that went quiet loses its job after a length and a heartbeat, and not before", () =>
  provided(Effect.gen(function*() {
    const { round } = yield* Reaper.make
    const { id } = yield* Stage.claimed
    yield* round
    yield* Stage.looking(round, watchMs - 200)
    assert.strictEqual((yield* Stage.stateOf(id))?.state, "running")
    yield* Stage.looking(round, 400)
    const job = yield* Stage.stateOf(id)
    assert.strictEqual(job?.state, "pending")
    assert.strictEqual(job?.leaseLosses, 1)
    assert.strictEqual(job?.attempts, 0)
  })))

it.effect("a worker that renews keeps its job for ever", () =>
  provided(Effect.gen(function*() {
    const { round } = yield* Reaper.make
    const { id, lease } = yield* Stage.claimed
    for (let beat = 0; beat < 60; beat++) {
      yield* Stage.looking(round, Stage.heartbeatMs)
      assert.deepStrictEqual(yield* Stage.renew(lease), ["held"])
    }
    assert.strictEqual((yield* Stage.stateOf(id))?.state, "running")
  })))

it.effect("a reaper frozen between its look and its deed takes nothing that was renewed meanwhile", () =>
  provided(Effect.gen(function*() {
    const store = yield* JobStore
    const { id, lease } = yield* Stage.claimed
    // The freeze: between the look's answer and the deed, the worker reaches the row.
    const frozen: JobStore["Service"] = {
      ...store,
      reclaim: (lapsed, options) => Effect.andThen(store.verify([lease]), store.reclaim(lapsed, options))
    }
    const { round } = yield* Reaper.make.pipe(Effect.provideService(JobStore, frozen))
    yield* round
    yield* Stage.looking(round, watchMs + 400)
    assert.strictEqual((yield* Stage.stateOf(id))?.state, "running")
  })))

it.effect("a renewal that reached the register before the mark stops the deed", () =>
  provided(Effect.gen(function*() {
    const register = yield* LeaseRegister
    const { id, lease } = yield* Stage.claimed
    const late: LeaseRegister["Service"] = {
      ...register,
      markLapsed: (one, token) =>
        Effect.andThen(register.renew([{ lease, leaseMs: Stage.leaseMs }]), register.markLapsed(one, token))
    }
    const { round } = yield* Reaper.make.pipe(Effect.provideService(LeaseRegister, late))
    yield* round
    yield* Stage.looking(round, watchMs + 400)
    assert.strictEqual((yield* Stage.stateOf(id))?.state, "running")
  })))

it.effect("a lapse that the register did not mark is no lapse", () =>
  provided(Effect.gen(function*() {
    const register = yield* LeaseRegister
    let silent = true
    const { round } = yield* Reaper.make.pipe(Effect.provideService(LeaseRegister, {
      ...register,
      markLapsed: (lease, token) =>
        silent
          ? Effect.fail(new LeaseRegisterUnavailable({ operation: "markLapsed", cause: "silent" }))
          : register.markLapsed(lease, token)
    }))
    const { id } = yield* Stage.claimed
    yield* round
    yield* Stage.looking(round, watchMs + 1_000)
    assert.strictEqual((yield* Stage.stateOf(id))?.state, "running")
    silent = false
    yield* Stage.looking(round, 200)
    assert.strictEqual((yield* Stage.stateOf(id))?.state, "pending")
  })))

it.effect("a reaper looks twice within the gap that would break a watch, and seldom where there is nothing to watch", () =>
  provided(Effect.gen(function*() {
    const { pause } = yield* Reaper.make.pipe(
      Effect.provide(KeeperConfig.layer({ look: Duration.minutes(1), lookIdle: Duration.seconds(3) }))
    )
    const lengths = [30_000, Stage.leaseMs, 10_000]
    const leases = lengths.map((leaseMs) => ({ lease: Ids.leaseId(), leaseMs, token: "1", worker: "ada", jobs: 1 }))
    for (const [seen, ms] of [[leases, 500], [leases.slice(0, 1), 3_000], [[], 3_000]] as const) {
      const paused = yield* Effect.forkChild(pause(seen), { startImmediately: true })
      yield* TestClock.adjust(Duration.millis(ms - 1))
      assert.isUndefined(paused.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      assert.isDefined(paused.pollUnsafe())
    }
  })))

it.effect("a register that does not answer makes nothing look lapsed for less than two lengths", () =>
  provided(Effect.gen(function*() {
    const away = yield* Ref.make(false)
    const { round } = yield* Reaper.make.pipe(
      Effect.provideServiceEffect(LeaseRegister, Stage.registerAway(away))
    )
    const { id } = yield* Stage.claimed
    yield* round
    yield* Stage.looking(round, Stage.leaseMs)
    yield* Ref.set(away, true)
    yield* Stage.looking(round, 2 * Stage.leaseMs)
    assert.strictEqual((yield* Stage.stateOf(id))?.state, "running")
    yield* Stage.looking(round, 2 * Stage.heartbeatMs)
    assert.strictEqual((yield* Stage.stateOf(id))?.state, "pending")
  })))

it.effect("after the store was away the watch begins anew, and the loss does not count", () =>
  provided(Effect.gen(function*() {
    const away = yield* Ref.make(false)
    const { round } = yield* Reaper.make.pipe(Effect.provideServiceEffect(JobStore, Stage.storeAway(away)))
    yield* Stage.looking(round, 3 * Stage.leaseMs)
    const { id } = yield* Stage.claimed
    yield* Stage.looking(round, Stage.leaseMs)
    yield* Ref.set(away, true)
    yield* Stage.looking(round, Stage.leaseMs)
    yield* Ref.set(away, false)
    yield* Stage.looking(round, watchMs - 200)
    assert.strictEqual((yield* Stage.stateOf(id))?.state, "running")
    yield* Stage.looking(round, 600)
    const job = yield* Stage.stateOf(id)
    assert.strictEqual(job?.state, "pending")
    assert.strictEqual(job?.events.find(({ kind }) => kind === "lease_lost")?.counted, false)
  })))

/** The store, which refuses reclaims while `refuses` says so. */
const refusing = (refuses: () => boolean) =>
  Effect.map(JobStore, (store): JobStore["Service"] => ({
    ...store,
    reclaim: (lapsed, options) =>
      Effect.suspend(() =>
        refuses()
          ? Effect.fail(new JobStoreUnavailable({ operation: "reclaim", cause: "refused" }))
          : store.reclaim(lapsed, options)
      )
  }))

const lossOf = (id: JobId) =>
  Effect.map(Stage.stateOf(id), (job) => job?.events.find(({ kind }) => kind === "lease_lost"))

it.effect("a reclaim that failed once comes again in the next round, and does not count", () =>
  provided(Effect.gen(function*() {
    let refused = 0
    const { round } = yield* Reaper.make.pipe(Effect.provideServiceEffect(JobStore, refusing(() => refused++ === 0)))
    yield* Stage.looking(round, 3 * Stage.leaseMs)
    const { id } = yield* Stage.claimed
    while (refused === 0) {
      yield* Stage.looking(round, 200)
    }
    yield* Stage.looking(round, 200)
    assert.strictEqual((yield* Stage.stateOf(id))?.state, "pending")
    assert.strictEqual((yield* lossOf(id))?.counted, false)
  })))

it.effect("what was lost while the store took no writes does not count, and two lengths later losses count again", () =>
  provided(Effect.gen(function*() {
    let refuses = true
    const { round } = yield* Reaper.make.pipe(Effect.provideServiceEffect(JobStore, refusing(() => refuses)))
    yield* Stage.looking(round, 3 * Stage.leaseMs)
    const { id } = yield* Stage.claimed
    yield* Stage.looking(round, watchMs + 400)
    let failures = 0
    for (let passed = 0; passed < 3 * Stage.leaseMs; passed += 200) {
      yield* TestClock.adjust("200 millis")
      failures += Exit.isFailure(yield* Effect.exit(round)) ? 1 : 0
    }
    assert.isAbove(failures, 0)
    assert.strictEqual((yield* Stage.stateOf(id))?.state, "running")
    refuses = false
    yield* Stage.looking(round, watchMs + 400)
    assert.strictEqual((yield* lossOf(id))?.counted, false)
    yield* Stage.looking(round, 2 * Stage.leaseMs)
    const later = yield* Stage.claimed
    yield* Stage.looking(round, watchMs + 600)
    assert.strictEqual((yield* lossOf(later.id))?.counted, true)
  })))

it.effect("a lapse that was refused begins anew where the store may have forgotten what came meanwhile", () =>
  provided(Effect.gen(function*() {
    let refuses = true
    let incarnation = "one"
    const store = yield* refusing(() => refuses)
    const look = Effect.map(store.look, (seen) => ({ ...seen, incarnation }))
    const { round } = yield* Reaper.make.pipe(Effect.provideService(JobStore, { ...store, look }))
    const { id } = yield* Stage.claimed
    yield* Stage.looking(round, watchMs + 600)
    incarnation = "another"
    refuses = false
    yield* Stage.looking(round, watchMs)
    assert.strictEqual((yield* Stage.stateOf(id))?.state, "running")
    yield* Stage.looking(round, 600)
    assert.strictEqual((yield* Stage.stateOf(id))?.state, "pending")
  })))

it.effect("a worker that renews after its lapse was refused keeps its job", () =>
  provided(Effect.gen(function*() {
    const store = yield* JobStore
    let refuses = true
    const { round } = yield* Reaper.make.pipe(Effect.provideServiceEffect(JobStore, refusing(() => refuses)))
    const { id, lease } = yield* Stage.claimed
    yield* Stage.looking(round, watchMs + 600)
    yield* store.verify([lease])
    refuses = false
    yield* Stage.looking(round, watchMs - 200)
    assert.strictEqual((yield* Stage.stateOf(id))?.state, "running")
  })))

/** What may have been wrong shortly before a lease lapses. */
const reasons = ["nothing", "Postgres", "one look", "the register", "the reaper"] as const

for (const reason of reasons) {
  it.effect(`a loss is held against its job unless something was wrong shortly before: ${reason}`, () =>
    provided(Effect.gen(function*() {
      const store = yield* JobStore
      const register = yield* LeaseRegister
      const restarts = yield* Ref.make(0)
      const away = yield* Ref.make(false)
      const marked = <A extends { readonly incarnation: string }>(look: A) =>
        Effect.map(Ref.get(restarts), (n) => ({ ...look, incarnation: `${look.incarnation}-${n}` }))
      const { round } = yield* Reaper.make.pipe(
        Effect.provideService(
          JobStore,
          reason === "Postgres" ? { ...store, look: Effect.flatMap(store.look, marked) } : yield* Stage.storeAway(away)
        ),
        Effect.provideService(
          LeaseRegister,
          reason === "the register"
            ? { ...register, look: (leases) => Effect.flatMap(register.look(leases), marked) }
            : register
        )
      )
      yield* Stage.looking(round, 3 * Stage.leaseMs)
      const { id } = yield* Stage.claimed
      yield* Ref.set(restarts, 1)
      yield* Ref.set(away, reason === "one look")
      yield* Effect.exit(round)
      yield* Ref.set(away, false)
      yield* TestClock.adjust(reason === "the reaper" ? "2100 millis" : "200 millis")
      yield* Stage.looking(round, watchMs + 1_000)
      const job = yield* Stage.stateOf(id)
      assert.strictEqual(job?.state, "pending")
      const loss = job?.events.find(({ kind }) => kind === "lease_lost")
      assert.strictEqual(loss?.counted, reason === "nothing")
    })))
}

it.effect("while the register is away, however long, no loss is held against its job", () =>
  provided(Effect.gen(function*() {
    const away = yield* Ref.make(false)
    const { round } = yield* Reaper.make.pipe(Effect.provideServiceEffect(LeaseRegister, Stage.registerAway(away)))
    yield* Stage.looking(round, 3 * Stage.leaseMs)
    yield* Ref.set(away, true)
    yield* Stage.looking(round, 3 * Stage.leaseMs)
    const { id } = yield* Stage.claimed
    yield* Stage.looking(round, 2 * Stage.leaseMs + 2 * Stage.heartbeatMs)
    const job = yield* Stage.stateOf(id)
    assert.strictEqual(job?.state, "pending")
    assert.strictEqual(job?.events.find(({ kind }) => kind === "lease_lost")?.counted, false)
  })))

it.effect("a reaper that has just started knows nothing of what was before, and holds no loss against a job", () =>
  provided(Effect.gen(function*() {
    const { id } = yield* Stage.claimed
    const { round } = yield* Reaper.make
    yield* Stage.looking(round, watchMs + 600)
    const job = yield* Stage.stateOf(id)
    assert.strictEqual(job?.state, "pending")
    assert.strictEqual(job?.events.find(({ kind }) => kind === "lease_lost")?.counted, false)
  })))

it.effect("a job that keeps taking its workers down is dead as a crash loop, with the evidence", () =>
  provided(Effect.gen(function*() {
    const { round } = yield* Reaper.make
    const store = yield* JobStore
    // Long enough for the reaper to know that there was no outage before.
    yield* Stage.looking(round, 3 * Stage.leaseMs)
    const { id } = yield* Stage.claimed
    for (let loss = 1; loss <= 3; loss++) {
      yield* Stage.looking(round, watchMs + 1_000)
      if (loss < 3) {
        yield* TestClock.adjust("10 seconds")
        yield* store.promote(10)
        yield* Stage.looking(round, 3 * Stage.leaseMs)
        yield* Stage.claimAgain(`worker-${loss}`)
      }
    }
    const job = yield* Stage.stateOf(id)
    assert.strictEqual(job?.state, "dead")
    assert.strictEqual(job?.reason, "crash_loop")
    assert.deepStrictEqual(
      job?.events.filter(({ kind }) => kind === "lease_lost").map(({ worker }) => worker),
      ["ada", "worker-1", "worker-2"]
    )
  })))

it.effect("two reapers reclaim each orphan once", () =>
  provided(Effect.gen(function*() {
    const one = yield* Reaper.make
    const two = yield* Reaper.make
    const { id } = yield* Stage.claimed
    const both = Effect.all([one.round, two.round], { concurrency: 2 })
    yield* both
    yield* Stage.looking(both, watchMs + 600)
    assert.strictEqual((yield* Stage.stateOf(id))?.leaseLosses, 1)
  })))

/** The store, whose reclaims of some leases take so long, and which notes down what it was asked for. */
const slow = Effect.fnUntraced(function*(slowLeases: ReadonlySet<string>, ms: number) {
  const store = yield* JobStore
  const asked: Array<string> = []
  const reclaim: JobStore["Service"]["reclaim"] = (lapsed, options) => {
    asked.push(...lapsed.map(({ lease }) => lease))
    const wait = lapsed.some(({ lease }) => slowLeases.has(lease)) ? Effect.sleep(ms) : Effect.void
    return Effect.andThen(wait, store.reclaim(lapsed, options))
  }
  return { asked, store: { ...store, reclaim } satisfies JobStore["Service"] }
})

it.effect("a deed that takes long is no gap in the watch, and is not begun a second time", () =>
  provided(Effect.gen(function*() {
    const leases = new Set<string>()
    const { asked, store } = yield* slow(leases, 1_500)
    const { pause, round } = yield* Reaper.make.pipe(Effect.provideService(JobStore, store))
    yield* Effect.forkChild(Effect.forever(Effect.flatMap(round, pause)))
    yield* TestClock.adjust(3 * Stage.leaseMs)
    const first = yield* Stage.claimed
    leases.add(first.lease)
    yield* TestClock.adjust("500 millis")
    const second = yield* Stage.claimed
    // The first lapses, and while it is being taken the second does.
    yield* TestClock.adjust(watchMs + 400)
    assert.strictEqual((yield* Stage.stateOf(first.id))?.state, "running")
    yield* TestClock.adjust("1400 millis")
    assert.deepStrictEqual(asked, [first.lease, second.lease])
    for (const { id } of [first, second]) {
      assert.strictEqual((yield* Stage.stateOf(id))?.state, "pending")
      assert.strictEqual((yield* Stage.stateOf(id))?.leaseLosses, 1)
      assert.strictEqual((yield* lossOf(id))?.counted, true)
    }
  })))

it.effect("a deed that failed beside the looks is told by the rounds until one has worked, and no loss counts near it", () =>
  provided(Effect.gen(function*() {
    let refuses = false
    const store = yield* refusing(() => refuses)
    const late: JobStore["Service"] = {
      ...store,
      reclaim: (lapsed, options) => Effect.andThen(Effect.sleep("1 second"), store.reclaim(lapsed, options))
    }
    const { round } = yield* Reaper.make.pipe(Effect.provideService(JobStore, late))
    yield* Stage.looking(round, 3 * Stage.leaseMs)
    const { id } = yield* Stage.claimed
    refuses = true
    yield* Stage.looking(round, watchMs + 1_600)
    // Most of these rounds see a deed under way.
    for (let passed = 0; passed < 2_000; passed += 200) {
      yield* TestClock.adjust("200 millis")
      assert.isTrue(Exit.isFailure(yield* Effect.exit(round)))
    }
    refuses = false
    yield* Stage.looking(round, 2_400)
    assert.isTrue(Exit.isSuccess(yield* Effect.exit(round)))
    assert.strictEqual((yield* Stage.stateOf(id))?.state, "pending")
    assert.strictEqual((yield* lossOf(id))?.counted, false)
  })))

it.effect("a deed that failed is told no longer than there is something to be taken", () =>
  provided(Effect.gen(function*() {
    let refuses = false
    const store = yield* JobStore
    const { round } = yield* Reaper.make.pipe(Effect.provideServiceEffect(JobStore, refusing(() => refuses)))
    const { lease } = yield* Stage.claimed
    refuses = true
    yield* Stage.looking(round, watchMs + 600)
    assert.isTrue(Exit.isFailure(yield* Effect.exit(round)))
    // Another reaper has it done.
    const { leases } = yield* store.look
    yield* store.reclaim([{ lease, token: leases[0]!.token }], { counted: true, lossesMax: 3 })
    assert.isTrue(Exit.isSuccess(yield* Effect.exit(round)))
  })))

it.effect("a look that was under way when a deed ended begins no second one for what that took", () =>
  provided(Effect.gen(function*() {
    const leases = new Set<string>()
    const { asked, store } = yield* slow(leases, 350)
    const late: JobStore["Service"] = { ...store, look: Effect.tap(store.look, () => Effect.sleep("200 millis")) }
    const { round } = yield* Reaper.make.pipe(Effect.provideService(JobStore, late))
    yield* Effect.forkChild(Effect.forever(Effect.andThen(round, Effect.sleep("50 millis"))))
    const { id, lease } = yield* Stage.claimed
    leases.add(lease)
    yield* TestClock.adjust(watchMs + 2_000)
    assert.strictEqual((yield* Stage.stateOf(id))?.state, "pending")
    assert.deepStrictEqual(asked, [lease])
  })))

it.effect("trouble that comes between the look and the deed is trouble too", () =>
  provided(Effect.gen(function*() {
    const register = yield* LeaseRegister
    const away = yield* Ref.make(false)
    // The mark is long under way, and meanwhile a look fails.
    const late: LeaseRegister["Service"] = {
      ...register,
      markLapsed: (lease, token) => Effect.andThen(Effect.sleep("500 millis"), register.markLapsed(lease, token))
    }
    const { round } = yield* Reaper.make.pipe(
      Effect.provideServiceEffect(JobStore, Stage.storeAway(away)),
      Effect.provideService(LeaseRegister, late)
    )
    yield* Stage.looking(round, 3 * Stage.leaseMs)
    const { id } = yield* Stage.claimed
    yield* Stage.looking(round, watchMs + 200)
    yield* Ref.set(away, true)
    yield* Stage.looking(round, 200)
    yield* Ref.set(away, false)
    yield* Stage.looking(round, 600)
    assert.strictEqual((yield* Stage.stateOf(id))?.state, "pending")
    assert.strictEqual((yield* lossOf(id))?.counted, false)
  })))

it.effect("a deed that takes so long that something must be wrong counts no loss against what lapses next", () =>
  provided(Effect.gen(function*() {
    const leases = new Set<string>()
    const { store } = yield* slow(leases, 2_500)
    const { pause, round } = yield* Reaper.make.pipe(Effect.provideService(JobStore, store))
    yield* Effect.forkChild(Effect.forever(Effect.flatMap(round, pause)))
    yield* TestClock.adjust(3 * Stage.leaseMs)
    const first = yield* Stage.claimed
    leases.add(first.lease)
    yield* TestClock.adjust("500 millis")
    const second = yield* Stage.claimed
    yield* TestClock.adjust(watchMs + 3_000)
    assert.strictEqual((yield* Stage.stateOf(second.id))?.state, "pending")
    assert.strictEqual((yield* lossOf(second.id))?.counted, false)
  })))
