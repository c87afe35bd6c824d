/** Laws of `Schedules`: what is stored of one, when it is due next, pausing, removing and listing. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { nextAfter, ScheduleName } from "../../src/domain/Schedule.ts"
import { JobStore } from "../../src/ports/JobStore.ts"
import { Schedules } from "../../src/ports/Schedules.ts"
import { freshId } from "../support/Jobs.ts"
import * as Steps from "./SchedulesContractSteps.ts"

export const bookingLaws: Steps.Laws = (it, pass) => {
  it.effect("1: what was put is found whole, with its first tick after now booked", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const store = yield* JobStore
      const before = yield* store.now
      const { put: { created, schedule: made }, wanted } = yield* Steps.put({
        timing: { cron: "30 4 * * *", zone: "Europe/Zurich" },
        missed: { all: 5 },
        overlap: "cancel",
        priority: 7,
        backoff: { kind: "fixed", delay_ms: 10 }
      })
      assert.isTrue(created)
      const { createdAtMs, lastFireMs, lastJob, nextFireMs, updatedAtMs, ...rest } = made
      assert.deepStrictEqual(rest, { ...wanted, payload: { n: 1 }, paused: false })
      assert.strictEqual(nextFireMs, nextAfter(wanted.timing, before))
      assert.isAtLeast(createdAtMs, before)
      assert.strictEqual(updatedAtMs, createdAtMs)
      assert.isNull(lastFireMs)
      assert.isNull(lastJob)
      assert.deepStrictEqual(yield* schedules.get(wanted.name), made)
      assert.isNull(yield* schedules.get(ScheduleName.make("nobody")))
    }))

  it.effect("1: the same timing again leaves the booking, also one that is overdue; the rest is replaced", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const { put: first, wanted } = yield* Steps.due(pass)
      const second = yield* schedules.put({ ...wanted, payload: "[2]", missed: "skip", priority: 9 })
      assert.isFalse(second.created)
      assert.strictEqual(second.schedule.nextFireMs, first.schedule.nextFireMs)
      assert.deepStrictEqual(second.schedule.payload, [2])
      assert.strictEqual(second.schedule.priority, 9)
      assert.isDefined((yield* Steps.dueOf(wanted.name)).due)
      yield* schedules.remove(wanted.name)
    }))

  it.effect("1: another timing books its first tick after now, and nothing that is over", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const store = yield* JobStore
      const { wanted } = yield* Steps.due(pass)
      const before = yield* store.now
      const timing = { cron: "* * * * *", zone: "UTC" }
      const { schedule: changed } = yield* schedules.put({ ...wanted, timing })
      assert.isAbove(changed.nextFireMs!, before)
      assert.strictEqual(changed.nextFireMs! % 60_000, 0)
      const { schedule: zoned } = yield* schedules.put({
        ...wanted,
        timing: { cron: "0 12 * * *", zone: "Asia/Tokyo" }
      })
      const { schedule: moved } = yield* schedules.put({ ...wanted, timing: { cron: "0 12 * * *", zone: "UTC" } })
      assert.notStrictEqual(moved.nextFireMs, zoned.nextFireMs)
      assert.isUndefined((yield* Steps.dueOf(wanted.name)).due)
    }))

  it.effect("1: what is paused stays so until something is said about it", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const { put: { schedule: made }, wanted } = yield* Steps.put({ paused: true })
      assert.isTrue(made.paused)
      assert.isNull(made.nextFireMs)
      const again = yield* schedules.put({ ...wanted, paused: null })
      assert.isTrue(again.schedule.paused)
      assert.isNull(again.schedule.nextFireMs)
      const open = yield* schedules.put({ ...wanted, paused: false })
      assert.isFalse(open.schedule.paused)
      assert.isNotNull(open.schedule.nextFireMs)
      yield* schedules.remove(wanted.name)
    }))

  it.effect("2: it is due when its tick has come, not before, and looking changes nothing", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const { put: { schedule: made }, wanted } = yield* Steps.put({ timing: { everyMs: 2_000 } })
      const early = yield* Steps.dueOf(wanted.name)
      // It may have been put at the very end of two seconds.
      assert.strictEqual(early.due !== undefined, early.nowMs >= made.nextFireMs!)
      assert.isAtMost((yield* schedules.due(1)).nextInMs ?? Infinity, 2_000)
      yield* pass("2100 millis")
      const late = yield* Steps.dueOf(wanted.name)
      assert.strictEqual(late.due?.nextFireMs, made.nextFireMs)
      assert.isAtMost(made.nextFireMs!, late.nowMs)
      assert.deepStrictEqual((yield* Steps.dueOf(wanted.name)).due, late.due)
      yield* schedules.remove(wanted.name)
    }))

  it.effect("2: the earliest of those that are due come first, and no more than asked for", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const made = yield* Effect.forEach([1_000, 1_000, 1_000], (everyMs) => Steps.put({ timing: { everyMs } }))
      yield* pass("1100 millis")
      const { schedules: two } = yield* schedules.due(2)
      assert.lengthOf(two, 2)
      const ticks = (yield* schedules.due(1_000)).schedules.map(({ nextFireMs }) => nextFireMs)
      assert.deepStrictEqual(ticks, [...ticks].sort((a, b) => a - b))
      yield* Effect.forEach(made, ({ wanted }) => schedules.remove(wanted.name))
    }))

  it.effect("7: what lay in a pause was not missed, and both ends of it may be said twice", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const store = yield* JobStore
      const { wanted } = yield* Steps.put({ missed: { all: 100 } })
      const paused = (yield* schedules.pause(wanted.name))!
      assert.isTrue(paused.paused)
      assert.deepStrictEqual(yield* schedules.pause(wanted.name), paused)
      yield* pass("2100 millis")
      assert.isUndefined((yield* Steps.dueOf(wanted.name)).due)
      const before = yield* store.now
      const resumed = (yield* schedules.resume(wanted.name))!
      assert.isAbove(resumed.nextFireMs!, before)
      assert.deepStrictEqual(yield* schedules.resume(wanted.name), resumed)
      assert.isNull(yield* schedules.pause(ScheduleName.make("nobody")))
      assert.isNull(yield* schedules.resume(ScheduleName.make("nobody")))
      yield* schedules.remove(wanted.name)
    }))

  it.effect("8: removing keeps the jobs, and is said once", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const { wanted } = yield* Steps.put({ paused: true })
      yield* schedules.run(wanted.name, yield* freshId)
      assert.isTrue(yield* schedules.remove(wanted.name))
      assert.isFalse(yield* schedules.remove(wanted.name))
      assert.isNull(yield* schedules.get(wanted.name))
      assert.lengthOf(yield* Steps.jobsOf(wanted.type), 1)
    }))

  it.effect("9: pages walk by name, each schedule once", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      const made = yield* Effect.forEach(
        ["B", "a", "Z.1", "b-2", "_x"],
        (name, n) => Steps.put({ name: ScheduleName.make(`w${n === 4 ? "0" : ""}${name}`), paused: true })
      )
      const names: Array<string> = []
      let after: ScheduleName | null = null
      do {
        const page: {
          readonly schedules: ReadonlyArray<{ readonly name: ScheduleName }>
          readonly next: ScheduleName | null
        } = yield* schedules.list({ limit: 2, after })
        assert.isAtMost(page.schedules.length, 2)
        names.push(...page.schedules.map(({ name }) => name))
        after = page.next
      } while (after !== null)
      assert.deepStrictEqual(names, [...names].sort())
      assert.strictEqual(new Set(names).size, names.length)
      assert.includeMembers(names, made.map(({ wanted }) => wanted.name))
    }))

  it.effect("a change through this process wakes whoever waits for the next tick", () =>
    Effect.gen(function*() {
      const schedules = yield* Schedules
      // What earlier tests changed.
      const { wanted } = yield* Steps.put({ paused: true })
      yield* schedules.changed
      yield* Effect.all([schedules.changed, schedules.resume(wanted.name)], { concurrency: 2 })
      yield* schedules.remove(wanted.name)
    }))
}
