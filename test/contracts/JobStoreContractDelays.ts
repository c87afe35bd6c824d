/** Laws of `JobStore`: jobs that are due so long after they are stored. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { delayMaxMs, instantMaxMs, type NewJob } from "../../src/domain/Job.ts"
import { JobStore } from "../../src/ports/JobStore.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Steps from "./JobStoreContractSteps.ts"

const hour = 3_600_000

const only = { fields: null, window_ms: null, states: ["pending"], on_conflict: "skip" } as const
const keyed = Effect.map(Jobs.freshKey, (key) => ({ key: { key, fingerprint: "f" } }))

/** Submits `jobs`, and checks of each that it was told, and is stored, as due when it should be. */
const due = Effect.fnUntraced(function*(jobs: ReadonlyArray<NewJob>, atomic = false) {
  const store = yield* JobStore
  const { answers } = yield* store.submit(jobs, { atomic })
  for (const [index, job] of jobs.entries()) {
    const answer = answers[index]
    if (answer?._tag !== "Created") return assert.fail(`${index}: ${answer?._tag}`)
    const { createdAtMs, runAtMs } = answer
    assert.strictEqual(runAtMs, job.delayMs === undefined ? job.runAtMs ?? createdAtMs : createdAtMs + job.delayMs)
    assert.include(yield* Steps.read(job.id), { state: "pending", createdAtMs, runAtMs })
  }
})

export const delayLaws: Steps.Laws = (it, pass) => {
  it.effect("20: a delay counts from when the job is stored, whatever it is stored beside, all at once or not", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const kinds: ReadonlyArray<Effect.Effect<Partial<NewJob>>> = [
        Effect.succeed({}),
        keyed,
        Effect.succeed({ retainMs: hour }),
        Effect.map(keyed, (key) => ({ ...key, unique: only, startByMs: instantMaxMs }))
      ]
      for (const atomic of [false, true]) {
        for (const kind of kinds) {
          const type = yield* Jobs.freshType
          const make = (change: Partial<NewJob>) => Effect.flatMap(kind, (own) => Jobs.job({ type, ...own, ...change }))
          const runAtMs = (yield* store.now) + 2 * hour
          // Of a type that is new, and of one that is not; alone, and beside others.
          yield* due([yield* make({ delayMs: hour, payload: "1" })], atomic)
          const ready = yield* make({ payload: "2" })
          const others = [{ delayMs: 1, payload: "3" }, { runAtMs, payload: "4" }, {
            delayMs: delayMaxMs,
            payload: "5"
          }]
          yield* due([ready, ...yield* Effect.forEach(others, make)], atomic)
          assert.include(Steps.idsOf(yield* Steps.take({ type })), ready.id)
        }
      }
    }))

  it.effect("20: the longest delay is an instant that there is", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted({ delayMs: delayMaxMs })
      assert.isBelow((yield* Steps.read(job.id)).runAtMs, instantMaxMs)
    }))

  it.effect("20: a job with a delay is claimed once it is over and not before, in the order of its time", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const [later, soon] = [yield* Steps.submitted({ delayMs: 400 }), yield* Jobs.job({ delayMs: 150 })]
      yield* store.submit([{ ...soon, type: later.type }], { atomic: false })
      assert.deepStrictEqual(yield* Steps.take(later), [])
      const both = yield* Steps.eventually(
        pass,
        "both are due",
        Effect.gen(function*() {
          yield* store.promote(1_000)
          return (yield* store.now) > (yield* Steps.read(later.id)).runAtMs ? yield* Steps.take(later) : null
        })
      )
      assert.deepStrictEqual(Steps.idsOf(both), [soon.id, later.id])
      for (const { id } of both) {
        const { createdAtMs, runAtMs, startedAtMs } = yield* Steps.read(id)
        assert.isAtLeast(startedAtMs ?? 0, runAtMs)
        assert.isAtLeast(startedAtMs ?? 0, createdAtMs + 150)
      }
    }))

  it.effect("1, 20: sent again under its id it answers the same, and does not wait anew", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = [
        yield* Jobs.job({ delayMs: hour }),
        yield* Jobs.job({ delayMs: hour, ...yield* keyed }),
        yield* Jobs.job({ delayMs: hour, retainMs: hour })
      ]
      const first = yield* store.submit(jobs, { atomic: false })
      yield* pass(20)

      assert.deepStrictEqual((yield* store.submit(jobs, { atomic: false })).answers, first.answers)
      assert.deepStrictEqual((yield* store.submit(jobs, { atomic: true })).answers, first.answers)
    }))

  it.effect("18, 20: a delay beyond the time to start by ends dead, as expired", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const startByMs = (yield* store.now) + 50
      const job = yield* Steps.submitted({ delayMs: hour, startByMs })
      yield* Steps.eventually(pass, "the time is over", Effect.map(store.now, (now) => now > startByMs ? true : null))
      yield* store.expire(1_000)
      assert.include(yield* Steps.read(job.id), { state: "dead", reason: "expired", deliveries: 0 })
    }))

  it.effect("20: what is resubmitted is due at once", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted({ delayMs: hour })
      yield* store.cancel(job.id)
      const again = yield* Jobs.freshId
      yield* store.resubmit(job.id, again)
      const { createdAtMs, runAtMs } = yield* Steps.read(again)
      assert.strictEqual(runAtMs, createdAtMs)
      assert.deepStrictEqual(Steps.idsOf(yield* Steps.take(job)), [again])
    }))
}
