import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as JobStoreMemory from "../../src/adapters/memory/JobStoreMemory.ts"
import * as Differences from "../../src/domain/Differences.ts"
import { JobType, type NewJob, Queue } from "../../src/domain/Job.ts"
import { JobStore } from "../../src/ports/JobStore.ts"
import * as Jobs from "../support/Jobs.ts"

const later = 4_000_000_000_000

const asked: Partial<NewJob> = {
  payload: `{"a":1,"b":["x"]}`,
  tags: ["one"],
  runAtMs: later,
  startByMs: later + 1,
  retainMs: 5,
  unique: { fields: ["a"], window_ms: null, states: ["pending"], on_conflict: "skip" }
}

const others: Record<Exclude<keyof NewJob, "id" | "key" | "resubmittedFrom" | "delayMs">, Partial<NewJob>> = {
  type: { type: JobType.make("other") },
  payload: { payload: `{"a":1,"b":["y"]}` },
  queue: { queue: Queue.make("other") },
  priority: { priority: 1 },
  maxAttempts: { maxAttempts: 1 },
  backoff: { backoff: { kind: "fixed", delay_ms: 1 } },
  timeoutMs: { timeoutMs: 1 },
  runAtMs: { runAtMs: null },
  startByMs: { startByMs: null },
  retainMs: { retainMs: 0 },
  tags: { tags: ["two"] },
  unique: { unique: null }
}

const stored = Effect.gen(function*() {
  const store = yield* JobStore
  const job = yield* Jobs.job(asked)
  yield* store.submit([job], { atomic: true })
  const [found] = yield* store.get([job.id])
  assert.isDefined(found)
  return { store, job, found: found! }
})

describe("Differences", () => {
  it.effect("names each field that differs, in whatever way its JSON is written", () =>
    Effect.gen(function*() {
      const { found, job } = yield* stored
      assert.deepStrictEqual(Differences.between(job, found), [])
      assert.deepStrictEqual(Differences.between({ ...job, payload: `{"b":["x"],"a":1.0}` }, found), [])
      for (const [field, change] of Object.entries(others)) {
        assert.deepStrictEqual<ReadonlyArray<string>>(Differences.between({ ...job, ...change }, found), [field])
      }
      const all = Object.assign({}, ...Object.values(others)) as Partial<NewJob>
      assert.deepStrictEqual<ReadonlyArray<string>>(Differences.between({ ...job, ...all }, found), Object.keys(others))
    }).pipe(Effect.provide(JobStoreMemory.layer)))

  it.effect("does not say that a time differs where the job has been moved since, or where both mean now", () =>
    Effect.gen(function*() {
      const { job, store } = yield* stored
      yield* store.retry(job.id)
      const [moved] = yield* store.get([job.id])
      assert.notStrictEqual(moved!.runAtMs, later)
      assert.deepStrictEqual(Differences.between(job, moved!), [])
      const due = yield* Jobs.job()
      yield* store.submit([due], { atomic: true })
      const [found] = yield* store.get([due.id])
      assert.deepStrictEqual(Differences.between({ ...due, runAtMs: found!.createdAtMs - 1 }, found!), [])
      assert.deepStrictEqual(Differences.between({ ...due, runAtMs: found!.createdAtMs + 1 }, found!), ["runAtMs"])
      assert.deepStrictEqual(Differences.between({ ...due, delayMs: 60_000 }, found!), ["delayMs"])
      const waits = yield* Jobs.job({ delayMs: 60_000 })
      yield* store.submit([waits], { atomic: true })
      const [waiting] = yield* store.get([waits.id])
      assert.deepStrictEqual(Differences.between(waits, waiting!), [])
      assert.deepStrictEqual(Differences.between({ ...waits, delayMs: 60_001 }, waiting!), ["delayMs"])
    }).pipe(Effect.provide(JobStoreMemory.layer)))
})
