/** Claims for workers elsewhere: repeats, lost answers, askers that go away, and waits that share their looks. */
import { assert, it } from "@effect/vitest"
import { Clock, Deferred, Effect, Fiber } from "effect"
import { askersMax } from "../../../src/programs/remote/Claims.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Jobs from "../../support/Jobs.ts"
import { pass } from "../../support/WorkerWorld.ts"
import * as World from "./World.ts"

const ids = ({ jobs }: { readonly jobs: ReadonlyArray<{ readonly id: string }> }) => jobs.map(({ id }) => id)

it.live("a claim whose answer was lost is answered when it is asked again under its lease", () =>
  Effect.gen(function*() {
    const { faults, job, process, request, submit } = yield* World.make
    const remote = yield* process
    const id = yield* submit()
    const lease = World.lease()
    faults.set("claim", "lost")
    const error = yield* Effect.flip(remote.claim(request({ lease })))
    assert.strictEqual(error.reason, "store")
    faults.clear()
    // At another process: nothing here remembers it.
    const other = yield* process
    assert.deepStrictEqual(ids(yield* other.claim(request({ lease }))), [id])
    const found = yield* job(id)
    assert.deepInclude(found, { state: "running", deliveries: 1, epoch: 1, leaseLosses: 0 })
  }).pipe(Effect.scoped))

it.live("what a lost claim took under a lease drawn here is handed back, though the store is away at first", () =>
  Effect.gen(function*() {
    const { faults, job, process, request, submit } = yield* World.make
    const remote = yield* process
    const id = yield* submit()
    faults.set("claim", "lost").set("abandon", "away")
    yield* Effect.flip(remote.claim(request()))
    assert.strictEqual((yield* job(id)).state, "running")
    faults.clear()
    yield* eventually("it is handed back", Effect.map(job(id), ({ state }) => state === "pending"))
    assert.deepInclude(yield* job(id), { leaseLosses: 0, attempts: 0, events: [] })
  }).pipe(Effect.scoped))

it.live("what a claim took whose asker has gone is handed back at once", () =>
  Effect.gen(function*() {
    const { faults, job, process, request, submit } = yield* World.make
    const remote = yield* process
    const id = yield* submit()
    const gate = Deferred.makeUnsafe<void>()
    faults.set("claim", gate)
    const asking = yield* Effect.forkChild(remote.claim(request({ waitMs: 30_000 })))
    yield* eventually("it is taken", Effect.map(job(id), ({ state }) => state === "running"))
    yield* Fiber.interrupt(asking)
    yield* Deferred.succeed(gate, undefined)
    yield* eventually("it is handed back", Effect.map(job(id), ({ state }) => state === "pending"))
    assert.deepInclude(yield* job(id), { leaseLosses: 0, attempts: 0 })
    assert.deepStrictEqual(ids(yield* remote.claim(request())), [id])
  }).pipe(Effect.scoped))

it.live("who asks again under a lease while its claim is under way gets what that takes", () =>
  Effect.gen(function*() {
    const { faults, job, process, request, submit } = yield* World.make
    const remote = yield* process
    const id = yield* submit()
    const lease = World.lease()
    const gate = Deferred.makeUnsafe<void>()
    faults.set("claim", gate)
    const first = yield* Effect.forkChild(remote.claim(request({ lease })))
    const second = yield* Effect.forkChild(Effect.andThen(
      Effect.sleep("50 millis"),
      remote.claim(request({ lease, waitMs: 5_000 }))
    ))
    assert.deepStrictEqual(ids(yield* Fiber.join(first)), [])
    yield* Fiber.interrupt(first)
    yield* Deferred.succeed(gate, undefined)
    assert.deepStrictEqual(ids(yield* Fiber.join(second)), [id])
    assert.deepInclude(yield* job(id), { state: "running", deliveries: 1 })
  }).pipe(Effect.scoped))

it.live("an unread answer is handed back, unless its lease was asked for again or heard of since", () =>
  Effect.gen(function*() {
    const { job, process, request, submit } = yield* World.make
    const remote = yield* process
    const lease = World.lease()
    const id = yield* submit()
    const first = yield* remote.claim(request({ lease }))
    const second = yield* remote.claim(request({ lease }))
    assert.deepStrictEqual([ids(first), ids(second)], [[id], [id]])
    yield* remote.unread(first)
    assert.strictEqual((yield* job(id)).state, "running")
    yield* remote.heartbeat("py", [lease])
    yield* remote.unread(second)
    assert.strictEqual((yield* job(id)).state, "running")
    const other = yield* submit()
    const third = yield* remote.claim(request())
    yield* remote.unread(third)
    assert.deepInclude(yield* job(other), { state: "pending", leaseLosses: 0, attempts: 0 })
  }).pipe(Effect.scoped))

