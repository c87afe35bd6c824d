/** The promoter and an index apart from the store: filled after a loss, page by page, and done without while it is away. */
import { assert, it } from "@effect/vitest"
import { Duration, Effect, Fiber, Layer, Queue } from "effect"
import { TestClock } from "effect/testing"
import * as DelayedJobsMemory from "../../../src/adapters/memory/DelayedJobsMemory.ts"
import * as TransportMemory from "../../../src/adapters/memory/TransportMemory.ts"
import { DelayedJobs, DelayedJobsUnavailable } from "../../../src/ports/DelayedJobs.ts"
import { JobStore, JobStoreUnavailable } from "../../../src/ports/JobStore.ts"
import { Transport, type Wake } from "../../../src/ports/Transport.ts"
import * as KeeperConfig from "../../../src/programs/keeper/KeeperConfig.ts"
import * as Promoter from "../../../src/programs/keeper/Promoter.ts"
import * as Loops from "../../../src/programs/process/Loops.ts"
import * as Ids from "../../support/Ids.ts"
import * as Stage from "./Stage.ts"

const provided = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.provide(effect, Layer.mergeAll(Stage.memory, DelayedJobsMemory.layer, TransportMemory.layer, Loops.layer))

const waiting = Effect.fnUntraced(function*(inMs: ReadonlyArray<number>) {
  const store = yield* JobStore
  const now = yield* store.now
  const jobs = inMs.map((ms) => Stage.newJob({ runAtMs: now + ms }))
  yield* store.submit(jobs, { atomic: false })
  return { now, ids: jobs.map(({ id }) => id) }
})

/** What the index knows, in order. */
const indexedIds = Effect.flatMap(
  DelayedJobs,
  (index) => Effect.map(index.due(Number.MAX_SAFE_INTEGER, 10_000), ({ ids }) => ids)
)

it.effect("an index that was lost is filled up to its horizon, in pages, and not filled again at once", () =>
  provided(Effect.gen(function*() {
    const { indexed } = yield* Promoter.make
    const index = yield* DelayedJobs
    const { ids, now } = yield* waiting(Array.from({ length: 1_500 }, (_, n) => 60_000 + n))
    yield* waiting([3_600_000])
    assert.strictEqual(yield* indexed, 0)
    yield* indexed
    assert.deepStrictEqual(yield* indexedIds, ids)
    assert.isFalse((yield* index.due(now + 290_000, 1)).wantsFill)
    assert.isTrue((yield* index.due(now + 300_000, 1)).wantsFill)
    // Known now: it sleeps until the first of them.
    assert.strictEqual(yield* indexed, 60_000)
  })))

it.effect("more jobs of one instant than a page holds do not keep the fill from going on", () =>
  provided(Effect.gen(function*() {
    const { indexed } = yield* Promoter.make
    const { ids } = yield* waiting([...Array.from({ length: 2_500 }, () => 60_000), 61_000])
    for (let pages = 0; pages < 10 && (yield* indexed) === 0; pages++) {
      // The next page.
    }
    assert.include(yield* indexedIds, ids.at(-1)!)
  })))

it.effect("a scan adds what is due before the next one, whoever made it wait", () =>
  provided(Effect.gen(function*() {
    const { beside } = yield* Promoter.make
    const { ids } = yield* waiting([1_500, 4_000, 20_000])
    assert.strictEqual(yield* beside, 2_000)
    assert.deepStrictEqual(yield* indexedIds, ids.slice(0, 2))
  })))

it.effect("while the index is away the scan is the punctual one, and no round fails", () =>
  provided(Effect.gen(function*() {
    const index = yield* DelayedJobs
    const away = Effect.fail(new DelayedJobsUnavailable({ operation: "due", cause: "away" }))
    const { beside, indexed } = yield* Promoter.make.pipe(
      Effect.provideService(DelayedJobs, { ...index, due: () => away, schedule: () => away, filled: () => away })
    )
    yield* waiting([700])
    assert.strictEqual(yield* indexed, Infinity)
    assert.strictEqual(yield* beside, 700)
  })))

