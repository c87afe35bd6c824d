/** Laws of `Schedules`: each tick makes one job, whoever asks and however often. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { queueDefault } from "../../src/domain/Job.ts"
import type { NewSchedule } from "../../src/domain/Schedule.ts"
import { JobStore } from "../../src/ports/JobStore.ts"
import { Schedules } from "../../src/ports/Schedules.ts"
import { freshId, freshLease } from "../support/Jobs.ts"
import * as JobSteps from "./JobStoreContractSteps.ts"
import * as Steps from "./SchedulesContractSteps.ts"

export const firingLaws: Steps.Laws = (it, pass) => {
  it.effect("3, 4: a firing makes one job per tick, which names it, and books the next", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const backoff = { kind: "fixed", delay_ms: 9 } as const
      const { wanted } = yield* Steps.due(pass, { priority: 3, backoff })
      const ids = [yield* freshId, yield* freshId]
      const asked = yield* Steps.request(wanted.name, ids)
      const fired = yield* schedules.fire([asked])
      assert.deepStrictEqual(fired.moved, [wanted.name])
      assert.deepStrictEqual(new Set(fired.jobs.map(({ id }) => id)), new Set(ids))
      assert.isTrue(fired.jobs.every(({ ordered, type }) => ordered && type === wanted.type))
      const jobs = yield* Steps.jobsOf(wanted.type)
      assert.deepStrictEqual(
        jobs.map(({ schedule, tickMs }) => [schedule, tickMs]).sort(),
        asked.ticks.map(({ tickMs }) => [wanted.name, tickMs]).sort()
      )
      for (const job of jobs) {
        assert.deepStrictEqual(job.backoff, backoff)
        assert.deepStrictEqual(
          [job.state, job.payload, job.priority, job.maxAttempts, job.timeoutMs, job.retainMs, job.tags, job.queue],
          ["pending", { n: 1 }, 3, 3, 5_000, 7_000, ["nightly"], queueDefault]
        )
      }
      const after = (yield* schedules.get(wanted.name))!
      assert.strictEqual(after.nextFireMs, asked.nextFireMs)
      assert.strictEqual(after.lastFireMs, asked.ticks[1]!.tickMs)
      assert.strictEqual(after.lastJob, ids[1])
      yield* schedules.remove(wanted.name)
    }))

  it.effect("4, 6: what a firing or a run makes is claimed in its place, by its priority too", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      for (const how of ["fire", "run"] as const) {
        const { wanted } = yield* Steps.due(pass, { priority: 1 })
        const older = yield* JobSteps.submitted({ type: wanted.type })
        const id = yield* freshId
        yield* how === "run"
          ? schedules.run(wanted.name, id)
          : schedules.fire([yield* Steps.request(wanted.name, [id])])
        assert.deepStrictEqual(JobSteps.idsOf(yield* JobSteps.take(older)), [id, older.id], how)
        yield* schedules.remove(wanted.name)
      }
    }))

  it.effect("3: a second one as due saw it changes nothing, however many ask at once", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const made = yield* Effect.forEach(Array.from({ length: 5 }), () => Steps.put())
      yield* pass("1100 millis")
      const asks = yield* Effect.forEach(
        Array.from({ length: 6 }),
        () => Effect.forEach(made, ({ wanted }) => Effect.flatMap(freshId, (id) => Steps.request(wanted.name, [id])))
      )
      const all = yield* Effect.forEach(asks, (ask) => schedules.fire(ask), { concurrency: "unbounded" })
      const again = yield* schedules.fire(asks[0]!)
      assert.deepStrictEqual([again.moved, again.jobs], [[], []], "the answer was lost, and it is asked again")
      assert.lengthOf(all.flatMap(({ moved }) => moved), 5)
      for (const { wanted } of made) {
        assert.lengthOf(yield* Steps.jobsOf(wanted.type), 1, wanted.name)
        yield* schedules.remove(wanted.name)
      }
    }))

  it.effect("3: one that was changed, paused, resumed, run or removed since due is left alone", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const changes = [
        (wanted: NewSchedule) => Effect.asVoid(schedules.put({ ...wanted, payload: "2" })),
        (wanted: NewSchedule) => Effect.asVoid(schedules.pause(wanted.name)),
        (wanted: NewSchedule) =>
          Effect.asVoid(Effect.andThen(schedules.pause(wanted.name), schedules.resume(wanted.name))),
        (wanted: NewSchedule) => Effect.asVoid(schedules.remove(wanted.name))
      ]
      for (const change of changes) {
        const { wanted } = yield* Steps.due(pass)
        const asked = yield* Steps.request(wanted.name, [yield* freshId])
        yield* change(wanted)
        const fired = yield* schedules.fire([asked])
        assert.deepStrictEqual([fired.moved, fired.jobs], [[], []])
        assert.lengthOf(yield* Steps.jobsOf(wanted.type), 0)
        yield* schedules.remove(wanted.name)
      }
    }))

  it.effect("3: one that was removed and put again since due is left alone", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const { wanted } = yield* Steps.due(pass)
      const seen = yield* Steps.request(wanted.name, [yield* freshId])
      yield* schedules.remove(wanted.name)
      const { schedule } = yield* schedules.put(wanted)
      assert.deepStrictEqual((yield* schedules.fire([seen])).moved, [])
      assert.deepStrictEqual(yield* schedules.get(wanted.name), schedule)
      assert.lengthOf(yield* Steps.jobsOf(wanted.type), 0)
    }))

  it.effect("3: a tick of which there is a job makes no second one, whatever was booked", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const { wanted } = yield* Steps.due(pass)
      const asked = yield* Steps.request(wanted.name, [yield* freshId])
      yield* schedules.fire([asked])
      // As after a clock that went back, and a schedule that was removed and made again.
      yield* schedules.remove(wanted.name)
      yield* schedules.put(wanted)
      yield* pass("1100 millis")
      const again = yield* Steps.request(wanted.name, [yield* freshId])
      const fired = yield* schedules.fire([{
        ...again,
        ticks: [{ ...again.ticks[0]!, tickMs: asked.ticks[0]!.tickMs }]
      }])
      assert.deepStrictEqual(fired.moved, [wanted.name])
      assert.deepStrictEqual(fired.jobs, [])
      assert.lengthOf(yield* Steps.jobsOf(wanted.type), 1)
      yield* schedules.remove(wanted.name)
    }))

  it.effect("4: without ticks it is only booked anew, and with no booking it is over", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const { wanted } = yield* Steps.due(pass)
      const asked = yield* Steps.request(wanted.name, [])
      yield* schedules.fire([asked])
      assert.strictEqual((yield* schedules.get(wanted.name))!.nextFireMs, asked.nextFireMs)
      yield* pass("1100 millis")
      yield* schedules.fire([{ ...(yield* Steps.request(wanted.name, [])), nextFireMs: null }])
      assert.isNull((yield* schedules.get(wanted.name))!.nextFireMs)
      assert.lengthOf(yield* Steps.jobsOf(wanted.type), 0)
    }))

  it.effect("5: a tick is skipped while the job before is not final, and fires when it is", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const store = yield* JobStore
      const { wanted } = yield* Steps.due(pass, { overlap: "skip" })
      const first = yield* freshId
      yield* schedules.fire([yield* Steps.request(wanted.name, [first])])
      const { lastFireMs } = (yield* schedules.get(wanted.name))!
      yield* pass("1100 millis")
      const skipped = yield* schedules.fire([yield* Steps.request(wanted.name, [yield* freshId])])
      assert.deepStrictEqual([skipped.moved, skipped.jobs], [[wanted.name], []])
      assert.strictEqual((yield* schedules.get(wanted.name))!.lastFireMs, lastFireMs)
      yield* store.cancel(first)
      yield* pass("1100 millis")
      const third = yield* freshId
      const fired = yield* schedules.fire([yield* Steps.request(wanted.name, [third])])
      assert.deepStrictEqual(fired.jobs.map(({ id }) => id), [third])
      yield* schedules.remove(wanted.name)
    }))

  it.effect("5: a tick cancels the job before, waiting or running, and says which claim was cut off", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const store = yield* JobStore
      const { wanted } = yield* Steps.due(pass, { overlap: "cancel" })
      const [first, second, third] = [yield* freshId, yield* freshId, yield* freshId]
      assert.deepStrictEqual((yield* schedules.fire([yield* Steps.request(wanted.name, [first])])).cancelled, [])
      yield* pass("1100 millis")
      const waiting = yield* schedules.fire([yield* Steps.request(wanted.name, [second])])
      assert.deepStrictEqual(waiting.cancelled, [{ id: first, cutOff: null }])
      const lease = yield* freshLease
      const claimed = yield* store.claim({
        lease,
        leaseMs: 5_000,
        worker: "ada",
        types: [wanted.type],
        limit: 1,
        freeSlots: 1,
        bytes: 1_000
      })
      assert.deepStrictEqual(claimed.map(({ id }) => id), [second])
      yield* pass("1100 millis")
      const running = yield* schedules.fire([yield* Steps.request(wanted.name, [third])])
      assert.deepStrictEqual(running.cancelled, [{ id: second, cutOff: { lease, epoch: 1 } }])
      const states = new Map((yield* Steps.jobsOf(wanted.type)).map(({ id, reason, state }) => [id, [state, reason]]))
      assert.deepStrictEqual([first, second, third].map((id) => states.get(id)), [
        ["dead", "cancelled"],
        ["dead", "cancelled"],
        ["pending", null]
      ])
      yield* schedules.remove(wanted.name)
    }))
}
