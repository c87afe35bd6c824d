/** The laws of `JobStore` about what handlers note down. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { attemptLinesMax, jobLinesMax, type Note } from "../../src/domain/Notes.ts"
import { JobStore } from "../../src/ports/JobStore.ts"
import * as Jobs from "../support/Jobs.ts"
import { type Held, held, lapsed, type Laws, read as readById, settled, submitted } from "./JobStoreContractSteps.ts"

const note = ({ claim, job }: Held, change: Partial<Note> = {}): Note => ({
  claim,
  attempt: job.attempts + 1,
  progress: null,
  lines: [],
  ...change
})

const lines = (...said: ReadonlyArray<string>) => said.map((line) => ({ agoMs: 0, line }))

export const noteLaws: Laws = (it, pass) => {
  const read = ({ claim }: Held) => readById(claim.id)

  it.effect("a job that notes nothing has no progress and no lines", () =>
    Effect.gen(function*() {
      const job = yield* read(yield* held(pass, yield* submitted()))
      assert.deepStrictEqual([job.progress, job.logs, job.logsOmitted], [null, [], 0])
    }))

  it.effect("the last progress wins, and lines are kept with the attempt in their order", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const one = yield* held(pass, yield* submitted())
      const other = yield* held(pass, yield* submitted())
      yield* store.note([
        note(one, { progress: "{\"done\":1}", lines: lines("a", "b") }),
        note(other, { lines: lines("other") }),
        note(one, { progress: "{\"done\":2}", lines: lines("c") })
      ])
      yield* store.note([note(one, { lines: [{ agoMs: 500, line: "half a second old" }] })])
      const job = yield* read(one)
      assert.deepStrictEqual(job.progress, { done: 2 })
      assert.deepStrictEqual(job.logs.map(({ line }) => line), ["a", "b", "c", "half a second old"])
      assert.isTrue(job.logs.every(({ attempt }) => attempt === 1))
      assert.strictEqual(job.logsOmitted, 0)
      const age = (yield* store.now) - job.logs[3]!.atMs
      assert.isTrue(age >= 500 && age < 30_000, `${age} ms`)
      assert.deepStrictEqual((yield* read(other)).logs.map(({ line }) => line), ["other"])
      assert.strictEqual(job.state, "running")
    }))

  it.effect("notes of a claim that has settled its job are kept, and of one that has lost it they are not", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const first = yield* held(pass, yield* submitted())
      yield* settled(first.claim, "fail")
      yield* store.note([note(first, { lines: lines("last words") })])
      const second = yield* held(pass, { id: first.claim.id, type: first.job.type })
      yield* store.note([note(first, { progress: "\"old\"", lines: lines("after the next claim") })])
      const forged: Held = { ...first, claim: { ...first.claim, lease: yield* Jobs.freshLease } }
      yield* store.note([note(forged, { lines: lines("of the settled epoch, under another lease") })])
      yield* store.note([note(second, { progress: "\"new\"" })])
      yield* lapsed(second.claim.lease)
      yield* store.note([note(second, { progress: "\"lost\"", lines: lines("lost") })])
      const job = yield* read(first)
      assert.deepStrictEqual(job.logs.map(({ attempt, line }) => [attempt, line]), [
        [1, "last words"],
        [1, "after the next claim"]
      ])
      assert.strictEqual(job.progress, "new")
      assert.strictEqual(job.staleWrites, 0)
    }))

  it.effect("the newest lines of each attempt are kept, and how many were left out", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      let run = yield* held(pass, yield* submitted())
      for (let attempt = 1; attempt <= 3; attempt++) {
        const said = Array.from({ length: attemptLinesMax + 5 }, (_, n) => `${attempt}.${n}`)
        yield* store.note([note(run, { lines: lines(...said.slice(0, 30)) })])
        yield* store.note([note(run, { lines: lines(...said.slice(30)) })])
        yield* settled(run.claim, "fail")
        run = yield* held(pass, { id: run.claim.id, type: run.job.type })
      }
      const job = yield* read(run)
      assert.lengthOf(job.logs, jobLinesMax)
      assert.strictEqual(job.logsOmitted, 3 * (attemptLinesMax + 5) - jobLinesMax)
      assert.deepStrictEqual(
        job.logs.map(({ line }) => line),
        [2, 3].flatMap((attempt) => Array.from({ length: attemptLinesMax }, (_, n) => `${attempt}.${n + 5}`))
      )
    }))

  it.effect("a note about nothing, or about a job that is not there, does nothing", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const run = yield* held(pass, yield* submitted())
      yield* store.note([])
      const elsewhere = { ...run.claim, lease: yield* Jobs.freshLease }
      const nobody = { ...run.claim, id: yield* Jobs.freshId }
      yield* store.note([
        note(run),
        note(run, { claim: elsewhere, progress: "1", lines: lines("under another lease") }),
        note(run, { claim: nobody, progress: "1", lines: lines("about no job") })
      ])
      const job = yield* read(run)
      assert.deepStrictEqual([job.progress, job.logs], [null, []])
    }))
}
