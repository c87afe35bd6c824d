/** Laws of `Schedules`: a job of a schedule now, beside its ticks. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { ScheduleName } from "../../src/domain/Schedule.ts"
import { JobStore } from "../../src/ports/JobStore.ts"
import { Schedules } from "../../src/ports/Schedules.ts"
import { freshId, freshKey, job as newJob } from "../support/Jobs.ts"
import * as Steps from "./SchedulesContractSteps.ts"

export const runningLaws: Steps.Laws = (it) => {
  it.effect("6: run makes a job now, also of a paused schedule, names no tick, and leaves the booking", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const { put: { schedule: made }, wanted } = yield* Steps.put({ timing: { everyMs: 86_400_000 } })
      const id = yield* freshId
      const ran = yield* schedules.run(wanted.name, id)
      assert.strictEqual(ran._tag, "Ran")
      if (ran._tag === "Ran") {
        assert.deepStrictEqual([ran.job.id, ran.job.schedule, ran.job.tickMs], [id, wanted.name, null])
      }
      assert.strictEqual((yield* schedules.run(wanted.name, id))._tag, "Ran")
      assert.lengthOf(yield* Steps.jobsOf(wanted.type), 1, "asked again under the same id")
      const after = (yield* schedules.get(wanted.name))!
      assert.strictEqual(after.nextFireMs, made.nextFireMs)
      assert.isNull(after.lastFireMs)
      assert.strictEqual(after.lastJob, id)
      yield* schedules.pause(wanted.name)
      assert.strictEqual((yield* schedules.run(wanted.name, yield* freshId))._tag, "Ran")
      assert.lengthOf(yield* Steps.jobsOf(wanted.type), 2)
      assert.strictEqual((yield* schedules.run(ScheduleName.make("nobody"), yield* freshId))._tag, "NotFound")
    }))

  it.effect("6: run is refused where the tick would be skipped, and cancels where the tick would", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const [first, second] = [yield* freshId, yield* freshId]
      const { wanted } = yield* Steps.put({ overlap: "skip", paused: true })
      yield* schedules.run(wanted.name, first)
      const overlaps = { _tag: "Overlaps", job: first, state: "pending" } as const
      assert.deepStrictEqual(yield* schedules.run(wanted.name, yield* freshId), overlaps)
      yield* schedules.put({ ...wanted, overlap: "cancel" })
      const ran = yield* schedules.run(wanted.name, second)
      assert.deepStrictEqual(ran._tag === "Ran" ? ran.cancelled : ran, { id: first, cutOff: null })
      assert.lengthOf((yield* Steps.jobsOf(wanted.type)).filter(({ state }) => state === "pending"), 1)
    }))

  it.effect("6: of runs at once one makes a job, where they may not overlap", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      for (let round = 0; round < 10; round++) {
        const { wanted } = yield* Steps.put({ overlap: "skip", paused: true })
        const ran = yield* Effect.all(
          Array.from({ length: 2 }, () => Effect.flatMap(freshId, (id) => schedules.run(wanted.name, id))),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(ran.map(({ _tag }) => _tag).sort(), ["Overlaps", "Ran"])
      }
    }))

  it.effect("6: one Idempotency-Key is one run, under any concurrency, and one that was refused leaves it free", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const store = yield* JobStore
      const { wanted } = yield* Steps.put({ overlap: "skip", paused: true })
      const [one, other] = [{ key: yield* freshKey, fingerprint: "a" }, { key: yield* freshKey, fingerprint: "a" }]
      const ran = yield* Effect.all(
        Array.from({ length: 4 }, () => Effect.flatMap(freshId, (id) => schedules.run(wanted.name, id, one))),
        { concurrency: "unbounded" }
      )
      const [job] = yield* Steps.jobsOf(wanted.type)
      assert.deepStrictEqual(ran.map(({ _tag }) => _tag).sort(), ["Ran", "Replayed", "Replayed", "Replayed"])
      assert.deepStrictEqual(
        new Set(ran.map((answer) => answer._tag === "Ran" || answer._tag === "Replayed" ? answer.job?.id : null)),
        new Set([job?.id])
      )
      const id = yield* freshId
      assert.deepStrictEqual(yield* schedules.run(wanted.name, id, { ...one, fingerprint: "b" }), {
        _tag: "KeyMismatch",
        job: job!.id
      })
      assert.strictEqual((yield* schedules.run(wanted.name, id, other))._tag, "Overlaps")
      assert.strictEqual((yield* schedules.run(ScheduleName.make("nobody"), id, other))._tag, "NotFound")
      yield* store.cancel(job!.id)
      assert.strictEqual((yield* schedules.run(wanted.name, id, other))._tag, "Ran")
      assert.strictEqual((yield* schedules.run(wanted.name, id, other))._tag, "Ran", "the same id again")
      const submit = yield* newJob({ key: one })
      const { answers } = yield* store.submit([submit], { atomic: false })
      assert.deepStrictEqual(answers, [{ _tag: "Replayed", id: job!.id }], "the keys are those of submits")
      yield* schedules.remove(wanted.name)
      assert.strictEqual((yield* schedules.run(wanted.name, yield* freshId, other))._tag, "Replayed")
      assert.lengthOf(yield* Steps.jobsOf(wanted.type), 2)
    }))
}
