/** What the laws of `Schedules` are tested with: schedules of a test's own, and ways to bring one to its tick. */
import { assert, type Vitest } from "@effect/vitest"
import { Effect } from "effect"
import * as Backoff from "../../src/domain/Backoff.ts"
import { JobType, queueDefault } from "../../src/domain/Job.ts"
import type { JobId } from "../../src/domain/JobId.ts"
import { type NewSchedule, nextAfter, ScheduleName } from "../../src/domain/Schedule.ts"
import { JobStore } from "../../src/ports/JobStore.ts"
import { type FireRequest, Schedules } from "../../src/ports/Schedules.ts"
import type * as Clock from "../support/Clock.ts"

/** One part of the suite. */
export type Laws = (it: Vitest.MethodsNonLive<JobStore | Schedules>, pass: Clock.Pass) => void

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
export const dueOf = (name: ScheduleName) =>
  Effect.gen(function*() {
    const schedules = yield* Schedules
    const { nowMs, schedules: all } = yield* schedules.due(1_000)
    return { nowMs, due: all.find((one) => one.name === name) }
  })

export const jobsOf = (type: JobType) =>
  Effect.gen(function*() {
    const store = yield* JobStore
    return (yield* store.list({ type, limit: 500, offset: 0 })).jobs
  })

export const put = (change: Partial<NewSchedule> = {}) =>
  Effect.gen(function*() {
    const schedules = yield* Schedules
    const wanted = schedule(change)
    return { wanted, put: yield* schedules.put(wanted) }
  })

/** What a scheduler would ask for: its booked tick, and the next one. */
export const request = (name: ScheduleName, ids: ReadonlyArray<JobId>) =>
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

/** Puts one whose first tick has come since. */
export const due = (pass: Clock.Pass, change: Partial<NewSchedule> = {}) => Effect.tap(put(change), pass("1100 millis"))
