import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as GuardedEffectsMemory from "../../../src/adapters/memory/GuardedEffectsMemory.ts"
import { type Claim, Epoch } from "../../../src/domain/Claim.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import type { HandlerContext } from "../../../src/ports/CurrentJob.ts"
import { GuardedEffects, GuardedEffectsUnavailable } from "../../../src/ports/GuardedEffects.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import * as BuiltIn from "../../../src/programs/handlers/BuiltIn.ts"
import * as Ids from "../../support/Ids.ts"
import { make, pass } from "../../support/WorkerWorld.ts"

const context = (claim: Claim): HandlerContext => ({
  claim,
  signal: new AbortController().signal,
  progress: () => undefined,
  log: () => undefined,
  toResult: () => null
})

const started = Effect.gen(function*() {
  const world = yield* make()
  const handlers = yield* BuiltIn.make.pipe(
    Effect.provide(GuardedEffectsMemory.layer.pipe(Layer.provide(Layer.succeed(JobStore, world.store))))
  )
  yield* world.start(handlers, { slots: 20 })
  return world
})

describe("the built-in handlers", () => {
  it.effect("noop does nothing, sleep sleeps, always-fails fails", () =>
    Effect.gen(function*() {
      const world = yield* started
      const noop = yield* world.submit("noop")
      const number = yield* world.submit("sleep", { payload: "1000" })
      const text = yield* world.submit("sleep", { payload: "\"1000\"" })
      const fails = yield* world.submit("always-fails", { maxAttempts: 1 })
      yield* pass(900)
      assert.strictEqual((yield* world.job(noop)).state, "completed")
      assert.strictEqual((yield* world.job(number)).state, "running")
      assert.strictEqual((yield* world.job(text)).state, "running")
      yield* pass(200)
      assert.strictEqual((yield* world.job(number)).state, "completed")
      assert.strictEqual((yield* world.job(text)).state, "completed")
      const dead = yield* world.job(fails)
      assert.strictEqual(dead.reason, "attempts_exhausted")
      assert.strictEqual(dead.errors[0]?.message, "always fails")
    }))

  it.effect("a payload that cannot be meant is rejected, not retried", () =>
    Effect.gen(function*() {
      const world = yield* started
      const ids = yield* Effect.forEach(
        ["null", "-1", "1e300", "\"soon\"", "\"\"", "{}", "[5]"],
        (payload) => Effect.all([world.submit("sleep", { payload }), world.submit("flaky", { payload })])
      )
      yield* pass(500)
      for (const id of ids.flat()) {
        const job = yield* world.job(id)
        assert.strictEqual(job.reason, "rejected")
        assert.strictEqual(job.attempts, 1)
      }
    }))

  it.effect("flaky fails as often as it is told", () =>
    Effect.gen(function*() {
      const world = yield* started
      const ids = yield* Effect.forEach(
        Array.from({ length: 300 }),
        () => world.submit("flaky", { payload: "50", maxAttempts: 1 })
      )
      const [never, always] = [
        yield* world.submit("flaky", { payload: "0" }),
        yield* world.submit("flaky", { payload: "100" })
      ]
      yield* pass(2_000)
      const failed = (yield* Effect.forEach(ids, (id) => world.job(id))).filter(({ state }) => state === "dead").length
      // 50 % of 300, and six standard deviations.
      assert.approximately(failed, 150, 52)
      assert.strictEqual((yield* world.job(never)).attempts, 0)
      assert.isAbove((yield* world.job(always)).attempts, 0)
    }))

  it.effect("side-effect is guarded by its job, whatever key the job has", () =>
    Effect.gen(function*() {
      const guarded: Array<string> = []
      const effects = GuardedEffects.of({
        once: (claim, key) =>
          Effect.sync(() => {
            guarded.push(`${claim.id}:${key}`)
            return "fired" as const
          })
      })
      const handler = (yield* Effect.provideService(BuiltIn.make, GuardedEffects, effects))["side-effect"]!
      const run = (id: JobId) => {
        const claim = { id, epoch: Epoch.make(1), lease: Ids.leaseId() }
        const job = {
          id,
          type: "side-effect",
          payload: null,
          attempt: 1,
          delivery: 1,
          key: "used again",
          worker: "ada"
        }
        return handler(job, context(claim)) as Effect.Effect<unknown>
      }
      const [one, two] = [Ids.jobId(), Ids.jobId()]
      assert.isUndefined(yield* run(one))
      yield* run(two)
      assert.deepStrictEqual(guarded, [`${one}:${one}`, `${two}:${two}`])
    }))

  it.effect("H71: a store that is away while side-effect asks costs the job no attempt, but not for ever", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const from = { answers: 3 }
      const effects = GuardedEffects.of({
        once: () =>
          Effect.suspend(() => {
            from.answers -= 1
            return from.answers >= 0
              ? Effect.fail(new GuardedEffectsUnavailable({ cause: new Error("away") }))
              : Effect.succeed("fired" as const)
          })
      })
      yield* world.start(yield* Effect.provideService(BuiltIn.make, GuardedEffects, effects))
      const one = yield* world.submit("side-effect", { maxAttempts: 1 })
      yield* pass(3_000)
      assert.strictEqual((yield* world.job(one)).state, "completed")
      assert.strictEqual((yield* world.job(one)).attempts, 0)
      from.answers = Infinity
      const other = yield* world.submit("side-effect", { maxAttempts: 1 })
      yield* pass(60_000, 500)
      assert.strictEqual((yield* world.job(other)).reason, "attempts_exhausted")
    }))
})
