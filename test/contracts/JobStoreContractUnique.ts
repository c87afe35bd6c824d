/** Laws of `JobStore`: unique jobs. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { NewJob } from "../../src/domain/Job.ts"
import type { Unique } from "../../src/domain/Unique.ts"
import { JobStore, type Submitted } from "../../src/ports/JobStore.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Steps from "./JobStoreContractSteps.ts"

const once: Unique = {
  fields: null,
  window_ms: null,
  states: ["pending", "running", "failed"],
  on_conflict: "skip"
}
const replacing: Unique = { ...once, on_conflict: "replace" }

const submitAll = Effect.fnUntraced(function*(jobs: ReadonlyArray<NewJob>, atomic = false) {
  const store = yield* JobStore
  const { answers } = yield* store.submit(jobs, { atomic })
  return answers
})

const submitOne = Effect.fnUntraced(function*(change: Partial<NewJob>) {
  const job = yield* Jobs.job(change)
  const [answer] = yield* submitAll([job])
  return { id: job.id, type: job.type, answer: answer ?? assert.fail("no answer") }
})

/** As a caller does: whoever takes long to commit holds what must be unique, and is asked about again. */
const decided = (job: NewJob) =>
  submitAll([job]).pipe(
    Effect.filterOrFail(([answer]) => answer?._tag !== "KeyLocked" && answer?._tag !== "Undecided"),
    Effect.retry({ times: 20 })
  )

const skippedFor = (job: Pick<NewJob, "id">): Submitted => ({ _tag: "Skipped", id: job.id })

