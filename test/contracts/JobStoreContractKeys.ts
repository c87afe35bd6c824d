/** Laws of `JobStore`: Idempotency-Keys. */
import { assert, it } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import type { NewJob } from "../../src/domain/Job.ts"
import { JobStore, type Submitted } from "../../src/ports/JobStore.ts"
import * as Clock from "../support/Clock.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Steps from "./JobStoreContractSteps.ts"

const tags = (answers: ReadonlyArray<Submitted>) => answers.map(({ _tag }) => _tag)

const submitOne = Effect.fnUntraced(function*(job: NewJob) {
  const store = yield* JobStore
  const { answers } = yield* store.submit([job], { atomic: false })
  return answers[0] ?? assert.fail("no answer")
})

const keyedJob = Effect.fnUntraced(function*(fingerprint = "f") {
  return yield* Jobs.job({ key: { key: yield* Jobs.freshKey, fingerprint } })
})

export const keyLaws: Steps.Laws = (it, pass) => {
  it.effect("2: a key submitted again answers the job that has it, or that the request differs", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const job = yield* keyedJob()
      const same = yield* Jobs.job({ key: job.key })
      const other = yield* Jobs.job({ key: { key: job.key!.key, fingerprint: "g" } })
      assert.strictEqual((yield* submitOne(job))._tag, "Created")

      assert.deepStrictEqual(yield* submitOne(same), { _tag: "Replayed", id: job.id })
      assert.deepStrictEqual(yield* submitOne(other), { _tag: "KeyMismatch", id: job.id })
      assert.lengthOf(yield* store.get([same.id, other.id]), 0)
    }))

  it.effect("2: a key stays with its job while it runs and after it is final", () =>
    Effect.gen(function*() {
      const job = yield* keyedJob()
      yield* submitOne(job)
      const { claim, job: claimed } = yield* Steps.held(pass, job)
      const replay: Submitted = { _tag: "Replayed", id: job.id }
      assert.strictEqual(claimed.key, job.key!.key)
      assert.deepStrictEqual(yield* submitOne(yield* Jobs.job({ key: job.key })), replay)
      yield* Steps.settled(claim, "complete")

      assert.deepStrictEqual(yield* submitOne(yield* Jobs.job({ key: job.key })), replay)
    }))

  it.effect("1, 2: a keyed job submitted again under its id answers Created, the same as at first", () =>
    Effect.gen(function*() {
      const job = yield* keyedJob()
      const first = yield* submitOne(job)
      yield* pass(20)

      assert.deepStrictEqual(yield* submitOne(job), first)
      assert.strictEqual(first._tag, "Created")
    }))

  it.effect("2: fifty at once with one key are one job", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const key = { key: yield* Jobs.freshKey, fingerprint: "f" }
      const jobs = yield* Jobs.jobs(50, { type: yield* Jobs.freshType, key })

      const answers = yield* Effect.forEach(jobs, submitOne, { concurrency: "unbounded" })

      const created = answers.flatMap((answer) => answer._tag === "Created" ? [answer.id] : [])
      assert.lengthOf(created, 1)
      assert.deepStrictEqual(
        answers.filter(({ _tag }) => _tag !== "Created"),
        Array.from({ length: 49 }, (): Submitted => ({ _tag: "Replayed", id: created[0]! }))
      )
      assert.lengthOf(yield* store.get(jobs.map(({ id }) => id)), 1)
      assert.lengthOf(yield* Steps.take(jobs[0]!), 1)
    }))

  it.effect("2: of different requests racing for one key one wins, and the others learn that they differ", () =>
    Effect.gen(function*() {
      const key = yield* Jobs.freshKey
      const jobs = yield* Effect.forEach(
        Array.from({ length: 12 }),
        (_, index) => Jobs.job({ key: { key, fingerprint: `f${index % 3}` } })
      )

      const answers = yield* Effect.forEach(jobs, submitOne, { concurrency: "unbounded" })

      const winner = answers.findIndex(({ _tag }) => _tag === "Created")
      const expected = jobs.map((job, index) => {
        if (index === winner) return "Created"
        return job.key!.fingerprint === jobs[winner]!.key!.fingerprint ? "Replayed" : "KeyMismatch"
      })
      assert.deepStrictEqual(tags(answers), expected)
    }))

  it.effect("2: many batches with the same keys in opposite order all get an answer", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const keys = yield* Effect.forEach(Array.from({ length: 20 }), () => Jobs.freshKey)
      const type = yield* Jobs.freshType
      const batch = (keys: ReadonlyArray<string>) =>
        Effect.forEach(keys, (key) => Jobs.job({ type, key: { key, fingerprint: "f" } }))
      const batches = yield* Effect.forEach(
        Array.from({ length: 8 }),
        (_, index) => batch(index % 2 === 0 ? keys : keys.toReversed())
      )

      const answers = yield* Effect.forEach(
        batches,
        (jobs, index) => store.submit(jobs, { atomic: index % 4 === 3 }),
        { concurrency: "unbounded" }
      )

      const all = answers.flatMap(({ answers }) => tags(answers))
      assert.strictEqual(all.filter((tag) => tag === "Created").length, 20)
      assert.strictEqual(all.filter((tag) => tag === "Replayed").length, 140)
      assert.lengthOf(yield* Steps.take({ type }), 20)
    }))

  it.effect("2: one key twice in one batch is one job", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const first = yield* keyedJob()
      const same = yield* Jobs.job({ key: first.key })
      const other = yield* Jobs.job({ key: { key: first.key!.key, fingerprint: "g" } })

      const { answers } = yield* store.submit([first, same, other], { atomic: false })

      assert.deepStrictEqual(tags(answers), ["Created", "Replayed", "KeyMismatch"])
      assert.deepStrictEqual(answers.slice(1).map((answer) => "id" in answer && answer.id), [first.id, first.id])
      assert.lengthOf(yield* store.get([first.id, same.id, other.id]), 1)
    }))

  it.effect("2: a different request under a key aborts its atomic batch, and nothing of it is stored", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const known = yield* keyedJob()
      yield* submitOne(known)
      const jobs = [
        yield* Jobs.job(),
        yield* Jobs.job({ key: { key: known.key!.key, fingerprint: "g" } }),
        yield* keyedJob()
      ]

      const { answers } = yield* store.submit(jobs, { atomic: true })

      assert.deepStrictEqual(tags(answers), ["Aborted", "KeyMismatch", "Aborted"])
      assert.lengthOf(yield* store.get(jobs.map(({ id }) => id)), 0)
      assert.strictEqual((yield* submitOne(jobs[2]!))._tag, "Created")
    }))

  it.effect("2: a repeat in an atomic batch is answered, and the others are stored", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const known = yield* keyedJob()
      yield* submitOne(known)
      const jobs = [yield* Jobs.job(), yield* Jobs.job({ key: known.key }), yield* keyedJob()]

      const { answers } = yield* store.submit(jobs, { atomic: true })

      assert.deepStrictEqual(tags(answers), ["Created", "Replayed", "Created"])
      assert.lengthOf(yield* store.get(jobs.map(({ id }) => id)), 2)
    }))
}

