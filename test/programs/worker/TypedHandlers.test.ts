/** Typed handlers in a pool: interruption reaches every form, and what they note is kept. */
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Schema } from "effect"
import { CurrentJob } from "../../../src/ports/CurrentJob.ts"
import { JobStoreUnavailable } from "../../../src/ports/JobStore.ts"
import { define } from "../../../src/programs/job/Definition.ts"
import * as Handlers from "../../../src/programs/worker/Handlers.ts"
import * as Notes from "../../../src/programs/worker/Notes.ts"
import { make, pass, type World } from "../../support/WorkerWorld.ts"

const asEffect = define({ type: "asEffect", payload: Schema.Unknown })
const asAsync = define({ type: "asAsync", payload: Schema.Unknown })
const asSignal = define({ type: "asSignal", payload: Schema.Unknown })
const types = [asEffect.type, asAsync.type, asSignal.type]

/** Runs without an end in three forms, and who was interrupted. */
const endless = Effect.gen(function*() {
  const interrupted: Array<string> = []
  const until = (signal: AbortSignal, name: string) =>
    new Promise<string>((resolve) =>
      signal.addEventListener("abort", () => {
        interrupted.push(name)
        resolve("gave up")
      }, { once: true })
    )
  const { get } = yield* Effect.orDie(Handlers.makeTyped([
    asEffect.handle(() => Effect.never.pipe(Effect.onInterrupt(() => Effect.sync(() => interrupted.push("asEffect"))))),
    asAsync.handle((_payload, { signal }) => until(signal, "asAsync")),
    // An Effect around something that knows signals only.
    asSignal.handle(() =>
      Effect.gen(function*() {
        const { signal } = yield* CurrentJob
        return yield* Effect.promise(() => until(signal, "asSignal"))
      })
    )
  ]))
  return { interrupted, handlers: Object.fromEntries(types.map((type) => [type, get(type)!])) }
})

const start = Effect.fnUntraced(
  function*(change: { readonly timeoutMs?: number; readonly drain?: Duration.Duration } = {}) {
    const world = yield* make()
    const { handlers, interrupted } = yield* endless
    const submitted = { timeoutMs: change.timeoutMs ?? null, maxAttempts: 1 }
    const ids = yield* Effect.forEach(types, (type) => world.submit(type, submitted))
    const pool = yield* world.start(handlers, change.drain === undefined ? {} : { drain: change.drain })
    yield* pass(500)
    assert.strictEqual(yield* pool.service.running, 3)
    return { world, ids, interrupted, pool }
  }
)

const jobs = (world: World, ids: ReadonlyArray<Parameters<World["job"]>[0]>) => Effect.forEach(ids, world.job)

describe("interruption reaches a typed handler in every form", () => {
  it.effect("when its attempt runs out of time: a failed attempt", () =>
    Effect.gen(function*() {
      const { ids, interrupted, world } = yield* start({ timeoutMs: 1_000 })
      assert.deepStrictEqual(interrupted, [])
      yield* pass(1_000)
      assert.deepStrictEqual(interrupted.sort(), types.toSorted())
      for (const job of yield* jobs(world, ids)) {
        assert.deepStrictEqual([job.state, job.attempts, job.errors[0]?.name], ["dead", 1, "Timeout"])
      }
    }))

  it.effect("when its job is cancelled: nothing is recorded", () =>
    Effect.gen(function*() {
      const { ids, interrupted, world } = yield* start()
      yield* Effect.forEach(ids, (id) => world.store.cancel(id))
      // Nobody told the worker: its heartbeat finds out.
      yield* pass(6_500)
      assert.deepStrictEqual(interrupted.sort(), types.toSorted())
      for (const job of yield* jobs(world, ids)) {
        assert.deepStrictEqual([job.reason, job.attempts, job.staleWrites], ["cancelled", 0, 0])
      }
    }))

  it.effect("when its lease is lost: nothing is recorded, and the job is given to another", () =>
    Effect.gen(function*() {
      const { ids, interrupted, world } = yield* start()
      yield* pass(2_000)
      const { leases } = yield* world.store.look
      const { tokens } = yield* world.register.look(leases.map(({ lease }) => lease))
      for (const { lease, token } of leases) {
        yield* world.register.markLapsed(lease, tokens.get(lease)!)
        yield* world.store.reclaim([{ lease, token }], { counted: true, lossesMax: 7 })
      }
      yield* pass(1_100)
      assert.deepStrictEqual(interrupted.sort(), types.toSorted())
      for (const job of yield* jobs(world, ids)) {
        assert.deepStrictEqual([job.leaseLosses, job.attempts, job.staleWrites], [1, 0, 0])
      }
    }))

  it.effect("when the process stops: the job is handed back at no cost", () =>
    Effect.gen(function*() {
      const { ids, interrupted, pool, world } = yield* start({ drain: Duration.millis(500) })
      yield* Effect.forkChild(pool.stop)
      yield* pass(300)
      assert.deepStrictEqual(interrupted, [])
      yield* pass(1_500)
      assert.deepStrictEqual(interrupted.sort(), types.toSorted())
      for (const job of yield* jobs(world, ids)) {
        assert.deepStrictEqual([job.state, job.attempts, job.leaseLosses], ["pending", 0, 0])
      }
    }))
})