it.effect("what is due stays in the index until it was promoted", () =>
  provided(Effect.gen(function*() {
    const store = yield* JobStore
    const away = Effect.fail(new JobStoreUnavailable({ operation: "promoteIds", cause: "away" }))
    const { indexed } = yield* Promoter.make.pipe(
      Effect.provideService(JobStore, { ...store, promoteIds: () => away })
    )
    const { ids } = yield* waiting([1_000])
    yield* indexed
    assert.deepStrictEqual(yield* indexedIds, ids)
    yield* TestClock.adjust("1 second")
    assert.strictEqual((yield* Effect.flip(indexed))._tag, "JobStoreUnavailable")
    assert.deepStrictEqual(yield* indexedIds, ids)
    assert.lengthOf((yield* store.promoteIds(ids)).jobs, 1)
  })))

/** A store that takes 100 ms for whatever it is asked. */
const slow = Effect.map(JobStore, (store): JobStore["Service"] => {
  const passes = <A, E>(asked: Effect.Effect<A, E>) => Effect.tap(asked, () => TestClock.adjust("100 millis"))
  return {
    ...store,
    promote: (limit) => passes(store.promote(limit)),
    upcoming: (withinMs, fromMs, limit) => passes(store.upcoming(withinMs, fromMs, limit))
  }
})

for (const part of ["beside", "indexed"] as const) {
  it.effect(`a job that becomes due while the store is asked is not left to the next scan (${part})`, () =>
    provided(Effect.gen(function*() {
      const promoter = yield* Promoter.make.pipe(Effect.provideServiceEffect(JobStore, slow))
      const { ids } = yield* waiting([50])
      yield* promoter[part]
      const ready = yield* Effect.flatMap(JobStore, (store) => store.promoteIds(ids))
      assert.deepStrictEqual(ready.jobs, [], "it was promoted before")
    })))
}

/** The index, and another in its place from `lose` on: what the first one held is gone. */
const losing = Effect.gen(function*() {
  const first = yield* DelayedJobs
  const second = yield* Effect.provide(DelayedJobs, Layer.fresh(DelayedJobsMemory.layer))
  let now = first
  const away = Effect.fail(new DelayedJobsUnavailable({ operation: "due", cause: "away" }))
  let answers = true
  const index = DelayedJobs.of({
    horizonMs: first.horizonMs,
    due: (nowMs, limit) => Effect.suspend(() => answers ? now.due(nowMs, limit) : away),
    schedule: (jobs) => Effect.suspend(() => now.schedule(jobs)),
    filled: (untilMs) => Effect.suspend(() => now.filled(untilMs)),
    forget: (ids) => Effect.suspend(() => now.forget(ids))
  })
  return {
    index,
    lose: () => {
      answers = false
      now = second
    },
    comeBack: () => {
      answers = true
    }
  }
})

it.effect("an index that is lost half way through its fill is filled from the beginning when it is back", () =>
  provided(Effect.gen(function*() {
    const { comeBack, index, lose } = yield* losing
    const { beside, indexed } = yield* Promoter.make.pipe(Effect.provideService(DelayedJobs, index))
    const { ids } = yield* waiting(Array.from({ length: 1_500 }, (_, n) => 60_000 + n))
    assert.strictEqual(yield* indexed, 0)
    lose()
    assert.strictEqual(yield* indexed, Infinity)
    assert.strictEqual(yield* beside, 1_000)
    comeBack()
    assert.strictEqual(yield* indexed, 0)
    yield* indexed
    assert.deepStrictEqual(yield* Effect.provideService(indexedIds, DelayedJobs, index), ids)
    assert.strictEqual(yield* beside, 2_000)
  })))

it.effect("who fills an index is alone at it, for ten seconds", () =>
  provided(Effect.gen(function*() {
    const { indexed } = yield* Promoter.make
    const index = yield* DelayedJobs
    const { now } = yield* waiting(Array.from({ length: 1_500 }, (_, n) => 60_000 + n))
    assert.strictEqual(yield* indexed, 0)
    assert.isFalse((yield* index.due(now + 9_999, 1)).wantsFill)
    assert.isTrue((yield* index.due(now + 10_000, 1)).wantsFill)
  })))

