/** The promoter and an index apart from the store: filled after a loss, page by page, and done without while it is away. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import * as DelayedJobsMemory from "../../../src/adapters/memory/DelayedJobsMemory.ts"
import * as TransportMemory from "../../../src/adapters/memory/TransportMemory.ts"
import { DelayedJobs, DelayedJobsUnavailable } from "../../../src/ports/DelayedJobs.ts"
import { JobStore, JobStoreUnavailable } from "../../../src/ports/JobStore.ts"
import * as Promoter from "../../../src/programs/keeper/Promoter.ts"
import * as Loops from "../../../src/programs/process/Loops.ts"
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
