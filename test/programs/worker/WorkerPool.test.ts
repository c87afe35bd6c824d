import { assert, describe, it } from "@effect/vitest"
import { Clock, Duration, Effect } from "effect"
import { again, Rejected } from "../../../src/programs/worker/HandlerApi.ts"
import { make, pass } from "../../support/WorkerWorld.ts"

describe("WorkerPool", () => {
  it.effect("runs what is ready, under one claim each, at no attempt", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const ids = yield* Effect.forEach(Array.from({ length: 20 }), () => world.submit("echo", { payload: "7" }))
      const pool = yield* world.start({ echo: (job) => job.payload })
      yield* pass(500)

      for (const id of ids) {
        const job = yield* world.job(id)
        assert.strictEqual(job.state, "completed")
        assert.strictEqual(job.result, 7)
        assert.strictEqual(job.attempts, 0)
        assert.strictEqual(job.deliveries, 1)
      }
      yield* pool.stop
      assert.deepStrictEqual((yield* world.store.look).leases, [])
    }))

  it.effect("runs plain functions, async functions and Effects, and hears what they say", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const type = {
        plain: yield* world.submit("plain"),
        promise: yield* world.submit("promise"),
        effect: yield* world.submit("effect"),
        throws: yield* world.submit("throws"),
        rejects: yield* world.submit("rejects"),
        fails: yield* world.submit("fails"),
        dies: yield* world.submit("dies"),
        rejected: yield* world.submit("rejected"),
        marked: yield* world.submit("marked"),
        again: yield* world.submit("again")
      }
      const runs = { again: 0 }
      const pool = yield* world.start({
        plain: () => 1,
        promise: () => Promise.resolve(2),
        effect: () => Effect.succeed(3),
        throws: () => {
          throw new TypeError("thrown")
        },
        rejects: () => Promise.reject(new Error("rejected promise")),
        fails: () => Effect.fail("failed effect"),
        dies: () => Effect.die(new Error("died")),
        rejected: () => Effect.fail(new Rejected("never")),
        marked: () => Promise.reject(Object.assign(new Error("by shape"), { retry: false })),
        again: () => {
          runs.again += 1
          return runs.again === 1 ? again(60_000) : "second time"
        }
      })
      yield* pass(500)

      assert.strictEqual((yield* world.job(type.plain)).result, 1)
      assert.strictEqual((yield* world.job(type.promise)).result, 2)
      assert.strictEqual((yield* world.job(type.effect)).result, 3)
      for (const id of [type.throws, type.rejects, type.fails, type.dies]) {
        const job = yield* world.job(id)
        assert.strictEqual(job.attempts, 1)
        assert.strictEqual(job.errors.length, 1)
      }
      assert.strictEqual((yield* world.job(type.throws)).errors[0]?.name, "TypeError")
      for (const id of [type.rejected, type.marked]) {
        const job = yield* world.job(id)
        assert.strictEqual(job.state, "dead")
        assert.strictEqual(job.reason, "rejected")
      }
      const waits = yield* world.job(type.again)
      assert.strictEqual(waits.state, "pending")
      assert.strictEqual(waits.attempts, 0)
      assert.strictEqual(runs.again, 1)
      yield* pool.stop
    }))

  it.effect("lets running jobs finish within the drain, and hands back the others at no cost", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const short = yield* world.submit("sleep", { payload: "5000" })
      const long = yield* world.submit("sleep", { payload: "60000" })
      const waiting = yield* world.submit("sleep", { payload: "1", priority: -1 })
      const pool = yield* world.start(
        { sleep: (job) => Effect.sleep(job.payload as number) },
        { slots: 2 }
      )
      yield* pass(1_000)
      const stopping = yield* Effect.forkChild(pool.stop)
      yield* pass(5_000)
      assert.strictEqual((yield* world.job(short)).state, "completed")
      assert.strictEqual((yield* world.job(long)).state, "running")
      assert.isUndefined(stopping.pollUnsafe())

      yield* pass(7_000)
      assert.isDefined(stopping.pollUnsafe())
      const back = yield* world.job(long)
      assert.strictEqual(back.state, "pending")
      assert.strictEqual(back.attempts, 0)
      assert.strictEqual(back.leaseLosses, 0)
      assert.deepStrictEqual(back.events.map((event) => event.kind), ["released"])
      assert.strictEqual((yield* world.job(waiting)).deliveries, 0)
      assert.deepStrictEqual((yield* world.store.look).leases, [])
    }))

  it.effect("keeps its leases alive until the last step of the drain", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.submit("sleep")
      const pool = yield* world.start({ sleep: () => Effect.sleep(60_000) }, { slots: 1 })
      yield* pass(1_000)
      const stopping = yield* Effect.forkChild(pool.stop)
      yield* pass(9_000)
      const renewals = world.calls.filter((call) => call.operation === "renew" && call.atMs > 1_000)
      assert.isAtLeast(renewals.length, 7)
      yield* pass(5_000)
      assert.isDefined(stopping.pollUnsafe())
    }))

  it.effect("says within seconds that it runs something, and that it does not any more, however long it was calm", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.start({ sleep: () => Effect.sleep(30_000) })
      const reports = yield* Effect.forkChild(Effect.forever(Effect.gen(function*() {
        const [session] = yield* world.sessions.list(60_000)
        const nowMs = yield* Clock.currentTimeMillis
        assert.isAtMost(nowMs - (session?.seenAtMs ?? nowMs), 14_000)
        yield* Effect.sleep(500)
      })))
      const running = Effect.map(world.sessions.list(60_000), ([session]) => session?.running)
      yield* pass(43_700)
      assert.strictEqual(yield* running, 0)
      yield* world.submit("sleep")
      yield* pass(3_300)
      assert.strictEqual(yield* running, 1)
      yield* pass(26_600)
      assert.strictEqual(yield* running, 1)
      yield* pass(3_300)
      assert.strictEqual(yield* running, 0)
      yield* pass(60_000)
      assert.isUndefined(reports.pollUnsafe())
    }))

  it.effect("exits within the drain and five seconds, whatever hangs", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.submit("stuck")
      yield* world.submit("quick", { payload: "500" })
      const pool = yield* world.start({
        stuck: () => new Promise(() => undefined),
        quick: () => Effect.sleep(500)
      }, { drain: Duration.seconds(2) })
      yield* pass(200)
      for (const operation of ["claim", "settle", "endLeases", "verify", "abandon", "renew", "release"]) {
        world.faults.set(operation, "silent")
      }
      const stopping = yield* Effect.forkChild(pool.stop)
      yield* pass(7_000)
      assert.isDefined(stopping.pollUnsafe())
    }))
})
