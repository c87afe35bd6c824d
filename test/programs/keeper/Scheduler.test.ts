import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Ref } from "effect"
import { TestClock } from "effect/testing"
import * as SchedulesMemory from "../../../src/adapters/memory/SchedulesMemory.ts"
import * as TransportMemory from "../../../src/adapters/memory/TransportMemory.ts"
import * as Backoff from "../../../src/domain/Backoff.ts"
import { queueDefault } from "../../../src/domain/Job.ts"
import { type NewSchedule, ScheduleName } from "../../../src/domain/Schedule.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import { Schedules, SchedulesUnavailable } from "../../../src/ports/Schedules.ts"
import * as Scheduler from "../../../src/programs/keeper/Scheduler.ts"
import * as Loops from "../../../src/programs/process/Loops.ts"
import * as Stage from "./Stage.ts"

const provided = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.provide(
    effect,
    Layer.mergeAll(Layer.provideMerge(SchedulesMemory.layer, Stage.memory), TransportMemory.layer, Loops.layer)
  )

const name = ScheduleName.make("s")

const schedule = (change: Partial<NewSchedule> = {}): NewSchedule => ({
  name,
  timing: { everyMs: 10_000 },
  missed: "latest",
  overlap: "allow",
  paused: null,
  type: Stage.type,
  queue: queueDefault,
  payload: "null",
  priority: 0,
  maxAttempts: 10,
  backoff: Backoff.defaults,
  timeoutMs: null,
  retainMs: null,
  tags: [],
  ...change
})

const ticks = Effect.gen(function*() {
  const store = yield* JobStore
  const { jobs } = yield* store.list({ type: Stage.type, limit: 500, offset: 0 })
  return jobs.map(({ tickMs }) => tickMs ?? -1).sort((a, b) => a - b)
})

/** A second at a time, so that whoever sleeps until a time wakes at it. */
const seconds = (count: number) => Effect.repeat(TestClock.adjust("1 second"), { times: count - 1 })

const everyTen = (count: number, from = 1) => Array.from({ length: count }, (_, n) => (from + n) * 10_000)

it.effect("each tick makes one job, at its time and not before, with three schedulers at it", () =>
  provided(Effect.gen(function*() {
    const schedules = yield* Schedules
    yield* schedules.put(schedule())
    const running = yield* Effect.forEach([1, 2, 3], () => Effect.forkChild(Scheduler.run))
    yield* seconds(9)
    assert.deepStrictEqual(yield* ticks, [])
    yield* seconds(2)
    assert.deepStrictEqual(yield* ticks, [10_000])
    yield* seconds(300)
    assert.deepStrictEqual(yield* ticks, everyTen(31))
    yield* Fiber.interruptAll(running)
  })))

it.effect("a schedule that is put while the scheduler sleeps fires at its first tick", () =>
  provided(Effect.gen(function*() {
    const schedules = yield* Schedules
    yield* schedules.put(schedule({ timing: { everyMs: 86_400_000 } }))
    const running = yield* Effect.forkChild(Scheduler.run)
    yield* seconds(2)
    yield* schedules.put(schedule({ timing: { everyMs: 1_000 } }))
    yield* seconds(2)
    assert.deepStrictEqual(yield* ticks, [3_000, 4_000])
    yield* Fiber.interrupt(running)
  })))

const policies: ReadonlyArray<readonly [NewSchedule["missed"], ReadonlyArray<number>]> = [
  ["skip", []],
  ["latest", [1_800_000]],
  [{ all: 3 }, [1_680_000, 1_740_000, 1_800_000]]
]

for (const [missed, expected] of policies) {
  it.effect(`after half an hour without a scheduler the policy ${JSON.stringify(missed)} decides, not how many look`, () =>
    provided(Effect.gen(function*() {
      const schedules = yield* Schedules
      yield* schedules.put(schedule({ missed, timing: { cron: "* * * * *", zone: "UTC" } }))
      yield* TestClock.adjust("1845 seconds")
      const running = yield* Effect.forEach([1, 2, 3], () => Effect.forkChild(Scheduler.run))
      yield* seconds(10)
      assert.deepStrictEqual(yield* ticks, expected)
      yield* seconds(60)
      assert.deepStrictEqual(yield* ticks, [...expected, 1_860_000])
      yield* Fiber.interruptAll(running)
    })))
}

it.effect("a firing whose answer was lost is not repeated, and one that was not stored is", () =>
  provided(Effect.gen(function*() {
    const schedules = yield* Schedules
    const round = yield* Ref.make(0)
    const lost = new SchedulesUnavailable({ operation: "fire", cause: "lost" })
    const faulty: Schedules["Service"] = {
      ...schedules,
      fire: (requests) =>
        Effect.flatMap(Ref.updateAndGet(round, (n) => n + 1), (n) =>
          n % 3 === 0
            ? schedules.fire(requests)
            : n % 3 === 1
            ? Effect.fail(lost)
            : Effect.andThen(schedules.fire(requests), Effect.fail(lost)))
    }
    yield* schedules.put(schedule())
    const running = yield* Effect.forkChild(Effect.provideService(Scheduler.run, Schedules, faulty))
    yield* seconds(305)
    assert.deepStrictEqual(yield* ticks, everyTen(30))
    assert.isAbove(yield* Ref.get(round), 40)
    yield* Fiber.interrupt(running)
  })))