const noting = define({ type: "noting", payload: Schema.Struct({ lines: Schema.Int }) })

describe("what a handler notes", () => {
  const handled = (handler: ReturnType<typeof noting.handle>) =>
    Effect.map(Effect.orDie(Handlers.makeTyped([handler])), ({ get }) => ({ noting: get("noting")! }))

  it.effect("is kept with the attempt, from a function and from an Effect, also when the run fails", () =>
    Effect.gen(function*() {
      const forms = [
        noting.handle((_payload, { log, progress }) => {
          progress({ done: 1 })
          log("first")
          progress({ done: 2 })
          log("second")
          return Promise.reject(new Error("no"))
        }),
        noting.handle(() =>
          Effect.gen(function*() {
            const current = yield* CurrentJob
            yield* current.progress({ done: 1 })
            yield* current.log("first")
            yield* current.progress({ done: 2 })
            yield* current.log("second")
            return yield* Effect.fail("no")
          })
        )
      ]
      for (const form of forms) {
        const world = yield* make()
        yield* world.start(yield* handled(form))
        const id = yield* world.submit("noting", {
          payload: "{\"lines\":0}",
          maxAttempts: 2,
          backoff: { kind: "fixed", delay_ms: 0 }
        })
        yield* pass(5_000)
        const job = yield* world.job(id)
        assert.deepStrictEqual(job.progress, { done: 2 })
        assert.deepStrictEqual(job.logs.map(({ attempt, line }) => `${attempt} ${line}`), [
          "1 first",
          "1 second",
          "2 first",
          "2 second"
        ])
        assert.strictEqual(job.attempts, 2)
      }
    }))

  it.effect("is bounded, of any kind, and never disturbs the run", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.start(
        yield* handled(noting.handle(({ lines }, { log, progress }) => {
          for (let n = 0; n < lines; n++) {
            log(`${n} ${"x".repeat(2_000)}\u0000`)
          }
          log(12n as never)
          progress({ big: "y".repeat(100_000) })
        }))
      )
      const id = yield* world.submit("noting", { payload: "{\"lines\":500}" })
      yield* pass(500)
      const job = yield* world.job(id)
      assert.strictEqual(job.state, "completed")
      assert.lengthOf(job.logs, 50)
      assert.isTrue(job.logs.every(({ line }) => line.length <= 500 && !line.includes("\u0000")))
      assert.isTrue(job.logs[48]?.line.startsWith("499 "))
      assert.strictEqual(job.logs[49]?.line, "12")
      assert.propertyVal(job.progress as object, "too_large", true)
    }))

  it.effect("is written once a second by a process, in one batch, and by those that note nothing never", () =>
    Effect.gen(function*() {
      let sent: Array<number> = []
      const world = yield* make({
        store: (store) => ({
          ...store,
          note: (notes) => {
            sent.push(notes.length)
            return store.note(notes)
          }
        })
      })
      const chatty = noting.handle((_payload, { log }) =>
        Effect.forEach(
          Array.from({ length: 50 }),
          (_, n) => Effect.andThen(Effect.sync(() => log(`line ${n}`)), Effect.sleep(100)),
          { discard: true }
        )
      )
      yield* world.start({ ...(yield* handled(chatty)), quiet: () => Effect.sleep(100) }, { slots: 10 })
      yield* Effect.forEach([1, 2, 3], () => world.submit("quiet"))
      yield* pass(1_000)
      assert.deepStrictEqual(sent, [])
      const ids = yield* Effect.forEach(
        Array.from({ length: 10 }),
        () => world.submit("noting", { payload: "{\"lines\":0}" })
      )
      yield* pass(5_500)
      assert.isAtMost(sent.length, 2 * Math.ceil(5_500 / Notes.everyMs))
      assert.isAtLeast(Math.max(...sent), 10)
      sent = []
      yield* pass(2_000)
      for (const job of yield* Effect.forEach(ids, world.job)) {
        assert.deepStrictEqual(job.logs.map(({ line }) => line), Array.from({ length: 50 }, (_, n) => `line ${n}`))
      }
    }))

  it.effect("waits for a store that is away, and a process that stops brings it first", () =>
    Effect.gen(function*() {
      const away = { now: true }
      const world = yield* make({
        store: (store) => ({
          ...store,
          note: (notes) =>
            away.now ? Effect.fail(new JobStoreUnavailable({ operation: "note", cause: "away" })) : store.note(notes)
        })
      })
      const pool = yield* world.start(
        yield* handled(noting.handle((_payload, { log, progress }) => {
          log("one")
          log("two")
          progress(1)
        }))
      )
      const id = yield* world.submit("noting", { payload: "{\"lines\":0}" })
      yield* pass(3_000)
      assert.deepStrictEqual([(yield* world.job(id)).state, (yield* world.job(id)).logs], ["completed", []])
      away.now = false
      yield* Effect.forkChild(pool.stop)
      yield* pass(500)
      const job = yield* world.job(id)
      assert.deepStrictEqual(job.logs.map(({ line }) => line), ["one", "two"])
      assert.strictEqual(job.progress, 1)
    }))
})