/** Beside the suite, since it needs a store whose keys live so short: `keyTtlMs` is what `layer` was made with. */
export const suiteOfKeys = <E>(
  adapter: string,
  layer: Layer.Layer<JobStore, E>,
  { keyTtlMs, pass = Clock.adjust }: { readonly keyTtlMs: number; readonly pass?: Clock.Pass }
) =>
  it.layer(layer, { timeout: "2 minutes", excludeTestServices: pass === Clock.wait })(
    `JobStore (${adapter}), keys that expire`,
    (it) => {
      it.effect("2: a key is free again when its job has been final for the key's lifetime, and not before", () =>
        Effect.gen(function*() {
          const job = yield* keyedJob()
          yield* submitOne(job)
          yield* pass(keyTtlMs + 20)
          const waiting = yield* submitOne(yield* Jobs.job({ key: job.key }))
          const { claim } = yield* Steps.held(pass, job)
          yield* Steps.settled(claim, "complete")
          const final = yield* submitOne(yield* Jobs.job({ key: job.key }))
          yield* pass(keyTtlMs + 20)

          const next = yield* Jobs.job({ key: { key: job.key!.key, fingerprint: "another" } })
          const free = yield* submitOne(next)

          assert.deepStrictEqual([waiting, final], [
            { _tag: "Replayed", id: job.id },
            { _tag: "Replayed", id: job.id }
          ])
          assert.strictEqual(free._tag, "Created")
          assert.deepStrictEqual(yield* submitOne(yield* Jobs.job({ key: next.key })), {
            _tag: "Replayed",
            id: next.id
          })
        }))

      it.effect("2: of many racing for an expired key one gets it", () =>
        Effect.gen(function*() {
          const job = yield* keyedJob()
          yield* submitOne(job)
          const { claim } = yield* Steps.held(pass, job)
          yield* Steps.settled(claim, "complete")
          yield* pass(keyTtlMs + 20)

          const answers = yield* Effect.forEach(
            yield* Jobs.jobs(10, { key: job.key }),
            submitOne,
            { concurrency: "unbounded" }
          )

          assert.strictEqual(tags(answers).filter((tag) => tag === "Created").length, 1)
          assert.strictEqual(tags(answers).filter((tag) => tag === "Replayed").length, 9)
        }))

      it.effect("2: a keyed job is pruned once its key has expired", () =>
        Effect.gen(function*() {
          const store = yield* JobStore
          const job = yield* keyedJob()
          yield* submitOne(job)
          const { claim } = yield* Steps.held(pass, job)
          yield* Steps.settled(claim, "complete")
          yield* store.prune({ completedMs: 0, deadMs: 0, limit: 1_000 })
          assert.strictEqual((yield* Steps.read(job.id)).state, "completed")
          yield* pass(keyTtlMs + 20)

          yield* Steps.eventually(
            pass,
            "the keyed job is pruned",
            Effect.gen(function*() {
              yield* store.prune({ completedMs: 0, deadMs: 0, limit: 1_000 })
              return (yield* store.get([job.id])).length === 0 ? true : null
            })
          )
          assert.strictEqual((yield* submitOne(yield* Jobs.job({ key: job.key })))._tag, "Created")
        }))
    }
  )
