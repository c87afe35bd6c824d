/** Handlers that are offloaded to threads: what comes back, who survives, and that nobody waits for them in vain. */
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Schema } from "effect"
import * as ThreadPool from "../../../src/adapters/threads/ThreadPool.ts"
import * as Job from "../../../src/programs/Job.ts"
import * as Handlers from "../../../src/programs/worker/Handlers.ts"
import { eventually } from "../../support/Eventually.ts"
import { make, type World } from "../../support/WorkerWorld.ts"

const module = new URL("../../support/handlers/crunch.js", import.meta.url)
const crunch = Job.define({ type: "crunch", payload: Schema.Record(Schema.String, Schema.Json) })
const dated = Job.define({ type: "dated", payload: Schema.Struct({ placedAt: Schema.Date }) })
const absent = Job.define({ type: "absent", payload: Schema.Unknown })
const strange = Job.define({ type: "strange", payload: Schema.Unknown })

const handlers = Effect.map(
  Effect.orDie(Handlers.makeTyped([
    Job.offload(crunch, module, { threads: 2 }),
    Job.offload(dated, module, { name: "named", threads: 2 }),
    Job.offload(absent, new URL("nowhere.js", module), { threads: 2 }),
    Job.offload(strange, module, { name: "notAFunction", threads: 2 })
  ])),
  ({ get, types }) => Object.fromEntries(types.map((type) => [type, get(type)!]))
)

const crunching = (world: World, payload: object, change: object = {}) =>
  world.submit("crunch", { payload: JSON.stringify(payload), ...change })

const ended = Effect.fnUntraced(function*(world: World, id: Parameters<World["job"]>[0]) {
  yield* eventually(
    "the job is final",
    Effect.map(world.job(id), ({ state }) => state === "completed" || state === "dead")
  )
  return yield* world.job(id)
})

describe("a handler in a thread", () => {
  it.live("brings results, notes, failures, rejections and agains across", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.start(yield* handlers, { slots: 4 })
      const once = { maxAttempts: 1 }
      const ids = {
        echo: yield* crunching(world, { do: "echo", n: [1, { a: null }] }),
        fail: yield* crunching(world, { do: "fail" }, once),
        reject: yield* crunching(world, { do: "reject" }),
        again: yield* crunching(world, { do: "again" }),
        odd: yield* crunching(world, { do: "odd notes" }, once),
        unclonable: yield* crunching(world, { do: "unclonable" }, once),
        dated: yield* world.submit("dated", { payload: "{\"placedAt\":\"2026-11-29T10:00:00.000Z\"}" }),
        absent: yield* world.submit("absent", once),
        strange: yield* world.submit("strange", once)
      }
      const echo = yield* ended(world, ids.echo)
      assert.deepStrictEqual(echo.result, { do: "echo", n: [1, { a: null }] })
      // What a thread notes comes message by message, and may be written in two rounds.
      yield* eventually(
        "it noted",
        Effect.map(world.job(ids.echo), ({ logs, progress }) => logs.length > 0 && progress !== null)
      )
      const { logs, progress } = yield* world.job(ids.echo)
      assert.deepStrictEqual([logs[0]?.line, progress], ["delivery 1", { half: true }])
      // Notes never fail a run, whatever they are.
      assert.strictEqual((yield* ended(world, ids.odd)).result, "noted")
      yield* eventually("its notes are there", Effect.map(world.job(ids.odd), ({ logs }) => logs.length > 0))
      const odd = yield* world.job(ids.odd)
      assert.deepStrictEqual([odd.logs[0]?.line, odd.progress], ["[unreadable]", { of: 3 }])
      const fail = yield* ended(world, ids.fail)
      assert.deepInclude(fail.errors[0], { name: "TypeError", message: "it went wrong: because" })
      assert.strictEqual((yield* ended(world, ids.reject)).reason, "rejected")
      const again = yield* ended(world, ids.again)
      assert.deepStrictEqual([again.result, again.attempts], [2, 0])
      assert.strictEqual((yield* ended(world, ids.unclonable)).errors[0]?.name, "DataCloneError")
      assert.strictEqual((yield* ended(world, ids.dated)).result, true)
      assert.include((yield* ended(world, ids.absent)).errors[0]?.message, "nowhere.js")
      assert.include((yield* ended(world, ids.strange)).errors[0]?.message, "exports no function called notAFunction")
    }), 180_000)

  it.live("that dies is a failed attempt of its job alone", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.start(yield* handlers, { slots: 4 })
      const exit = yield* crunching(world, { do: "exit" }, { maxAttempts: 1 })
      const leak = yield* crunching(world, { do: "leak" }, { maxAttempts: 1 })
      const good = yield* crunching(world, { do: "echo" })
      assert.include((yield* ended(world, exit)).errors[0]?.message, "ended with code 7")
      assert.include((yield* ended(world, leak)).errors[0]?.message, "thrown in a timer")
      assert.strictEqual((yield* ended(world, good)).state, "completed")
    }), 180_000)

  it.live("that is interrupted ends at once, in the middle of its computation", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const pool = yield* world.start(yield* handlers, { slots: 4, drain: Duration.millis(100) })
      const late = yield* crunching(world, { do: "forever" }, { timeoutMs: 500, maxAttempts: 1 })
      assert.strictEqual((yield* ended(world, late)).errors[0]?.name, "Timeout")
      const [one, two] = [
        yield* crunching(world, { do: "forever" }),
        yield* crunching(world, { do: "forever" })
      ]
      yield* eventually("both run", Effect.map(pool.service.running, (running) => running === 2))
      // Waits for a thread, of which there are two.
      const three = yield* crunching(world, { do: "echo" }, { timeoutMs: 700, maxAttempts: 1 })
      assert.strictEqual((yield* ended(world, three)).errors[0]?.name, "Timeout")
      yield* pool.stop
      assert.strictEqual(yield* pool.service.runaways, 0)
      for (const id of [one, two]) {
        const job = yield* world.job(id)
        assert.deepStrictEqual([job.state, job.attempts, job.leaseLosses], ["pending", 0, 0])
      }
    }), 180_000)

  it.live("shares a bounded number of threads, which are used again", () =>
    Effect.gen(function*() {
      const pool = ThreadPool.make(2)
      const seen: Array<number> = []
      const run = (payload: object, signal = new AbortController().signal) =>
        Effect.promise(() =>
          pool.run({
            url: module.href,
            name: "default",
            payload,
            job: { delivery: 1 },
            claim: {},
            signal,
            progress: () => seen.push(pool.size()),
            log: () => undefined
          })
        )
      yield* Effect.forEach(Array.from({ length: 20 }), () => run({ do: "echo" }), { concurrency: "unbounded" })
      assert.lengthOf(seen, 20)
      assert.strictEqual(Math.max(...seen), 2)
      const aborted = yield* Effect.exit(run({ do: "echo" }, AbortSignal.abort(new Error("too late"))))
      assert.strictEqual(aborted._tag, "Failure")
      // One that is gone is replaced.
      yield* Effect.exit(run({ do: "exit" }))
      yield* run({ do: "echo" })
      assert.isAtMost(pool.size(), 2)
    }), 180_000)

  it("asks for a number of threads that makes sense", () => {
    for (const threads of [0, 1.5, 257]) {
      assert.throws(() => Job.offload(crunch, module, { threads }), RangeError)
    }
  })
})
