import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Logger, Queue, Ref } from "effect"
import { TestClock } from "effect/testing"
import * as SchedulesMemory from "../../../src/adapters/memory/SchedulesMemory.ts"
import * as TransportMemory from "../../../src/adapters/memory/TransportMemory.ts"
import * as Backoff from "../../../src/domain/Backoff.ts"
import { queueDefault } from "../../../src/domain/Job.ts"
import { type NewSchedule, ScheduleName } from "../../../src/domain/Schedule.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import { type Fired, Schedules, SchedulesUnavailable } from "../../../src/ports/Schedules.ts"
import { Transport, TransportUnavailable, type Wake } from "../../../src/ports/Transport.ts"
import * as Scheduler from "../../../src/programs/keeper/Scheduler.ts"
import * as Loops from "../../../src/programs/process/Loops.ts"
import * as Meters from "../../../src/programs/process/Meters.ts"
import { eventually } from "../../support/Eventually.ts"
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

/** The store, with its answers to `fire` changed. */
const answering = (change: (fired: Fired) => Fired) =>
  Effect.map(Schedules, (schedules): Schedules["Service"] => ({
    ...schedules,
    fire: (requests) => Effect.map(schedules.fire(requests), change)
  }))

/** What a scheduler says while `effect` runs. */
const said = <A, E, R>(effect: Effect.Effect<A, E, R>) => {
  const lines: Array<string> = []
  const logger = Logger.make(({ message }) => {
    lines.push(String(message))
  })
  return Effect.as(Effect.provide(effect, Logger.layer([logger])), lines)
}

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
    const late = { missed: "skip", timing: { everyMs: 7_230_000 } } as const
    yield* schedules.put(schedule({ name: ScheduleName.make("small"), ...late }))
    yield* schedules.put(schedule({ name: ScheduleName.make("t"), payload, ...late }))
    yield* TestClock.adjust("7230 seconds")
    const { round } = yield* Effect.provideService(Scheduler.make, Schedules, watched)
    yield* Effect.repeat(round, { until: (againInMs) => againInMs > 0, times: 60 })
    const expected = [...Array.from({ length: 120 }, (_, n) => (n + 1) * 60_000), 7_230_000, 7_230_000]
    assert.deepStrictEqual(yield* ticks, expected)
    assert.isAtMost(Math.max(...fired), 5)
  })))

it.effect("a thousand ticks are fired at once, those of one schedule or of several", () =>
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
    const timing = { everyMs: 1_000 }
    yield* schedules.put(schedule({ timing, missed: { all: 1_000 } }))
    yield* schedules.put(schedule({ timing, missed: "skip", name: ScheduleName.make("t") }))
    yield* schedules.put(schedule({ timing, missed: "skip", name: ScheduleName.make("u") }))
    yield* TestClock.adjust("2000 seconds")
    const { round } = yield* Effect.provideService(Scheduler.make, Schedules, watched)
    yield* Effect.repeat(round, { until: (againInMs) => againInMs > 0, times: 10 })
    assert.deepStrictEqual(fired, [1_000, 62, 31])
  })))

it.effect("what was fired is published where the store has not told the workers, and a publish that fails stops nothing", () =>
  provided(Effect.gen(function*() {
    const schedules = yield* Schedules
    const transport = yield* Transport
    let announced = false
    let published = 0
    const deaf: Transport["Service"] = {
      ...transport,
      publish: (jobs) => {
        published += jobs.length
        return Effect.fail(new TransportUnavailable({ operation: "publish", cause: "away" }))
      }
    }
    const { round } = yield* Scheduler.make.pipe(
      Effect.provideService(Schedules, yield* answering((fired) => ({ ...fired, announced }))),
      Effect.provideService(Transport, deaf)
    )
    const before = (yield* Meters.read).schedule_fires
    yield* schedules.put(schedule())
    yield* seconds(10)
    yield* round
    assert.strictEqual(published, 1)
    announced = true
    yield* seconds(10)
    yield* round
    assert.strictEqual(published, 1)
    assert.deepStrictEqual(yield* ticks, everyTen(2))
    assert.strictEqual((yield* Meters.read).schedule_fires, before + 2)
  })))

