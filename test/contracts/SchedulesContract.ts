/**
 * The laws of `Schedules`, for any adapter.
 *
 * `pass` lets time pass on the clock that the adapter keeps. The tests share one store and look only at schedules of
 * their own names; those that would fire at any time are removed or paused when a test is done with them.
 */
import { assert, it } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import * as Backoff from "../../src/domain/Backoff.ts"
import { JobType, queueDefault } from "../../src/domain/Job.ts"
import type { JobId } from "../../src/domain/JobId.ts"
import { type NewSchedule, nextAfter, ScheduleName } from "../../src/domain/Schedule.ts"
import { JobStore } from "../../src/ports/JobStore.ts"
import { type FireRequest, Schedules } from "../../src/ports/Schedules.ts"
import * as Clock from "../support/Clock.ts"
import { freshId, freshKey, freshLease, job as newJob } from "../support/Jobs.ts"

const schedule = (change: Partial<NewSchedule> = {}): NewSchedule => {
  const unlike = crypto.randomUUID()
  return {
    name: ScheduleName.make(`s-${unlike}`),
    timing: { everyMs: 1_000 },
    missed: "latest",
    overlap: "allow",
    paused: null,
    type: JobType.make(`t-${unlike}`),
    queue: queueDefault,
    payload: `{"n":1}`,
    priority: 0,
    maxAttempts: 3,
    backoff: Backoff.defaults,
    timeoutMs: 5_000,
    retainMs: 7_000,
    tags: ["nightly"],
    ...change
  }
}

/** Of this test's schedule only. */
const dueOf = (name: ScheduleName) =>
  Effect.gen(function*() {
    const schedules = yield* Schedules
    const { nowMs, schedules: all } = yield* schedules.due(1_000)
    return { nowMs, due: all.find((one) => one.name === name) }
  })

const jobsOf = (type: JobType) =>
  Effect.gen(function*() {
    const store = yield* JobStore
    return (yield* store.list({ type, limit: 500, offset: 0 })).jobs
  })

const put = (change: Partial<NewSchedule> = {}) =>
  Effect.gen(function*() {
    const schedules = yield* Schedules
    const wanted = schedule(change)
    return { wanted, put: yield* schedules.put(wanted) }
  })

/** What a scheduler would ask for: its booked tick, and the next one. */
const request = (name: ScheduleName, ids: ReadonlyArray<JobId>) =>
  Effect.gen(function*() {
    const { due, nowMs } = yield* dueOf(name)
    assert.isDefined(due, "it is due")
    const { nextFireMs, overlap, revision, timing } = due!
    return {
      name,
      revision,
      overlap,
      nextFireMs: nextAfter(timing, nowMs),
      ticks: ids.map((id, n) => ({ id, tickMs: nextFireMs + n * 1_000 }))
    } satisfies FireRequest
  })