it.effect("a fill ends somewhere, however much is due soon", () =>
  provided(Effect.gen(function*() {
    const store = yield* JobStore
    const index = yield* DelayedJobs
    let pages = 0
    const { indexed } = yield* Promoter.make.pipe(
      Effect.provideService(JobStore, {
        ...store,
        upcoming: (_, fromMs, limit) =>
          Effect.sync(() => {
            pages += 1
            const first = fromMs ?? 1_000
            return {
              nowMs: 0,
              jobs: Array.from({ length: limit }, (_, n) => ({ id: Ids.jobId(), runAtMs: first + n }))
            }
          })
      }),
      Effect.provideService(DelayedJobs, { ...index, schedule: () => Effect.void })
    )
    for (let rounds = 0; rounds < 200 && (yield* indexed) === 0; rounds++) {
      // The next page.
    }
    assert.strictEqual(pages, 100)
  })))

it.effect("what was promoted leaves the index, a batch at once and the rest without a pause", () =>
  provided(Effect.gen(function*() {
    const { indexed } = yield* Promoter.make
    const { ids } = yield* waiting(Array.from({ length: 1_001 }, (_, n) => 1_000 + n))
    while ((yield* indexed) === 0) {
      // The next page.
    }
    yield* TestClock.adjust("3 seconds")
    assert.strictEqual(yield* indexed, 0)
    assert.deepStrictEqual(yield* indexedIds, ids.slice(-1))
    assert.strictEqual(yield* indexed, Infinity)
    assert.deepStrictEqual(yield* indexedIds, [])
  })))

it.effect("where more is due soon than a scan adds, the next scan comes before the last of what it added", () =>
  provided(Effect.gen(function*() {
    const { beside } = yield* Promoter.make
    yield* waiting(Array.from({ length: 1_001 }, (_, n) => 1_001 + n))
    assert.strictEqual(yield* beside, 1_000)
  })))

it.effect("what a scan adds to the index is promoted at its time, long before the next look", () =>
  provided(Effect.gen(function*() {
    const running = yield* Effect.forkChild(
      Effect.scoped(Promoter.run).pipe(Effect.provide(KeeperConfig.layer({ promotePoll: Duration.minutes(1) })))
    )
    yield* TestClock.adjust("1 second")
    // The next scan is in a second, the one behind it half a second too late.
    yield* waiting([2_500])
    for (let n = 0; n < 24; n++) {
      yield* TestClock.adjust("100 millis")
    }
    assert.lengthOf(yield* Stage.claimAgain("ada"), 0)
    yield* TestClock.adjust("100 millis")
    yield* TestClock.adjust("5 millis")
    assert.lengthOf(yield* Stage.claimAgain("ada"), 1)
    yield* Fiber.interrupt(running)
  })))

for (const _tag of ["Due", "Resumed"] as const) {
  it.effect(`a promoter looks once a poll, and as soon as it is told so (${_tag})`, () =>
    provided(Effect.gen(function*() {
      const store = yield* JobStore
      const index = yield* DelayedJobs
      const transport = yield* Transport
      const wakes = yield* Queue.unbounded<Wake>()
      let looks = 0
      yield* waiting([3_600_000])
      const running = yield* Effect.forkChild(
        Effect.scoped(Promoter.run).pipe(
          Effect.provideService(JobStore, {
            ...store,
            promote: (limit) => {
              looks += 1
              return store.promote(limit)
            }
          }),
          Effect.provideService(DelayedJobs, { ...index, horizonMs: null }),
          Effect.provideService(Transport, {
            ...transport,
            subscribe: (options) => Effect.map(transport.subscribe(options), (subscribed) => ({ ...subscribed, wakes }))
          }),
          Effect.provide(KeeperConfig.layer({ promotePoll: Duration.minutes(1) }))
        )
      )
      const looksAfter = (seconds: number) => Effect.map(TestClock.adjust(Duration.seconds(seconds)), () => looks)
      assert.strictEqual(yield* looksAfter(1), 1)
      yield* Queue.offer(wakes, { _tag: "Ready" })
      assert.strictEqual(yield* looksAfter(1), 1)
      yield* Queue.offer(wakes, { _tag })
      assert.strictEqual(yield* looksAfter(1), 2)
      assert.strictEqual(yield* looksAfter(60), 3)
      yield* Fiber.interrupt(running)
    })))
}
