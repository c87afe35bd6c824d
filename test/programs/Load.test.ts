/** The load program: what it waits for, and what it says of what does not come. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Redacted } from "effect"
import { TestClock } from "effect/testing"
import * as JobStorePostgres from "../../src/adapters/postgres/JobStorePostgres.ts"
import * as Verification from "../../src/adapters/postgres/Verification.ts"
import { JobStore } from "../../src/ports/JobStore.ts"
import * as Load from "../../src/programs/load/Load.ts"
import * as Wait from "../../src/programs/load/Wait.ts"
import { freshDatabase } from "../support/Database.ts"
import * as FaultyStore from "../support/FaultyStore.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Postgres from "../support/Postgres.ts"
import * as Processes from "../support/Processes.ts"

const layer = Layer.provideMerge(JobStorePostgres.layer({ wake: false, keyTtlMs: 60_000 }), Postgres.layer)

it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })("what was loaded", (it) => {
  it.effect("is counted by the range of its ids, and nothing else is", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const type = yield* Jobs.freshType
      const earlier = yield* Jobs.jobs(3, { type })
      yield* store.submit(earlier, { atomic: false })
      yield* Effect.sleep("2 millis")
      const loaded = yield* Load.run(
        { jobs: 25, type, payload: String, batch: 10, width: 2 },
        () => Effect.void
      )
      yield* Effect.sleep("2 millis")
      yield* store.submit(yield* Jobs.jobs(2, { type }), { atomic: false })
      assert.isNotNull(loaded)

      assert.deepStrictEqual(yield* Verification.outstanding({ ...loaded!, type }), { [type]: 25 })
      assert.deepStrictEqual(yield* Verification.outstanding({ ...loaded!, type: "other" }), {})
      assert.strictEqual((yield* Verification.outstanding(Verification.all))[type], 30)
      yield* store.cancel(loaded!.first)
      yield* store.cancel(loaded!.last)
      assert.deepStrictEqual(yield* Verification.outstanding({ ...loaded!, type }), { [type]: 23 })
    }))
})

it.effect("what meets a lock is sent again, and nothing comes twice", () =>
  Effect.gen(function*() {
    const faults = yield* FaultyStore.Faults
    const type = yield* Jobs.freshType
    faults.undecided.add(type)
    const loading = yield* Effect.forkChild(
      Load.run({ jobs: 25, type, payload: String, batch: 10, width: 1 }, () => Effect.void),
      { startImmediately: true }
    )
    yield* Effect.repeat(TestClock.adjust("500 millis"), { times: 3 })
    assert.isUndefined(loading.pollUnsafe())
    faults.undecided.clear()
    yield* TestClock.adjust("500 millis")
    assert.isNotNull(yield* Fiber.join(loading))
    const { byType } = yield* Effect.flatMap(JobStore, ({ counts }) => counts)
    assert.strictEqual(byType[type], 25)
  }).pipe(Effect.provide(FaultyStore.layer)))

it.effect("waiting ends with the last job, and looks again where a look has failed", () =>
  Effect.gen(function*() {
    const answers: Array<Wait.Left | null> = [{ a: 3 }, null, { a: 1 }, {}]
    const shown: Array<number> = []
    const waiting = yield* Effect.forkChild(Wait.run({
      total: 3,
      seconds: 60,
      left: Effect.suspend(() => {
        const answer = answers.shift() ?? null
        return answer === null ? Effect.fail("away") : Effect.succeed(answer)
      }),
      show: (done) => Effect.sync(() => void shown.push(done))
    }))
    yield* TestClock.adjust("10 seconds")
    const waited = yield* Fiber.join(waiting)

    assert.deepStrictEqual(shown, [0, 2, 3])
    assert.isNull(Wait.complaint(waited, 60))
  }))

it.effect("what does not end is named by type, and since when nothing has ended", () =>
  Effect.gen(function*() {
    const waiting = yield* Effect.forkChild(Wait.run({
      total: 7,
      seconds: 30,
      left: Effect.succeed({ lonely: 5, other: 2 }),
      show: () => Effect.void
    }))
    yield* TestClock.adjust("30 seconds")

    assert.strictEqual(
      Wait.complaint(yield* Fiber.join(waiting), 30),
      "not every job ended within 30 s: 5 of type lonely, 2 of type other left; none ended in the last 30 s: " +
        "does a process with a handler run?"
    )
    assert.strictEqual(
      Wait.complaint({ left: { slow: 1 }, quietMs: 1_000 }, 2),
      "not every job ended within 2 s: 1 of type slow left"
    )
  }))

it.live("the program waits for its own jobs only", () =>
  Effect.gen(function*() {
    const { url } = yield* freshDatabase
    const env = { DEADMAN_DATABASE_URL: Redacted.value(url) }
    const first = yield* Processes.start("load", env, ["--jobs", "3", "--type", "nobody", "--wait", "1"])
    assert.strictEqual(yield* first.exit("60 seconds"), 1)
    assert.include(first.output(), "not every job ended within 1 s: 3 of type nobody left")
    const worker = yield* Processes.start("worker", env)
    const second = yield* Processes.start("load", env, ["--jobs", "3", "--type", "noop", "--wait", "60"])
    assert.strictEqual(yield* second.exit("90 seconds"), 0)
    yield* worker.signal("SIGKILL")
  }).pipe(Effect.scoped), 180_000)