export const suite = <E>(
  adapter: string,
  layer: Layer.Layer<JobStore | Schedules, E>,
  { pass = Clock.adjust }: { readonly pass?: Clock.Pass } = {}
) =>
  it.layer(layer, { timeout: "60 seconds", excludeTestServices: pass === Clock.wait })(
    `Schedules (${adapter})`,
    (it) => {
      const due = (change: Partial<NewSchedule> = {}) => Effect.tap(put(change), pass("1100 millis"))

      it.effect("1: what was put is found whole, with its first tick after now booked", () =>
        Effect.gen(function*() {
          const schedules = yield* Schedules
          const store = yield* JobStore
          const before = yield* store.now
          const { put: { created, schedule: made }, wanted } = yield* put({
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
          const { put: first, wanted } = yield* due()
          const second = yield* schedules.put({ ...wanted, payload: "[2]", missed: "skip", priority: 9 })
          assert.isFalse(second.created)
          assert.strictEqual(second.schedule.nextFireMs, first.schedule.nextFireMs)
          assert.deepStrictEqual(second.schedule.payload, [2])
          assert.strictEqual(second.schedule.priority, 9)
          assert.isDefined((yield* dueOf(wanted.name)).due)
          yield* schedules.remove(wanted.name)
        }))

      it.effect("1: another timing books its first tick after now, and nothing that is over", () =>
        Effect.gen(function*() {
          const schedules = yield* Schedules
          const store = yield* JobStore
          const { wanted } = yield* due()
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
          assert.isUndefined((yield* dueOf(wanted.name)).due)
        }))

      it.effect("1: what is paused stays so until something is said about it", () =>
        Effect.gen(function*() {
          const schedules = yield* Schedules
          const { put: { schedule: made }, wanted } = yield* put({ paused: true })
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
          const { put: { schedule: made }, wanted } = yield* put({ timing: { everyMs: 2_000 } })
          const early = yield* dueOf(wanted.name)
          // It may have been put at the very end of two seconds.
          assert.strictEqual(early.due !== undefined, early.nowMs >= made.nextFireMs!)
          assert.isAtMost((yield* schedules.due(1)).nextInMs ?? Infinity, 2_000)
          yield* pass("2100 millis")
          const late = yield* dueOf(wanted.name)
          assert.strictEqual(late.due?.nextFireMs, made.nextFireMs)
          assert.isAtMost(made.nextFireMs!, late.nowMs)
          assert.deepStrictEqual((yield* dueOf(wanted.name)).due, late.due)
          yield* schedules.remove(wanted.name)
        }))

      it.effect("2: the earliest of those that are due come first, and no more than asked for", () =>
        Effect.gen(function*() {
          const schedules = yield* Schedules
          const made = yield* Effect.forEach([1_000, 1_000, 1_000], (everyMs) => put({ timing: { everyMs } }))
          yield* pass("1100 millis")
          const { schedules: two } = yield* schedules.due(2)
          assert.lengthOf(two, 2)
          const ticks = (yield* schedules.due(1_000)).schedules.map(({ nextFireMs }) => nextFireMs)
          assert.deepStrictEqual(ticks, [...ticks].sort((a, b) => a - b))
          yield* Effect.forEach(made, ({ wanted }) => schedules.remove(wanted.name))
        }))

      it.effect("3, 4: a firing makes one job per tick, which names it, and books the next", () =>
        Effect.gen(function*() {
          const schedules = yield* Schedules
          const { wanted } = yield* due({ priority: 3 })
          const ids = [yield* freshId, yield* freshId]
          const asked = yield* request(wanted.name, ids)
          const fired = yield* schedules.fire([asked])
          assert.deepStrictEqual(fired.moved, [wanted.name])
          assert.deepStrictEqual(new Set(fired.jobs.map(({ id }) => id)), new Set(ids))
          assert.isTrue(fired.jobs.every(({ ordered, type }) => ordered && type === wanted.type))
          const jobs = yield* jobsOf(wanted.type)
          assert.deepStrictEqual(
            jobs.map(({ schedule, tickMs }) => [schedule, tickMs]).sort(),
            asked.ticks.map(({ tickMs }) => [wanted.name, tickMs]).sort()
          )
          for (const job of jobs) {
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

      it.effect("3: a second one as due saw it changes nothing, however many ask at once", () =>
        Effect.gen(function*() {
          const schedules = yield* Schedules
          const made = yield* Effect.forEach(Array.from({ length: 5 }), () => put())
          yield* pass("1100 millis")
          const asks = yield* Effect.forEach(
            Array.from({ length: 6 }),
            () => Effect.forEach(made, ({ wanted }) => Effect.flatMap(freshId, (id) => request(wanted.name, [id])))
          )
          const all = yield* Effect.forEach(asks, (ask) => schedules.fire(ask), { concurrency: "unbounded" })
          const again = yield* schedules.fire(asks[0]!)
          assert.deepStrictEqual([again.moved, again.jobs], [[], []], "the answer was lost, and it is asked again")
          assert.lengthOf(all.flatMap(({ moved }) => moved), 5)
          for (const { wanted } of made) {
            assert.lengthOf(yield* jobsOf(wanted.type), 1, wanted.name)
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
            const { wanted } = yield* due()
            const asked = yield* request(wanted.name, [yield* freshId])
            yield* change(wanted)
            const fired = yield* schedules.fire([asked])
            assert.deepStrictEqual([fired.moved, fired.jobs], [[], []])
            assert.lengthOf(yield* jobsOf(wanted.type), 0)
            yield* schedules.remove(wanted.name)
          }
        }))

      it.effect("3: one that was removed and put again since due is left alone", () =>
        Effect.gen(function*() {
          const schedules = yield* Schedules
          const { wanted } = yield* due()
          const seen = yield* request(wanted.name, [yield* freshId])
          yield* schedules.remove(wanted.name)
          const { schedule } = yield* schedules.put(wanted)
          assert.deepStrictEqual((yield* schedules.fire([seen])).moved, [])
          assert.deepStrictEqual(yield* schedules.get(wanted.name), schedule)
          assert.lengthOf(yield* jobsOf(wanted.type), 0)
        }))

      it.effect("3: a tick of which there is a job makes no second one, whatever was booked", () =>
        Effect.gen(function*() {
          const schedules = yield* Schedules
          const { wanted } = yield* due()
          const asked = yield* request(wanted.name, [yield* freshId])
          yield* schedules.fire([asked])
          // As after a clock that went back, and a schedule that was removed and made again.
          yield* schedules.remove(wanted.name)
          yield* schedules.put(wanted)
          yield* pass("1100 millis")
          const again = yield* request(wanted.name, [yield* freshId])
          const fired = yield* schedules.fire([{
            ...again,
            ticks: [{ ...again.ticks[0]!, tickMs: asked.ticks[0]!.tickMs }]
          }])
          assert.deepStrictEqual(fired.moved, [wanted.name])
          assert.deepStrictEqual(fired.jobs, [])
          assert.lengthOf(yield* jobsOf(wanted.type), 1)
          yield* schedules.remove(wanted.name)
        }))

      it.effect("4: without ticks it is only booked anew, and with no booking it is over", () =>
        Effect.gen(function*() {
          const schedules = yield* Schedules
          const { wanted } = yield* due()
          const asked = yield* request(wanted.name, [])
          yield* schedules.fire([asked])
          assert.strictEqual((yield* schedules.get(wanted.name))!.nextFireMs, asked.nextFireMs)
          yield* pass("1100 millis")
          yield* schedules.fire([{ ...(yield* request(wanted.name, [])), nextFireMs: null }])
          assert.isNull((yield* schedules.get(wanted.name))!.nextFireMs)
          assert.lengthOf(yield* jobsOf(wanted.type), 0)
        }))

      it.effect("5: a tick is skipped while the job before is not final, and fires when it is", () =>
        Effect.gen(function*() {
          const schedules = yield* Schedules
          const store = yield* JobStore
          const { wanted } = yield* due({ overlap: "skip" })
          const first = yield* freshId
          yield* schedules.fire([yield* request(wanted.name, [first])])
          const { lastFireMs } = (yield* schedules.get(wanted.name))!
          yield* pass("1100 millis")
          const skipped = yield* schedules.fire([yield* request(wanted.name, [yield* freshId])])
          assert.deepStrictEqual([skipped.moved, skipped.jobs], [[wanted.name], []])
          assert.strictEqual((yield* schedules.get(wanted.name))!.lastFireMs, lastFireMs)
          yield* store.cancel(first)
          yield* pass("1100 millis")
          const third = yield* freshId
          const fired = yield* schedules.fire([yield* request(wanted.name, [third])])
          assert.deepStrictEqual(fired.jobs.map(({ id }) => id), [third])
          yield* schedules.remove(wanted.name)
        }))

      it.effect("5: a tick cancels the job before, waiting or running, and says which claim was cut off", () =>
        Effect.gen(function*() {
          const schedules = yield* Schedules
          const store = yield* JobStore
          const { wanted } = yield* due({ overlap: "cancel" })
          const [first, second, third] = [yield* freshId, yield* freshId, yield* freshId]
          assert.deepStrictEqual((yield* schedules.fire([yield* request(wanted.name, [first])])).cancelled, [])
          yield* pass("1100 millis")
          const waiting = yield* schedules.fire([yield* request(wanted.name, [second])])
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
          const running = yield* schedules.fire([yield* request(wanted.name, [third])])
          assert.deepStrictEqual(running.cancelled, [{ id: second, cutOff: { lease, epoch: 1 } }])
          const states = new Map((yield* jobsOf(wanted.type)).map(({ id, reason, state }) => [id, [state, reason]]))
          assert.deepStrictEqual([first, second, third].map((id) => states.get(id)), [
            ["dead", "cancelled"],
            ["dead", "cancelled"],
            ["pending", null]
          ])
          yield* schedules.remove(wanted.name)
        }))

      it.effect("6: run makes a job now, also of a paused schedule, names no tick, and leaves the booking", () =>
        Effect.gen(function*() {
          const schedules = yield* Schedules
          const { put: { schedule: made }, wanted } = yield* put({ timing: { everyMs: 86_400_000 } })
          const id = yield* freshId
          const ran = yield* schedules.run(wanted.name, id)
          assert.strictEqual(ran._tag, "Ran")
          if (ran._tag === "Ran") {
            assert.deepStrictEqual([ran.job.id, ran.job.schedule, ran.job.tickMs], [id, wanted.name, null])
          }
          assert.strictEqual((yield* schedules.run(wanted.name, id))._tag, "Ran")
          assert.lengthOf(yield* jobsOf(wanted.type), 1, "asked again under the same id")
          const after = (yield* schedules.get(wanted.name))!
          assert.strictEqual(after.nextFireMs, made.nextFireMs)
          assert.isNull(after.lastFireMs)
          assert.strictEqual(after.lastJob, id)
          yield* schedules.pause(wanted.name)
          assert.strictEqual((yield* schedules.run(wanted.name, yield* freshId))._tag, "Ran")
          assert.lengthOf(yield* jobsOf(wanted.type), 2)
          assert.strictEqual((yield* schedules.run(ScheduleName.make("nobody"), yield* freshId))._tag, "NotFound")
        }))

      it.effect("6: run is refused where the tick would be skipped, and cancels where the tick would", () =>
        Effect.gen(function*() {
          const schedules = yield* Schedules
          const [first, second] = [yield* freshId, yield* freshId]
          const { wanted } = yield* put({ overlap: "skip", paused: true })
          yield* schedules.run(wanted.name, first)
          const overlaps = { _tag: "Overlaps", job: first, state: "pending" } as const
          assert.deepStrictEqual(yield* schedules.run(wanted.name, yield* freshId), overlaps)
          yield* schedules.put({ ...wanted, overlap: "cancel" })
          const ran = yield* schedules.run(wanted.name, second)
          assert.deepStrictEqual(ran._tag === "Ran" ? ran.cancelled : ran, { id: first, cutOff: null })
          assert.lengthOf((yield* jobsOf(wanted.type)).filter(({ state }) => state === "pending"), 1)
        }))

      it.effect("6: of runs at once one makes a job, where they may not overlap", () =>
        Effect.gen(function*() {
          const schedules = yield* Schedules
          for (let round = 0; round < 10; round++) {
            const { wanted } = yield* put({ overlap: "skip", paused: true })
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
          const { wanted } = yield* put({ overlap: "skip", paused: true })
          const [one, other] = [{ key: yield* freshKey, fingerprint: "a" }, { key: yield* freshKey, fingerprint: "a" }]
          const ran = yield* Effect.all(
            Array.from({ length: 4 }, () => Effect.flatMap(freshId, (id) => schedules.run(wanted.name, id, one))),
            { concurrency: "unbounded" }
          )
          const [job] = yield* jobsOf(wanted.type)
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
          assert.lengthOf(yield* jobsOf(wanted.type), 2)
        }))

      it.effect("7: what lay in a pause was not missed, and both ends of it may be said twice", () =>
        Effect.gen(function*() {
          const schedules = yield* Schedules
          const store = yield* JobStore
          const { wanted } = yield* put({ missed: { all: 100 } })
          const paused = (yield* schedules.pause(wanted.name))!
          assert.isTrue(paused.paused)
          assert.deepStrictEqual(yield* schedules.pause(wanted.name), paused)
          yield* pass("2100 millis")
          assert.isUndefined((yield* dueOf(wanted.name)).due)
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
          const { wanted } = yield* put({ paused: true })
          yield* schedules.run(wanted.name, yield* freshId)
          assert.isTrue(yield* schedules.remove(wanted.name))
          assert.isFalse(yield* schedules.remove(wanted.name))
          assert.isNull(yield* schedules.get(wanted.name))
          assert.lengthOf(yield* jobsOf(wanted.type), 1)
        }))

      it.effect("9: pages walk by name, each schedule once", () =>
        Effect.gen(function*() {
          const schedules = yield* Schedules
          const made = yield* Effect.forEach(
            ["B", "a", "Z.1", "b-2", "_x"],
            (name, n) => put({ name: ScheduleName.make(`w${n === 4 ? "0" : ""}${name}`), paused: true })
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
          const { wanted } = yield* put({ paused: true })
          yield* schedules.changed
          yield* Effect.all([schedules.changed, schedules.resume(wanted.name)], { concurrency: 2 })
          yield* schedules.remove(wanted.name)
        }))
    }
  )