it.live("an unread answer that is handed back late takes nothing from who has got it at another process since", () =>
  Effect.gen(function*() {
    const { job, process, processOver, request, submit } = yield* World.make
    const begun = Deferred.makeUnsafe<void>()
    const gate = Deferred.makeUnsafe<void>()
    const late = <A, E>(deed: Effect.Effect<A, E>) =>
      Deferred.succeed(begun, undefined).pipe(Effect.andThen(Deferred.await(gate)), Effect.andThen(deed))
    const slow = yield* processOver((store) => ({
      ...store,
      abandon: (leases) => late(store.abandon(leases)),
      handBack: (lease, token) => late(store.handBack(lease, token))
    }))
    const other = yield* process
    const lease = World.lease()
    const id = yield* submit()
    const unread = yield* Effect.forkChild(
      Effect.flatMap(slow.claim(request({ lease })), slow.unread)
    )
    yield* Deferred.await(begun)
    const again = yield* other.claim(request({ lease }))
    assert.deepStrictEqual(ids(again), [id])
    yield* Deferred.succeed(gate, undefined)
    yield* Fiber.join(unread)
    assert.strictEqual((yield* job(id)).state, "running")
    const settled = yield* other.settle([{ claim: World.claimOf(again), outcome: { _tag: "Completed", result: null } }])
    assert.deepStrictEqual(settled.settled, [id])
    assert.deepInclude(yield* job(id), { state: "completed", deliveries: 1 })
  }).pipe(Effect.scoped))

it.live("an unread answer that was asked for again at its own process is handed back by the last of the two", () =>
  Effect.gen(function*() {
    const { job, process, request, submit } = yield* World.make
    const remote = yield* process
    const lease = World.lease()
    const id = yield* submit()
    yield* remote.claim(request({ lease }))
    const again = yield* remote.claim(request({ lease }))
    yield* remote.unread(again)
    assert.deepInclude(yield* job(id), { state: "pending", leaseLosses: 0, attempts: 0 })
  }).pipe(Effect.scoped))

it.live("hundreds that wait for the same cost what one costs, and none of them gets what another got", () =>
  Effect.gen(function*() {
    const { calls, process, request, submit } = yield* World.make
    const remote = yield* process
    const claims = () => calls.get("claim") ?? 0
    const got: Array<ReadonlyArray<string>> = []
    const waiting = yield* Effect.forEach(
      Array.from({ length: 400 }),
      (_, n) =>
        Effect.forkChild(Effect.map(
          remote.claim(request({ worker: `w-${n}`, waitMs: 30_000, limit: 1 })),
          (answer) => got.push(ids(answer))
        ))
    )
    yield* eventually("all have looked once", Effect.sync(() => claims() >= 400))
    const [looked, fromMs] = [claims(), yield* Clock.currentTimeMillis]
    yield* Effect.sleep("2500 millis")
    // About a look each second without a wake, of one of them.
    assert.isAtMost(claims() - looked, 2 * ((yield* Clock.currentTimeMillis) - fromMs) / 1_000)
    const before = claims()
    const submitted = [yield* submit(), yield* submit(), yield* submit()]
    yield* eventually("three have one each", Effect.sync(() => got.length >= 3))
    yield* Effect.sleep("200 millis")
    yield* Effect.forEach(waiting, Fiber.interrupt, { concurrency: "unbounded" })
    assert.deepStrictEqual(got.map(({ length }) => length), [1, 1, 1])
    assert.deepStrictEqual(got.flat().sort(), [...submitted].sort())
    assert.isAtMost(claims() - before, 15)
  }).pipe(Effect.scoped))

it.effect("a wait is ended at once by what becomes ready, by a wake and not by chance", () =>
  Effect.gen(function*() {
    const { process, request, submit } = yield* World.make
    const remote = yield* process
    for (let n = 0; n < 5; n++) {
      const waiting = yield* Effect.forkChild(remote.claim(request({ waitMs: 10_000 })))
      yield* pass(150)
      assert.isUndefined(waiting.pollUnsafe())
      yield* submit()
      // By looking alone it would be half a second.
      yield* pass(50, 10)
      assert.isDefined(waiting.pollUnsafe(), `round ${n}`)
    }
  }).pipe(Effect.scoped))