it.effect("what nobody was there for is said once, by who made up for it, and what cannot be fired by its reason", () =>
  provided(Effect.gen(function*() {
    const schedules = yield* Schedules
    yield* schedules.put(schedule())
    const nothing = { moved: [], jobs: [], cancelled: [] }
    const names = ["a", "b", "c", "d", "e", "f", "g"].map((name) => ({ name: ScheduleName.make(name), message: "no" }))
    const slower = yield* Effect.provideService(
      Scheduler.make,
      Schedules,
      { ...schedules, fire: () => Effect.succeed({ ...nothing, failed: names, announced: true }) }
    )
    const { round } = yield* Scheduler.make
    yield* TestClock.adjust("100 seconds")
    assert.deepStrictEqual(
      yield* said(Effect.map(slower.round, (againInMs) => assert.strictEqual(againInMs, 250, "others are at it"))),
      ["scheduler: could not fire a (no), b (no), c (no), d (no), e (no) and 2 more"]
    )
    assert.deepStrictEqual(yield* said(round), [
      "scheduler: nobody fired s for up to 90 s; their policies for what was missed and the ticks on time made 4 jobs"
    ])
    yield* TestClock.adjust("30 seconds")
    assert.deepStrictEqual(yield* said(round), [], "half a minute is on time")
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

it.effect("schedules that the store does not answer for are told from a store that does not answer", () =>
  provided(Effect.gen(function*() {
    const schedules = yield* Schedules
    const away = new SchedulesUnavailable({ operation: "fire", cause: "too much" })
    const faulty: Schedules["Service"] = {
      ...schedules,
      fire: (requests) => requests.some(({ name }) => /[024]/.test(name)) ? Effect.fail(away) : schedules.fire(requests)
    }
    for (let n = 0; n < 6; n++) {
      yield* schedules.put(schedule({ name: ScheduleName.make(`s-${n}`) }))
    }
    const { round } = yield* Effect.provideService(Scheduler.make, Schedules, faulty)
    yield* seconds(10)
    assert.strictEqual(yield* round, 0)
    assert.deepStrictEqual(yield* ticks, [10_000, 10_000, 10_000])
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
    const { round } = yield* Effect.provideService(Scheduler.make, Schedules, faulty)
    yield* schedules.put(schedule())
    yield* TestClock.adjust("11 seconds")
    assert.strictEqual((yield* Effect.flip(round))._tag, "SchedulesUnavailable")
    assert.strictEqual(asked, 1, "of one schedule, too, the failure is told")
    yield* Effect.forEach(
      Array.from({ length: 10 }),
      (_, n) => schedules.put(schedule({ name: ScheduleName.make(`s-${n}`) }))
    )
    yield* TestClock.adjust("11 seconds")
    asked = 0
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
  provided(
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const { wakes } = yield* (yield* Transport).subscribe({ worker: true })
      const heard: Array<Wake> = []
      yield* Effect.forkScoped(Effect.forever(Effect.map(Queue.take(wakes), (wake) => heard.push(wake))))
      const { round } = yield* Scheduler.make
      const before = (yield* Meters.read).dead
      yield* schedules.put(schedule({ overlap: "cancel" }))
      yield* seconds(10)
      yield* round
      const [claimed] = yield* Stage.claimAgain("ada")
      yield* seconds(10)
      yield* round
      yield* eventually("the worker is told", Effect.sync(() => heard.some(({ _tag }) => _tag === "Revoked")))
      const revoked = heard.flatMap((wake) => wake._tag === "Revoked" ? [wake] : [])
      assert.deepStrictEqual(revoked.map(({ epoch, id }) => ({ epoch, id })), [{ epoch: 1, id: claimed!.id }])
      const renewed = Effect.map(Stage.renew(revoked[0]!.lease), ([answer]) => answer)
      yield* eventually("its lease is flagged", Effect.map(renewed, (answer) => answer === "check"))
      assert.strictEqual((yield* Meters.read).dead, before + 1)
      const job = yield* Stage.stateOf(claimed!.id)
      assert.deepStrictEqual([job?.state, job?.reason, job?.tickMs], ["dead", "cancelled", 10_000])
      assert.deepStrictEqual(yield* ticks, [10_000, 20_000])
    }).pipe(Effect.scoped)
  ))

it.effect("a transport that hangs while it is told of a job that was cut off holds up no round", () =>
  provided(Effect.gen(function*() {
    const schedules = yield* Schedules
    const hanging: Transport["Service"] = { ...(yield* Transport), wake: () => Effect.never }
    const { round } = yield* Effect.provideService(Scheduler.make, Transport, hanging)
    yield* schedules.put(schedule({ overlap: "cancel" }))
    yield* seconds(10)
    yield* round
    yield* Stage.claimAgain("ada")
    yield* seconds(10)
    const second = yield* Effect.forkChild(round, { startImmediately: true })
    yield* Effect.repeat(Effect.yieldNow, { times: 50 })
    assert.isDefined(second.pollUnsafe())
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
    // Also where none is booked: one may be put through another process.
    assert.include([12, 13], yield* Ref.get(looks))
    yield* Fiber.interrupt(running)
  })))