it.effect("ticks with large payloads are fired in several, and none is lost or doubled", () =>
  provided(Effect.gen(function*() {
    const schedules = yield* Schedules
    const fired: Array<number> = []
    const watched: Schedules["Service"] = {
      ...schedules,
      fire: (requests) => {
        fired.push(requests.reduce((sum, { ticks }) => sum + ticks.length, 0))
        return schedules.fire(requests)
      }
    }
    const payload = JSON.stringify("x".repeat(1_048_000))
    yield* schedules.put(schedule({ payload, missed: { all: 1_000 }, timing: { everyMs: 60_000 } }))
    yield* schedules.put(schedule({ name: ScheduleName.make("small"), missed: "skip", timing: { everyMs: 7_230_000 } }))
    yield* TestClock.adjust("7230 seconds")
    const { round } = yield* Effect.provideService(Scheduler.make, Schedules, watched)
    yield* Effect.repeat(round, { until: (againInMs) => againInMs > 0, times: 60 })
    const expected = [...Array.from({ length: 120 }, (_, n) => (n + 1) * 60_000), 7_230_000]
    assert.deepStrictEqual(yield* ticks, expected)
    assert.isAtMost(Math.max(...fired), 5)
  })))

it.effect("a schedule that the store does not answer for holds up no other", () =>
  provided(Effect.gen(function*() {
    const schedules = yield* Schedules
    const away = new SchedulesUnavailable({ operation: "fire", cause: "too much" })
    const heavy = ScheduleName.make("heavy")
    const faulty: Schedules["Service"] = {
      ...schedules,
      fire: (requests) => requests.some((one) => one.name === heavy) ? Effect.fail(away) : schedules.fire(requests)
    }
    yield* schedules.put(schedule({ name: heavy }))
    yield* schedules.put(schedule())
    const running = yield* Effect.forkChild(Effect.provideService(Scheduler.run, Schedules, faulty))
    yield* seconds(35)
    assert.deepStrictEqual(yield* ticks, everyTen(3))
    yield* Fiber.interrupt(running)
  })))

it.effect("while the store does not answer at all a round ends soon", () =>
  provided(Effect.gen(function*() {
    const schedules = yield* Schedules
    const away = new SchedulesUnavailable({ operation: "fire", cause: "away" })
    let asked = 0
    const faulty: Schedules["Service"] = {
      ...schedules,
      fire: () =>
        Effect.suspend(() => {
          asked += 1
          return Effect.fail(away)
        })
    }
    yield* Effect.forEach(
      Array.from({ length: 10 }),
      (_, n) => schedules.put(schedule({ name: ScheduleName.make(`s-${n}`) }))
    )
    const { round } = yield* Effect.provideService(Scheduler.make, Schedules, faulty)
    yield* TestClock.adjust("11 seconds")
    assert.strictEqual((yield* Effect.flip(round))._tag, "SchedulesUnavailable")
    assert.strictEqual(asked, 3)
  })))

it.effect("one that cannot be followed is booked no more, and the others fire", () =>
  provided(Effect.gen(function*() {
    const schedules = yield* Schedules
    yield* schedules.put(schedule())
    // As it may stand in a table that was written by hand.
    const bad = ScheduleName.make("bad")
    yield* schedules.put(schedule({ name: bad }))
    const faulty: Schedules["Service"] = {
      ...schedules,
      due: (limit) =>
        Effect.map(schedules.due(limit), (due) => ({
          ...due,
          schedules: due.schedules.map((one) =>
            one.name === bad ? { ...one, timing: { cron: "0 0 30 2 *", zone: "UTC" } } : one
          )
        }))
    }
    const running = yield* Effect.forkChild(Effect.provideService(Scheduler.run, Schedules, faulty))
    yield* seconds(31)
    assert.deepStrictEqual(yield* ticks, everyTen(3))
    assert.isNull((yield* schedules.get(bad))?.nextFireMs)
    yield* Fiber.interrupt(running)
  })))

it.effect("a tick that ends a running job tells its worker", () =>
  provided(Effect.gen(function*() {
    const schedules = yield* Schedules
    const { round } = yield* Scheduler.make
    yield* schedules.put(schedule({ overlap: "cancel" }))
    yield* seconds(10)
    yield* round
    const [claimed] = yield* Stage.claimAgain("ada")
    yield* seconds(10)
    yield* round
    const job = yield* Stage.stateOf(claimed!.id)
    assert.deepStrictEqual([job?.state, job?.reason, job?.tickMs], ["dead", "cancelled", 10_000])
    assert.deepStrictEqual(yield* ticks, [10_000, 20_000])
  })))

it.effect("while nothing is due it looks once in five seconds", () =>
  provided(Effect.gen(function*() {
    const schedules = yield* Schedules
    const looks = yield* Ref.make(0)
    const counted: Schedules["Service"] = {
      ...schedules,
      due: (limit) => Effect.andThen(Ref.update(looks, (n) => n + 1), schedules.due(limit))
    }
    const running = yield* Effect.forkChild(Effect.provideService(Scheduler.run, Schedules, counted))
    yield* seconds(60)
    assert.isAtMost(yield* Ref.get(looks), 13)
    yield* Fiber.interrupt(running)
  })))