it.effect("what becomes ready while a claim that took nothing is under way is looked for behind it", () =>
  Effect.gen(function*() {
    const { calls, faults, process, request, submit } = yield* World.make
    const remote = yield* process
    const gate = Deferred.makeUnsafe<void>()
    faults.set("claim", gate)
    const waiting = yield* Effect.forkChild(remote.claim(request({ waitMs: 10_000 })))
    yield* pass(20)
    assert.strictEqual(calls.get("claim"), 1)
    const id = yield* submit()
    yield* pass(20)
    faults.clear()
    yield* Deferred.succeed(gate, undefined)
    yield* pass(50, 10)
    assert.isDefined(waiting.pollUnsafe(), "by looking alone it would be half a second")
    assert.deepStrictEqual(ids(yield* Fiber.join(waiting)), [id])
  }).pipe(Effect.scoped))

it.effect("what was taken under a lease at another process meanwhile is told at the end of the wait", () =>
  Effect.gen(function*() {
    const { process, request, store, type } = yield* World.make
    const remote = yield* process
    const lease = World.lease()
    const waiting = yield* Effect.forkChild(remote.claim(request({ lease, waitMs: 300 })))
    yield* pass(100)
    const job = yield* Jobs.job({ type })
    yield* store.submit([job], { atomic: false })
    yield* store.claim({ lease, leaseMs: 5_000, worker: "py", types: [type], limit: 1, freeSlots: 1, bytes: 1_000 })
    yield* pass(250)
    assert.deepStrictEqual(ids(yield* Fiber.join(waiting)), [job.id])
  }).pipe(Effect.scoped))

it.effect("few claims are under way at once, however many ask for whatever", () =>
  Effect.gen(function*() {
    const { calls, faults, process, request } = yield* World.make
    const remote = yield* process
    const gate = Deferred.makeUnsafe<void>()
    faults.set("claim", gate)
    const asking = yield* Effect.forEach(
      Array.from({ length: 10 }),
      () => Effect.flatMap(Jobs.freshType, (type) => Effect.forkChild(remote.claim(request({ types: [type] }))))
    )
    yield* pass(50)
    assert.strictEqual(calls.get("claim"), 4)
    yield* Deferred.succeed(gate, undefined)
    yield* pass(50)
    assert.deepStrictEqual((yield* Effect.forEach(asking, Fiber.join)).flatMap(ids), [])
    assert.strictEqual(calls.get("claim"), 10)
  }).pipe(Effect.scoped))

it.effect("what nobody was told of is found by looking", () =>
  Effect.gen(function*() {
    const { process, request, store, type } = yield* World.make
    const remote = yield* process
    const waiting = yield* Effect.forkChild(remote.claim(request({ waitMs: 10_000 })))
    yield* pass(200)
    yield* store.submit([yield* Jobs.job({ type })], { atomic: false })
    yield* pass(3_000)
    assert.isDefined(waiting.pollUnsafe())
    assert.strictEqual((yield* Fiber.join(waiting)).jobs.length, 1)
  }).pipe(Effect.scoped))

it.live("being woken in vain all the time does not make a row look all the time", () =>
  Effect.gen(function*() {
    const { calls, process, request, transport } = yield* World.make
    const remote = yield* process
    const waiting = yield* Effect.forkChild(remote.claim(request({ waitMs: 2_000 })))
    const waking = yield* Effect.forkChild(
      Effect.forever(Effect.andThen(transport.wake([{ _tag: "Ready" }]), Effect.sleep("1 millis")))
    )
    assert.deepStrictEqual((yield* Fiber.join(waiting)).jobs, [])
    yield* Fiber.interrupt(waking)
    const claims = calls.get("claim") ?? 0
    assert.isAtMost(claims, 40)
    assert.isAbove(claims, 1, "it was woken")
  }).pipe(Effect.scoped))

it.live("a process that is told to stop ends its waits, and what a claim under way takes is answered all the same", () =>
  Effect.gen(function*() {
    const { calls, faults, process, request, stopping, submit } = yield* World.make
    const remote = yield* process
    const waiting = yield* Effect.forkChild(Effect.flip(remote.claim(request({ waitMs: 30_000 }))))
    yield* eventually("it has looked", Effect.sync(() => (calls.get("claim") ?? 0) > 0))
    yield* Effect.sleep("100 millis")
    const gate = Deferred.makeUnsafe<void>()
    faults.set("claim", gate)
    const before = calls.get("claim") ?? 0
    const id = yield* submit()
    yield* eventually("it looks again", Effect.sync(() => (calls.get("claim") ?? 0) > before))
    yield* stopping.begin
    yield* Effect.sleep("50 millis")
    assert.strictEqual((yield* Effect.flip(remote.claim(request()))).reason, "stopping")
    yield* Deferred.succeed(gate, undefined)
    // The one that waited had its claim under way.
    const ended = yield* Effect.exit(Fiber.join(waiting))
    assert.strictEqual(ended._tag, "Failure", `it should have got ${id}`)
  }).pipe(Effect.scoped))

