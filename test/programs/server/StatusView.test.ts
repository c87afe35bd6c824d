import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import * as SessionsMemory from "../../../src/adapters/memory/SessionsMemory.ts"
import { Status } from "../../../src/ports/Status.ts"
import * as Loops from "../../../src/programs/process/Loops.ts"
import * as Stopping from "../../../src/programs/process/Stopping.ts"
import * as StatusView from "../../../src/programs/server/StatusView.ts"
import * as FaultyStore from "../../support/FaultyStore.ts"

const layer = StatusView.layer.pipe(
  Layer.provideMerge(Layer.mergeAll(
    FaultyStore.layer,
    SessionsMemory.layer,
    Loops.layer,
    Stopping.layer,
    Layer.succeed(StatusView.Identity, { version: "1", profile: "test", adapters: {} })
  ))
)

it.effect("stats are served from a reading, and not from one that is older than five seconds", () =>
  Effect.gen(function*() {
    const status = yield* Status
    const faults = yield* FaultyStore.Faults
    const first = yield* status.stats
    assert.strictEqual(first.counts.byState.pending, 0)
    faults.fault = "away"
    yield* TestClock.adjust("2 seconds")
    assert.strictEqual((yield* status.stats).counts.asOfMs, first.counts.asOfMs)
    yield* TestClock.adjust("6 seconds")
    assert.strictEqual((yield* Effect.flip(status.stats))._tag, "StatusUnavailable")
    faults.fault = "none"
    yield* TestClock.adjust("2 seconds")
    assert.isAbove((yield* status.stats).counts.asOfMs, first.counts.asOfMs)
  }).pipe(Effect.provide(layer)))

it.effect("readiness judges each loop, the store, and whether the process stops", () =>
  Effect.gen(function*() {
    const status = yield* Status
    const faults = yield* FaultyStore.Faults
    const stopping = yield* Stopping.Stopping
    const loop = yield* (yield* Loops.Loops).register("chore", 1_000)
    assert.deepStrictEqual((yield* status.readiness).reasons, ["chore: no round yet"])
    yield* loop.beat
    assert.isTrue((yield* status.readiness).ready)
    yield* TestClock.adjust("2 seconds")
    assert.deepStrictEqual((yield* status.readiness).reasons, ["chore: no progress for 2000 ms"])
    yield* loop.beat
    faults.fault = "away"
    yield* TestClock.adjust("1100 millis")
    yield* loop.beat
    assert.deepStrictEqual((yield* status.readiness).services, { store: "away" })
    faults.fault = "none"
    yield* TestClock.adjust("1100 millis")
    yield* loop.beat
    assert.isFalse(status.isStopping())
    yield* stopping.begin
    assert.isTrue(status.isStopping())
    assert.deepStrictEqual((yield* status.readiness).reasons, ["shutting down"])
  }).pipe(Effect.provide(layer)))