export const uniqueLaws: Steps.Laws = (it, pass) => {
  it.effect("17: a unique job is skipped while one of its type and payload is pending, running or failed", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted({ payload: `{"to":"ada","n":1}`, unique: once })
      const again = { type: job.type, payload: `{ "n" : 1.0, "to" : "\u0061da" }`, unique: once }
      const pending = yield* submitOne(again)
      const { claim } = yield* Steps.held(pass, job)
      const running = yield* submitOne(again)
      yield* Steps.settled(claim, "fail", { delayMs: 3_600_000 })
      const failed = yield* submitOne(again)

      assert.deepStrictEqual(
        [pending.answer, running.answer, failed.answer],
        [skippedFor(job), skippedFor(job), skippedFor(job)]
      )
      const store = yield* JobStore
      assert.lengthOf(yield* store.get([pending.id, running.id, failed.id]), 0)
    }))

  it.effect("17: another payload, another type, and a job that did not ask for it are in nobody's way", () =>
    Effect.gen(function*() {
      const plain = yield* Steps.submitted({ payload: `{"a":1}` })
      const first = yield* submitOne({ type: plain.type, payload: `{"a":1}`, unique: once })
      const other = yield* submitOne({ type: plain.type, payload: `{"a":2}`, unique: once })
      const otherType = yield* submitOne({ payload: `{"a":1}`, unique: once })
      const careless = yield* submitOne({ type: plain.type, payload: `{"a":1}` })

      const tags = [first, other, otherType, careless].map(({ answer }) => answer._tag)
      assert.deepStrictEqual(tags, ["Created", "Created", "Created", "Created"])
    }))

  it.effect("17: only the fields that are named count, in whatever order, and one that is not there is one more value", () =>
    Effect.gen(function*() {
      const byUser: Unique = { ...once, fields: ["user", "team"] }
      const job = yield* Steps.submitted({ payload: `{"user":7,"team":null,"n":1}`, unique: byUser })
      const submit = (payload: string, fields: ReadonlyArray<string>) =>
        Effect.map(
          submitOne({ type: job.type, payload, unique: { ...byUser, fields } }),
          ({ answer }) => answer._tag
        )

      assert.strictEqual(yield* submit(`{"n":2,"team":null,"user":7}`, ["team", "user"]), "Skipped")
      assert.strictEqual(yield* submit(`{"user":7,"n":1}`, ["user", "team"]), "Created")
      assert.strictEqual(yield* submit(`{"user":8,"team":null}`, ["user", "team"]), "Created")
      assert.strictEqual(yield* submit(`{"user":7,"team":null,"n":1}`, ["user"]), "Created")
    }))

  it.effect("17: a job that is final is in the way where its state is named, and else not", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted({ unique: once })
      yield* Steps.settled((yield* Steps.held(pass, job)).claim, "complete")

      const named = yield* submitOne({ type: job.type, unique: { ...once, states: ["completed", "dead"] } })
      const next = yield* submitOne({ type: job.type, unique: once })
      const store = yield* JobStore
      yield* store.cancel(next.id)
      const dead = yield* submitOne({ type: job.type, unique: { ...once, states: ["dead"] } })

      assert.deepStrictEqual([named.answer, next.answer._tag], [skippedFor(job), "Created"])
      assert.deepStrictEqual(dead.answer, skippedFor(next))
    }))

  it.effect("17: within the window a job is in the way, and after it no more", () =>
    Effect.gen(function*() {
      const within: Unique = { ...once, window_ms: 600, states: [...once.states, "completed"] }
      const job = yield* Steps.submitted({ unique: within })
      yield* Steps.settled((yield* Steps.held(pass, job)).claim, "complete")
      const early = yield* submitOne({ type: job.type, unique: { ...within, window_ms: 60_000 } })
      yield* pass(700)
      const late = yield* submitOne({ type: job.type, unique: within })

      assert.deepStrictEqual([early.answer, late.answer._tag], [skippedFor(job), "Created"])
    }))

  it.effect("17: replace cancels what waits and stores the new one", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted({ payload: `{"v":1}`, unique: { ...once, fields: ["v"] } })
      const failed = yield* Steps.submitted({ payload: `{"v":2}`, unique: { ...once, fields: ["v"] } })
      yield* Steps.settled((yield* Steps.held(pass, failed)).claim, "fail", { delayMs: 3_600_000 })
      const change: Partial<NewJob> = { unique: { ...replacing, fields: ["v"] } }

      const instead = yield* submitOne({ ...change, type: job.type, payload: `{"v":1,"x":2}` })
      const insteadOfFailed = yield* submitOne({ ...change, type: failed.type, payload: `{"v":2}` })

      assert.strictEqual(instead.answer._tag, "Created")
      assert.strictEqual(insteadOfFailed.answer._tag, "Created")
      for (const { id } of [job, failed]) {
        const replaced = yield* Steps.read(id)
        assert.include(replaced, { state: "dead", reason: "cancelled" })
        assert.strictEqual(replaced.events.at(-1)?.kind, "cancel_requested")
      }
      assert.deepStrictEqual(Steps.idsOf(yield* Steps.take(job)), [instead.id])
    }))

  it.effect("17: replace leaves alone what runs, and what is done within its window", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted({ unique: replacing })
      const { claim } = yield* Steps.held(pass, job)
      const running = yield* submitOne({ type: job.type, unique: replacing })
      yield* Steps.settled(claim, "complete")
      const done = yield* submitOne({
        type: job.type,
        unique: { ...replacing, window_ms: 60_000, states: ["pending", "completed"] }
      })

      assert.deepStrictEqual([running.answer, done.answer], [skippedFor(job), skippedFor(job)])
      assert.strictEqual((yield* Steps.read(job.id)).state, "completed")
    }))

  it.effect("1, 17: a unique job submitted again under its id answers the same, also when another took its place", () =>
    Effect.gen(function*() {
      const job = yield* Jobs.job({ unique: replacing })
      const [first] = yield* submitAll([job])
      yield* pass(20)
      const [again] = yield* submitAll([job])
      const [atomically] = yield* submitAll([job], true)
      const other = yield* submitOne({ type: job.type, unique: replacing })
      const [late] = yield* submitAll([job])

      assert.strictEqual(first?._tag, "Created")
      assert.deepStrictEqual([again, atomically, late], [first, first, first])
      assert.strictEqual((yield* Steps.read(other.id)).state, "pending")
      assert.strictEqual((yield* Steps.read(job.id)).state, "dead")
    }))

  it.effect("1, 17: a unique job submitted many times at once under its id is stored, and skipped for nobody", () =>
    Effect.gen(function*() {
      for (const unique of [once, replacing]) {
        const job = yield* Jobs.job({ unique })

        const answers = yield* Effect.forEach(Array.from({ length: 10 }), () => submitAll([job]), {
          concurrency: "unbounded"
        })

        assert.strictEqual(new Set(answers.map((answer) => JSON.stringify(answer))).size, 1)
        assert.strictEqual(answers[0]?.[0]?._tag, "Created")
        assert.strictEqual((yield* Steps.read(job.id)).state, "pending")
      }
    }))

  it.effect("17: of thirty at once one is stored, and the others are skipped for it", () =>
    Effect.gen(function*() {
      const jobs = yield* Jobs.jobs(30, { type: yield* Jobs.freshType, payload: `{"a":[1]}`, unique: once })

      const answers = yield* Effect.forEach(jobs, decided, { concurrency: "unbounded" })

      const created = jobs.filter((_, index) => answers[index]?.[0]?._tag === "Created")
      assert.lengthOf(created, 1)
      assert.deepStrictEqual(
        answers.flat().filter(({ _tag }) => _tag !== "Created"),
        Array.from({ length: 29 }, () => skippedFor(created[0]!))
      )
      assert.deepStrictEqual(Steps.idsOf(yield* Steps.take(jobs[0]!)), [created[0]!.id])
    }))

  it.effect("17: of thirty that replace each other one is left", () =>
    Effect.gen(function*() {
      const jobs = yield* Jobs.jobs(30, { type: yield* Jobs.freshType, unique: replacing })

      const answers = yield* Effect.forEach(jobs, decided, { concurrency: "unbounded" })

      assert.deepStrictEqual(answers.flat().map(({ _tag }) => _tag), jobs.map(() => "Created"))
      const states = yield* Effect.forEach(jobs, ({ id }) => Effect.map(Steps.read(id), ({ state }) => state))
      assert.deepStrictEqual(states.toSorted(), [...jobs.slice(1).map(() => "dead" as const), "pending"])
      assert.lengthOf(yield* Steps.take(jobs[0]!), 1)
    }))

  it.effect("17: those of one batch see each other, and an atomic batch is stored with what it skipped", () =>
    Effect.gen(function*() {
      const type = yield* Jobs.freshType
      const jobs = yield* Effect.forEach([1, 2, 1, 3, 2], (n) => Jobs.job({ type, payload: `[${n}]`, unique: once }))
      const expected: ReadonlyArray<Submitted["_tag"]> = ["Created", "Created", "Skipped", "Created", "Skipped"]

      const answers = yield* submitAll(jobs)
      const others = yield* Effect.forEach(jobs, (job) => Jobs.job({ ...job, type: `${type}x` as typeof type }))
      const fresh = yield* Effect.forEach(others, (job) => Effect.map(Jobs.freshId, (id) => ({ ...job, id })))
      const atomic = yield* submitAll(fresh, true)

      assert.deepStrictEqual([answers, atomic].map((all) => all.map(({ _tag }) => _tag)), [[...expected], [
        ...expected
      ]])
      assert.deepStrictEqual(answers[2], skippedFor(jobs[0]!))
    }))

  it.effect("2, 17: an atomic batch that is refused replaces nothing", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted({ unique: once })
      const newcomer = yield* Jobs.job({ type: job.type, unique: replacing })
      const unfit = yield* Jobs.job({ payload: `{"a":"\u0000"}` })

      const answers = yield* submitAll([newcomer, unfit], true)
      const next = yield* submitOne({ type: job.type, unique: once })

      assert.deepStrictEqual(answers.map(({ _tag }) => _tag), ["Aborted", "Refused"])
      assert.strictEqual((yield* Steps.read(job.id)).state, "pending")
      assert.deepStrictEqual(next.answer, skippedFor(job))
    }))

  it.effect("2, 17: the key of a skipped job is that of the job in its way", () =>
    Effect.gen(function*() {
      const job = yield* Steps.submitted({ unique: once })
      const key = { key: yield* Jobs.freshKey, fingerprint: "f" }
      const skipped = yield* submitOne({ type: job.type, unique: once, key })
      yield* Steps.settled((yield* Steps.held(pass, job)).claim, "complete")

      const repeat = yield* submitOne({ type: job.type, unique: once, key })
      const other = yield* submitOne({ type: job.type, unique: once, key: { ...key, fingerprint: "g" } })

      assert.deepStrictEqual(skipped.answer, skippedFor(job))
      assert.deepStrictEqual(repeat.answer, { _tag: "Replayed", id: job.id })
      assert.deepStrictEqual(other.answer, { _tag: "KeyMismatch", id: job.id })
    }))

  it.effect("17: a job submitted anew from an old one asks nobody", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* Steps.submitted({ unique: once, retainMs: 5_000, startByMs: 253_402_300_799_999 })
      yield* Steps.settled((yield* Steps.held(pass, job)).claim, "complete")
      const current = yield* submitOne({ type: job.type, unique: once })

      const anew = yield* store.resubmit(job.id, yield* Jobs.freshId)

      assert.strictEqual(current.answer._tag, "Created")
      if (anew._tag !== "Created") return assert.fail(anew._tag)
      assert.deepInclude(anew.job, { unique: null, startByMs: null, retainMs: 5_000, state: "pending" })
    }))
}
