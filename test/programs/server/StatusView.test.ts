import { assert, it } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import { TestClock } from "effect/testing"
import * as SessionsMemory from "../../../src/adapters/memory/SessionsMemory.ts"
import { JobType } from "../../../src/domain/Job.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import { type Session, Sessions } from "../../../src/ports/Sessions.ts"
import { Status } from "../../../src/ports/Status.ts"
import * as Loops from "../../../src/programs/process/Loops.ts"
import * as Stopping from "../../../src/programs/process/Stopping.ts"
import * as StatusView from "../../../src/programs/server/StatusView.ts"
import * as Unhandled from "../../../src/programs/server/Unhandled.ts"
import * as FaultyStore from "../../support/FaultyStore.ts"
import * as Jobs from "../../support/Jobs.ts"

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

it.effect("what is only slower is said, and is no reason to be called not ready", () =>
  Effect.gen(function*() {
    const status = yield* Status
    const loops = yield* Loops.Loops
    yield* loops.setDegraded("transport", "hints are late")
    assert.deepInclude(yield* status.readiness, { ready: true, reasons: [], degraded: ["hints are late"] })
    yield* loops.setDegraded("transport", null)
    assert.deepStrictEqual((yield* status.readiness).degraded, [])
  }).pipe(Effect.provide(layer)))

const worker: Session = {
  name: "one",
  role: "worker",
  version: "1",
  handlers: ["known"],
  slots: 1,
  running: 0,
  runaways: 0,
  draining: false,
  counters: {}
}

it.effect("jobs of a type that no process handles are in the stats, and said once in the log", () => {
  const lines: Array<string> = []
  const logger = Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))])
  const said = () => lines.filter((line) => line.includes("handler"))
  return Effect.gen(function*() {
    const status = yield* Status
    const store = yield* JobStore
    const sessions = yield* Sessions
    yield* store.submit(yield* Jobs.jobs(2, { type: JobType.make("nobody") }), { atomic: false })
    yield* store.submit(yield* Jobs.jobs(3, { type: JobType.make("known") }), { atomic: false })
    yield* sessions.report(worker)
    yield* TestClock.adjust("2 seconds")
    assert.deepStrictEqual((yield* status.stats).unhandled, { nobody: 2 })
    assert.deepStrictEqual(said(), [])
    for (let n = 0; n < 40; n++) {
      yield* sessions.report(worker)
      yield* TestClock.adjust("1 second")
    }
    assert.deepStrictEqual(said(), ["2 jobs of type nobody wait: no process has a handler for it"])
    yield* sessions.report({ ...worker, handlers: ["known", "nobody"] })
    yield* TestClock.adjust("2 seconds")
    assert.deepStrictEqual((yield* status.stats).unhandled, {})
  }).pipe(Effect.provide(Layer.provideMerge(layer, logger)))
})

it("a type without a handler is spoken of after some seconds, and again after ten minutes, however it comes and goes", () => {
  const { look } = Unhandled.make()
  const handled = [{ handlers: ["x"] }]
  const at = (ms: number, pending: Record<string, number>, sessions: typeof handled | [] = []) =>
    look(pending, sessions, ms).lines.length

  assert.isTrue(look({ x: 1 }, [], 0).unsure)
  assert.strictEqual(at(1_000, { x: 1 }, handled), 0)
  assert.strictEqual(at(5_000, { x: 1 }), 0)
  assert.strictEqual(at(9_000, { x: 1 }), 0)
  assert.deepStrictEqual(look({ x: 1 }, [], 10_000), {
    unhandled: { x: 1 },
    lines: ["1 job of type x waits: no process has a handler for it"],
    unsure: false
  })
  assert.strictEqual(at(20_000, { x: 1 }, handled), 0)
  assert.strictEqual(at(30_000, { x: 1 }), 0)
  assert.strictEqual(at(609_000, { x: 1 }), 0)
  assert.strictEqual(at(610_000, { x: 1 }), 1)
  assert.strictEqual(at(620_000, { x: 0 }), 0)
})

it("of many types those with the most jobs are kept, and no more are spoken of than are kept", () => {
  const { look } = Unhandled.make()
  const many = (prefix: string) => Object.fromEntries(Array.from({ length: 1_000 }, (_, n) => [`${prefix}${n}`, n + 1]))
  look(many("a"), [], 0)
  const { lines, unhandled } = look(many("a"), [], 10_000)
  assert.strictEqual(lines.length, Unhandled.typesMax)
  assert.strictEqual(unhandled["a999"], 1_000)
  assert.strictEqual(Object.keys(unhandled).length, Unhandled.typesMax)
  look(many("b"), [], 20_000)
  assert.deepStrictEqual(look(many("b"), [], 30_000).lines, [])
})
