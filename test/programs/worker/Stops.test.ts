/** Timeouts, runaways, and what handlers may do to a worker. */
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Fiber, Logger } from "effect"
import { JobType } from "../../../src/domain/Job.ts"
import type { Handler } from "../../../src/programs/worker/HandlerApi.ts"
import * as Reports from "../../../src/programs/worker/Reports.ts"
import { roomMax } from "../../../src/programs/worker/Room.ts"
import * as Jobs from "../../support/Jobs.ts"
import { make, pass } from "../../support/WorkerWorld.ts"

describe("Slots", () => {
  it.effect("an attempt that exceeds its timeout is interrupted and is a failed attempt", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const aborted: Array<string> = []
      const slow = yield* world.submit("slow", { timeoutMs: 1_000, maxAttempts: 1 })
      const listens = yield* world.submit("listens", { timeoutMs: 1_000, maxAttempts: 1 })
      const quick = yield* world.submit("quick", { timeoutMs: 1_000 })
      yield* world.start({
        slow: () => Effect.sleep(5_000).pipe(Effect.onInterrupt(() => Effect.sync(() => aborted.push("effect")))),
        listens: (_job, { signal }) =>
          new Promise((resolve) =>
            signal.addEventListener("abort", () => {
              aborted.push("signal")
              resolve("gave up early")
            })
          ),
        quick: () => Effect.sleep(900)
      })
      yield* pass(1_300)
      assert.deepStrictEqual(aborted.sort(), ["effect", "signal"])
      for (const id of [slow, listens]) {
        const job = yield* world.job(id)
        assert.strictEqual(job.state, "dead")
        assert.strictEqual(job.attempts, 1)
        assert.strictEqual(job.errors[0]?.name, "Timeout")
      }
      assert.strictEqual((yield* world.job(quick)).state, "completed")
    }))

  it.effect("a run that took longer than its timeout has failed, also where nothing could interrupt it", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const works = (ms: number): Handler => () => {
        world.frozen.ms += ms
        return "done"
      }
      const late = yield* world.submit("late", { timeoutMs: 1_000, maxAttempts: 1 })
      const inTime = yield* world.submit("in-time", { timeoutMs: 1_000, maxAttempts: 1 })
      yield* world.start({ late: works(1_000), "in-time": works(999) })
      yield* pass(500)
      const job = yield* world.job(late)
      assert.include(job, { state: "dead", result: null, attempts: 1 })
      assert.strictEqual(job.errors[0]?.name, "Timeout")
      assert.include(yield* world.job(inTime), { state: "completed", result: "done" })
    }))

  it.effect("a handler that ignores its interruption is a runaway: its slot is replaced, and its answer not heard", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const hold: Array<(value: string) => void> = []
      const ignores: Handler = () => new Promise((resolve) => hold.push(resolve))
      const id = yield* world.submit("ignores", { timeoutMs: 1_000, maxAttempts: 1, priority: 1 })
      const next = yield* world.submit("quick")
      const pool = yield* world.start({ ignores, quick: () => "ran" }, { slots: 1 })
      yield* pass(1_900)
      assert.strictEqual((yield* world.job(id)).state, "running")
      assert.strictEqual((yield* world.job(next)).state, "pending")
      yield* pass(400)
      assert.strictEqual((yield* world.job(id)).state, "dead")
      assert.strictEqual((yield* world.job(next)).state, "completed")
      assert.strictEqual(yield* pool.service.runaways, 1)
      assert.strictEqual((yield* world.loops.reasons).length, 1)
      yield* pass(5_000)
      assert.strictEqual((yield* world.sessions.list(60_000))[0]?.runaways, 1)

      hold[0]?.("too late")
      yield* pass(200)
      assert.strictEqual(yield* pool.service.runaways, 0)
      assert.deepStrictEqual(yield* world.loops.reasons, [])
      const job = yield* world.job(id)
      assert.strictEqual(job.result, null)
      assert.strictEqual(job.staleWrites, 0)
      assert.strictEqual(job.attempts, 1)
    }))

  it.effect("as many slots are replaced as there are, and no more", () =>
    Effect.gen(function*() {
      const world = yield* make()
      let started = 0
      const ignores: Handler = () => {
        started += 1
        return new Promise(() => undefined)
      }
      for (let n = 0; n < 10; n++) {
        yield* world.submit("ignores", { timeoutMs: 1_000 })
      }
      yield* world.start({ ignores }, { slots: 2 })
      yield* pass(20_000)
      assert.strictEqual(started, 4)
    }))

  it.effect("hostile values and errors end their job and harm nobody", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const cycle: { self?: unknown } = {}
      cycle.self = cycle
      const proxy = new Proxy({}, {
        get: () => {
          throw new Error("do not look")
        },
        has: () => {
          throw new Error("do not ask")
        },
        ownKeys: () => {
          throw new Error("do not list")
        },
        getPrototypeOf: () => {
          throw new Error("do not climb")
        }
      })
      const values: ReadonlyArray<unknown> = [
        undefined,
        null,
        10n,
        Number.NaN,
        cycle,
        () => 1,
        Symbol("s"),
        "\u0000\ud800",
        "x".repeat(3_000_000),
        {
          toJSON: () => {
            throw new Error("no")
          }
        },
        { _tag: "deadman/Again", delayMs: "soon" },
        {
          // oxlint-disable-next-line unicorn/no-thenable -- what a hostile handler returns
          get then() {
            throw new Error("no then")
          }
        },
        {
          // oxlint-disable-next-line unicorn/no-thenable -- a foreign promise that calls back twice
          then: (resolve: (value: unknown) => void) => {
            resolve(1)
            resolve(2)
            throw new Error("three")
          }
        },
        new Map([[1, 2]]),
        proxy
      ]
      const handlers: Record<string, Handler> = { good: () => "good" }
      const ids = []
      for (const [index, value] of values.entries()) {
        handlers[`returns-${index}`] = () => value
        handlers[`throws-${index}`] = () => {
          throw value
        }
        handlers[`rejects-${index}`] = () => Promise.reject(value)
        handlers[`fails-${index}`] = () => Effect.fail(value)
        for (const how of ["returns", "throws", "rejects", "fails"]) {
          ids.push(yield* world.submit(`${how}-${index}`, { maxAttempts: 1 }))
        }
        ids.push(yield* world.submit("good"))
      }
      yield* world.start(handlers, { slots: 3 })
      yield* pass(5_000)
      for (const id of ids) {
        const job = yield* world.job(id)
        assert.include(["completed", "dead"], job.state, job.type)
        assert.strictEqual(job.deliveries, 1)
        if (job.type === "good") {
          assert.strictEqual(job.result, "good")
        } else if (!job.type.startsWith("returns-")) {
          assert.strictEqual(job.state, "dead", job.type)
        }
      }
    }))

  it.effect("what was claimed ahead and not started within a second is handed back, without a loss or an event", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const mode = { ms: 10 }
      const handler: Handler = () => Effect.sleep(mode.ms)
      for (let n = 0; n < 40; n++) {
        yield* world.submit("work")
      }
      yield* world.start({ work: handler }, { slots: 2 })
      yield* pass(600, 10)
      mode.ms = 30_000
      const ids = yield* Effect.forEach(Array.from({ length: 30 }), () => world.submit("work"))
      yield* pass(100, 10)
      const states = () => Effect.forEach(ids, (id) => world.job(id))
      const ahead = (yield* states()).filter(({ state }) => state === "running").length
      assert.isAbove(ahead, 2)
      yield* pass(2_000, 50)
      const jobs = yield* states()
      assert.strictEqual(jobs.filter(({ state }) => state === "running").length, 2)
      for (const job of jobs.filter(({ state }) => state === "pending")) {
        assert.strictEqual(job.attempts + job.leaseLosses + job.events.length, 0)
      }
    }))

  it.effect("where long runs have begun together nothing is claimed for their slots until they are about to end", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const ids = yield* Effect.forEach(Array.from({ length: 300 }), () => world.submit("work"))
      yield* world.start({ work: () => Effect.sleep(1_000) }, { slots: 25 })
      let most = 0
      // Looked at in the middle of each run, not where the runs end.
      for (let round = 0; round < 5; round++) {
        yield* pass(100, 10)
        for (let passed = 0; passed < 600; passed += 50) {
          most = Math.max(most, (yield* world.store.counts).byState.running)
          yield* pass(50, 10)
        }
        yield* pass(300, 10)
      }
      assert.strictEqual(most, 25)
      yield* pass(10_000)
      for (const id of ids) {
        assert.deepInclude(yield* world.job(id), { state: "completed", deliveries: 1 })
      }
    }))

  it.effect("however quick runs were, no more is claimed ahead than two claims bring", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const mode = { ms: 0 }
      yield* Effect.forEach(Array.from({ length: 40 }), () => world.submit("work"))
      yield* world.start({ work: () => mode.ms === 0 ? undefined : Effect.sleep(mode.ms) }, { slots: 4 })
      yield* pass(500)
      mode.ms = 600_000
      const jobs = yield* Jobs.jobs(6_000, { type: JobType.make("work") })
      yield* world.store.submit(jobs, { atomic: false })
      yield* world.transport.publish(jobs)
      let most = 0
      for (let turn = 0; turn < 40; turn++) {
        yield* pass(1, 1)
        most = Math.max(most, (yield* world.store.counts).byState.running)
      }
      assert.isAbove(most, 1_000)
      assert.isAtMost(most, roomMax + 4)
    }), 180_000)

  it.effect("a claim that is lost while a handler is late to end after its timeout records nothing", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const ends: Array<() => void> = []
      const id = yield* world.submit("late", { timeoutMs: 1_000 })
      yield* world.start({ late: () => new Promise<void>((resolve) => ends.push(resolve)) })
      // Interrupted a moment ago, and not yet a runaway.
      yield* pass(1_300)
      const cancelled = yield* world.store.cancel(id)
      assert(cancelled._tag === "Cancelled" && cancelled.cutOff !== null)
      yield* world.transport.wake([{ _tag: "Revoked", id, ...cancelled.cutOff }])
      yield* pass(100)
      ends.forEach((end) => end())
      yield* pass(1_000)
      assert.lengthOf(ends, 1)
      assert.lengthOf(world.calls.filter(({ operation }) => operation === "settle"), 0)
      assert.include(yield* world.job(id), { state: "dead", reason: "cancelled", staleWrites: 0 })
    }))

  it.effect("handlers that never wait do not keep the heartbeat from its turn", () =>
    Effect.gen(function*() {
      const world = yield* make()
      for (let n = 0; n < 200; n++) {
        yield* world.submit("noop")
      }
      // Each run takes two milliseconds of the worker's clock, without a turn of the event loop.
      yield* world.start({
        noop: () => {
          world.frozen.ms += 2
        }
      }, { slots: 4 })
      let turns = 0
      const done = Effect.map(world.store.counts, (counts) => counts.byState.completed === 200)
      while (!(yield* done) && turns < 1_000) {
        turns += 1
        yield* pass(1, 1)
      }
      assert.isAbove(turns, 5)
      assert.isBelow(turns, 1_000)
    }))

  it.effect("what a drain counts is in the totals", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.submit("endless")
      const pool = yield* world.start({ endless: () => Effect.never }, { drain: Duration.zero })
      yield* pass(3_000)
      const released = Effect.map(world.sessions.totals, (totals) => totals["released"] ?? 0)
      const before = yield* released

      const stopped = yield* Effect.forkChild(pool.stop)
      yield* pass(3_000)
      yield* Fiber.join(stopped)

      assert.strictEqual(yield* released, before + 1)
      assert.deepStrictEqual(yield* world.sessions.list(60_000), [])
    }))

  it.effect("a list of processes that does not answer holds the last report up for half a second", () =>
    Effect.gen(function*() {
      const { sessions } = yield* make()
      const session = Effect.succeed({
        name: "gone",
        role: "worker" as const,
        version: "1",
        handlers: [],
        slots: 1,
        running: 0,
        runaways: 0,
        draining: true,
        counters: {}
      })
      const left = yield* Effect.forkChild(Reports.leave({ ...sessions, report: () => Effect.never }, session))
      yield* pass(500)
      assert.isDefined(left.pollUnsafe())
    }))

  it.effect("a stop says what it waits for, and what became of it", () => {
    const lines: Array<string> = []
    const logger = Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))])
    const stopped = Effect.fnUntraced(function*(ms: number, jobs: number) {
      const world = yield* make()
      for (let n = 0; n < jobs; n++) {
        yield* world.submit("work")
      }
      const pool = yield* world.start({ work: () => Effect.sleep(ms) }, { drain: Duration.seconds(1) })
      yield* pass(200)
      lines.length = 0
      const stopping = yield* Effect.forkChild(pool.stop)
      yield* pass(3_000)
      yield* Fiber.join(stopping)
      return lines.filter((line) => line.startsWith("stop"))
    })
    return Effect.gen(function*() {
      assert.deepStrictEqual(yield* stopped(60_000, 2), [
        "stopping: 2 running jobs may take 1s to finish",
        "stopped: 2 jobs were handed back"
      ])
      assert.deepStrictEqual(yield* stopped(500, 1), [
        "stopping: 1 running job may take 1s to finish",
        "stopped: all running jobs have finished"
      ])
      assert.deepStrictEqual(yield* stopped(500, 0), [])
    }).pipe(Effect.provide(logger))
  })
})