it.live("those that ask are bounded", () =>
  Effect.gen(function*() {
    const { process, request } = yield* World.make
    const remote = yield* process
    yield* Effect.forEach(
      Array.from({ length: askersMax }),
      () => Effect.forkChild(remote.claim(request({ waitMs: 20_000 })), { startImmediately: true })
    )
    assert.strictEqual((yield* Effect.flip(remote.claim(request()))).reason, "full")
  }).pipe(Effect.scoped))

it.live("a queue with a limit gives each worker so many, and none waits behind one that may take no more", () =>
  Effect.gen(function*() {
    const { limit, process, processOver, request, submit } = yield* World.make
    const counted: Array<boolean | undefined> = []
    const remote = yield* processOver((store) => ({
      ...store,
      claim: (asked) => {
        counted.push(asked.limitsByName)
        return store.claim(asked)
      }
    }))
    const queue = yield* Jobs.freshQueue
    yield* remote.claim(request())
    assert.deepStrictEqual(counted, [false], "without a limit nobody counts")
    yield* limit(queue, 2)
    // Another process has read nothing yet.
    const other = yield* process
    const submitted = yield* Effect.forEach(Array.from({ length: 5 }), () => submit({ queue }))
    const full = yield* other.claim(request({ worker: "one" }))
    assert.strictEqual(full.jobs.length, 2)
    const first = yield* Effect.forkChild(other.claim(request({ worker: "one", waitMs: 8_000 })))
    yield* Effect.sleep("100 millis")
    const second = yield* other.claim(request({ worker: "two", waitMs: 8_000 }))
    assert.strictEqual(second.jobs.length, 2)
    yield* other.settle([{ claim: World.claimOf(full), outcome: { _tag: "Completed", result: null } }])
    const third = yield* Effect.timeout(Fiber.join(first), "3 seconds")
    assert.deepStrictEqual([...full.jobs, ...second.jobs, ...third.jobs].map(({ id }) => id).sort(), submitted.sort())
  }).pipe(Effect.scoped))

it.live("claims of one worker at once, here and elsewhere, take no more of a limited queue than it may", () =>
  Effect.gen(function*() {
    const { limit, processOver, request, submit } = yield* World.make
    // As over a network; and how many of one worker are sent by one process at a time.
    const slow = Effect.gen(function*() {
      const underWay = new Map<string, number>()
      const seen = { most: 0 }
      const remote = yield* processOver((store) => ({
        ...store,
        claim: (asked) =>
          Effect.suspend(() => {
            const now = (underWay.get(asked.worker) ?? 0) + 1
            underWay.set(asked.worker, now)
            seen.most = Math.max(seen.most, now)
            return Effect.andThen(Effect.sleep("30 millis"), store.claim(asked))
          }).pipe(Effect.ensuring(Effect.sync(() => underWay.set(asked.worker, underWay.get(asked.worker)! - 1))))
      }))
      return { remote, seen }
    })
    const [here, there] = [yield* slow, yield* slow]
    const queue = yield* Jobs.freshQueue
    yield* limit(queue, 2)
    yield* Effect.forEach(Array.from({ length: 9 }), () => submit({ queue }))
    const claims = (worker: string) =>
      Effect.forEach([here, there, here, there, here], ({ remote }) => remote.claim(request({ worker })), {
        concurrency: "unbounded"
      })
    const [one, two] = yield* Effect.all([claims("one"), claims("two")], { concurrency: 2 })
    assert.deepStrictEqual([one.flatMap(ids).length, two.flatMap(ids).length], [2, 2])
    assert.deepStrictEqual([here.seen.most, there.seen.most], [1, 1], "none waits for another on a connection")
  }).pipe(Effect.scoped))

it.effect("who may take no more of a limited queue stands in nobody's way", () =>
  Effect.gen(function*() {
    const { limit, process, request, submit } = yield* World.make
    const remote = yield* process
    const queue = yield* Jobs.freshQueue
    yield* limit(queue, 1)
    yield* submit({ queue })
    assert.strictEqual((yield* remote.claim(request({ worker: "full" }))).jobs.length, 1)
    yield* Effect.forkChild(remote.claim(request({ worker: "full", waitMs: 20_000 })))
    for (let n = 0; n < 4; n++) {
      yield* pass(50)
      const waiting = yield* Effect.forkChild(remote.claim(request({ worker: `free-${n}`, waitMs: 20_000 })))
      yield* pass(50)
      yield* submit({ queue })
      // Behind the full one each would wait for the next look: half a second, on average.
      yield* pass(100, 10)
      assert.isDefined(waiting.pollUnsafe(), `round ${n}`)
      assert.strictEqual((yield* Fiber.join(waiting)).jobs.length, 1)
    }
  }).pipe(Effect.scoped))
