/** Laws of `JobStore`: submitting, and batches. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { JobStore, type Submitted } from "../../src/ports/JobStore.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Steps from "./JobStoreContractSteps.ts"

const tags = (answers: ReadonlyArray<Submitted>) => answers.map(({ _tag }) => _tag)
/** What no JSON column takes. */
const unstorable = "{\"a\":\"\\u0000\"}"

export const submitLaws: Steps.Laws = (it, pass) => {
  it.effect("1: a submitted job is found by get, as it was submitted", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const from = yield* Jobs.freshId
      const queue = yield* Jobs.freshQueue
      const before = yield* store.now
      const job = yield* Steps.submitted({
        queue,
        payload: "{\"to\":[1,2.5,\"three\",null,true]}",
        priority: -7,
        maxAttempts: 3,
        backoff: { kind: "fixed", delay_ms: 250 },
        timeoutMs: 1_500,
        tags: ["a", "b:c"],
        resubmittedFrom: from,
        startByMs: before + 3_600_000,
        retainMs: 60_000,
        unique: { fields: ["to"], window_ms: 1_000, states: ["running"], on_conflict: "replace" }
      })

      const found = yield* Steps.read(job.id)

      assert.deepStrictEqual(found, {
        id: job.id,
        type: job.type,
        queue,
        priority: -7,
        state: "pending",
        payload: { to: [1, 2.5, "three", null, true] },
        tags: ["a", "b:c"],
        attempts: 0,
        maxAttempts: 3,
        backoff: { kind: "fixed", delay_ms: 250 },
        timeoutMs: 1_500,
        startByMs: before + 3_600_000,
        retainMs: 60_000,
        unique: { fields: ["to"], window_ms: 1_000, states: ["running"], on_conflict: "replace" },
        runAtMs: found.createdAtMs,
        createdAtMs: found.createdAtMs,
        startedAtMs: null,
        finishedAtMs: null,
        worker: null,
        epoch: 0,
        deliveries: 0,
        leaseLosses: 0,
        staleWrites: 0,
        reason: null,
        result: null,
        errors: [],
        errorsOmitted: 0,
        events: [],
        eventsOmitted: 0,
        progress: null,
        logs: [],
        logsOmitted: 0,
        resubmittedFrom: from,
        resubmittedAs: null,
        schedule: null,
        tickMs: null
      })
      assert.isAtLeast(found.createdAtMs, before)
      assert.isAtMost(found.createdAtMs, yield* store.now)
    }))

  it.effect("1: payloads come back as the JSON values they were", () =>
    Effect.gen(function*() {
      const payloads = [
        "null",
        "0",
        "-1.5e-7",
        "9007199254740991",
        "\"\"",
        "\"h\\u00e9 \\ud83d\\ude00 😀 \\\\ \\\" \\n\"",
        "[]",
        "{}",
        "{\"\":1,\"__proto__\":{\"x\":1},\"constructor\":null}",
        `${"[".repeat(200)}${"]".repeat(200)}`,
        "  { \"spaced\" : [ 1 , 2 ] }  "
      ]
      for (const payload of payloads) {
        const job = yield* Steps.submitted({ payload })
        assert.deepStrictEqual((yield* Steps.read(job.id)).payload, JSON.parse(payload), payload)
      }
    }))

  it.effect("1: answers come in the order of the entries", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = (yield* Jobs.jobs(300, { type: yield* Jobs.freshType })).toReversed()

      const { answers } = yield* store.submit(jobs, { atomic: false })

      assert.deepStrictEqual(
        answers.map((answer) => answer._tag === "Created" ? answer.id : answer._tag),
        jobs.map(({ id }) => id)
      )
    }))

  it.effect("1: a time in the past means now, and one in the future stands", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const now = yield* store.now
      const jobs = [yield* Jobs.job({ runAtMs: 0 }), yield* Jobs.job({ runAtMs: now + 3_600_000 })]

      const { answers } = yield* store.submit(jobs, { atomic: false })

      const runAt = answers.map((answer) => answer._tag === "Created" ? answer.runAtMs - answer.createdAtMs : null)
      assert.strictEqual(runAt[0], 0)
      assert.strictEqual(answers[1]?._tag === "Created" && answers[1].runAtMs, now + 3_600_000)
      assert.strictEqual((yield* Steps.read(jobs[1]!.id)).runAtMs, now + 3_600_000)
    }))

  it.effect("1: a job submitted again under its id answers the same", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Jobs.jobs(3)
      const first = yield* store.submit(jobs, { atomic: false })
      yield* pass(20)

      const again = yield* store.submit(jobs.toReversed(), { atomic: false })
      const atomically = yield* store.submit(jobs, { atomic: true })

      assert.deepStrictEqual(again.answers.toReversed(), first.answers)
      assert.deepStrictEqual(atomically.answers, first.answers)
    }))

  it.effect("1: a job submitted again changes nothing, whatever has become of it", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Jobs.job()
      const first = yield* store.submit([job], { atomic: false })
      const { claim } = yield* Steps.held(pass, job)
      const running = yield* store.submit([job], { atomic: false })
      assert.strictEqual((yield* Steps.read(job.id)).state, "running")
      yield* Steps.settled(claim, "complete")
      const completed = yield* Steps.read(job.id)

      const late = yield* store.submit([job], { atomic: false })

      assert.deepStrictEqual(running.answers, first.answers)
      assert.deepStrictEqual(late.answers, first.answers)
      assert.deepStrictEqual(yield* Steps.read(job.id), completed)
      assert.lengthOf(yield* Steps.take(job), 0)
    }))

  it.effect("1: a job submitted many times at once is one job", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Jobs.job()

      const answers = yield* Effect.forEach(
        Array.from({ length: 10 }),
        () => store.submit([job], { atomic: false }),
        { concurrency: "unbounded" }
      )

      assert.strictEqual(new Set(answers.map(({ answers }) => JSON.stringify(answers))).size, 1)
      assert.strictEqual(answers[0]?.answers[0]?._tag, "Created")
      assert.deepStrictEqual(Steps.idsOf(yield* Steps.take(job)), [job.id])
    }))

  it.effect("2: a refused entry of a batch that is not atomic leaves the others alone", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Jobs.jobs(9, { type: yield* Jobs.freshType })
      const batch = jobs.map((job, index) => index === 4 ? { ...job, payload: unstorable } : job)

      const { answers } = yield* store.submit(batch, { atomic: false })

      assert.deepStrictEqual(tags(answers), jobs.map((_, index) => index === 4 ? "Refused" : "Created"))
      const found = yield* store.get(jobs.map(({ id }) => id))
      assert.lengthOf(found, 8)
    }))

  it.effect("2: a refused entry with a key leaves the key free", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const key = { key: yield* Jobs.freshKey, fingerprint: "f" }
      const job = yield* Jobs.job({ key })
      const refused = yield* store.submit([{ ...job, payload: unstorable }], { atomic: false })

      const { answers } = yield* store.submit([job], { atomic: false })

      assert.deepStrictEqual(tags(refused.answers), ["Refused"])
      assert.deepStrictEqual(tags(answers), ["Created"])
    }))

  it.effect("2: an atomic batch with a refused entry stores nothing, and keeps no key", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const key = { key: yield* Jobs.freshKey, fingerprint: "f" }
      const jobs = [
        yield* Jobs.job(),
        yield* Jobs.job({ key }),
        yield* Jobs.job({ payload: unstorable }),
        yield* Jobs.job()
      ]

      const { answers } = yield* store.submit(jobs, { atomic: true })

      assert.deepStrictEqual(tags(answers), ["Aborted", "Aborted", "Refused", "Aborted"])
      assert.lengthOf(yield* store.get(jobs.map(({ id }) => id)), 0)
      const retried = yield* store.submit(jobs.filter((_, index) => index !== 2), { atomic: true })
      assert.deepStrictEqual(tags(retried.answers), ["Created", "Created", "Created"])
    }))

  it.effect("2: an atomic batch stores everything in one go", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Jobs.jobs(50, { type: yield* Jobs.freshType })

      const { answers } = yield* store.submit(jobs, { atomic: true })

      assert.isTrue(answers.every(({ _tag }) => _tag === "Created"))
      assert.lengthOf(yield* store.get(jobs.map(({ id }) => id)), 50)
    }))

  it.effect("2: an empty batch answers nothing", () =>
    Effect.gen(function*() {
      const store = yield* JobStore

      assert.deepStrictEqual((yield* store.submit([], { atomic: false })).answers, [])
      assert.deepStrictEqual((yield* store.submit([], { atomic: true })).answers, [])
    }))
}
