/** Laws of `JobStore`: reading. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { JobId } from "../../src/domain/JobId.ts"
import { JobStore, type ListRequest } from "../../src/ports/JobStore.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Pages from "../support/Pages.ts"
import * as Steps from "./JobStoreContractSteps.ts"

const pagesMax = 200

/** The ids of a walk. */
const walk = <E = never, R = never>(
  request: Omit<ListRequest, "offset" | "before">,
  between?: Effect.Effect<unknown, E, R>
) =>
  Effect.map(
    Pages.walk(request, { pagesMax, ...(between === undefined ? {} : { between }) }),
    ({ jobs }) => Steps.idsOf(jobs)
  )

export const readLaws: Steps.Laws = (it, pass) => {
  it.effect("1: get answers the jobs that exist among the ids, each once", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(3)
      const ids = jobs.map(({ id }) => id)

      const found = yield* store.get([...ids, yield* Jobs.freshId, ids[0]!])

      assert.deepStrictEqual(Steps.sortedIds(found), ids.toSorted())
      assert.deepStrictEqual(yield* store.get([]), [])
      assert.deepStrictEqual(yield* store.get([yield* Jobs.freshId]), [])
    }))

  it.effect("14: list shows newest first, and filters", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const [type, other, queue] = [yield* Jobs.freshType, yield* Jobs.freshType, yield* Jobs.freshQueue]
      const plain = yield* Steps.submitted({ type })
      const tagged = yield* Steps.submitted({ type, queue, tags: ["red", "blue"] })
      const elsewhere = yield* Steps.submitted({ type: other, queue, tags: ["red"] })
      const done = yield* Steps.submitted({ type })
      const failed = yield* Steps.submitted({ type })
      const dead = yield* Steps.submitted({ type })
      const running = yield* Steps.submitted({ type })
      yield* Steps.settled((yield* Steps.held(pass, done)).claim, "complete")
      yield* Steps.settled((yield* Steps.held(pass, failed)).claim, "fail", { delayMs: 60_000 })
      yield* store.cancel(dead.id)
      yield* Steps.held(pass, running)
      const list = (request: Omit<ListRequest, "limit" | "offset">) => walk({ ...request, limit: 100 })
      const newestFirst = (...jobs: ReadonlyArray<{ readonly id: JobId }>) =>
        jobs.map(({ id }) => id).toSorted().toReversed()

      assert.deepStrictEqual(yield* list({ type }), newestFirst(plain, tagged, done, failed, dead, running))
      assert.deepStrictEqual(yield* list({ queue }), newestFirst(tagged, elsewhere))
      assert.deepStrictEqual(yield* list({ type, queue }), [tagged.id])
      assert.deepStrictEqual(yield* list({ queue, tag: "red" }), newestFirst(tagged, elsewhere))
      assert.deepStrictEqual(yield* list({ type, tag: "blue" }), [tagged.id])
      assert.deepStrictEqual(yield* list({ type, tag: "green" }), [])
      assert.deepStrictEqual(yield* list({ type, state: "pending" }), newestFirst(plain, tagged))
      assert.deepStrictEqual(yield* list({ type, state: "running" }), [running.id])
      assert.deepStrictEqual(yield* list({ type, state: "failed" }), [failed.id])
      assert.deepStrictEqual(yield* list({ type, state: "completed" }), [done.id])
      assert.deepStrictEqual(yield* list({ type, state: "dead" }), [dead.id])
      assert.deepStrictEqual(yield* list({ type: yield* Jobs.freshType }), [])
    }))

  it.effect("14: a running job is listed once, also while the lease that it was released under stands", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(3)
      const asked = yield* Steps.request(jobs[0]!)
      const claims = yield* store.claim(asked)
      assert.lengthOf(claims, 3)
      yield* Steps.settled(Steps.claimOf(asked.lease, claims.find(({ id }) => id === jobs[1]!.id)!), "release")
      yield* Steps.held(pass, jobs[1]!)
      const newestFirst = jobs.map(({ id }) => id).toSorted().toReversed()
      const running = { type: jobs[0]!.type, state: "running" } as const

      assert.deepStrictEqual(yield* walk({ ...running, limit: 10 }), newestFirst)
      assert.deepStrictEqual(yield* walk({ ...running, limit: 1 }), newestFirst)
    }))

  it.effect("14: list takes a limit and an offset, and shows whole jobs", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const jobs = yield* Steps.submittedAll(5, { payload: "[1]" })
      const order = jobs.map(({ id }) => id).toSorted().toReversed()

      const { jobs: page } = yield* store.list({ type: jobs[0]!.type, limit: 2, offset: 1 })

      assert.deepStrictEqual(page.map(({ id }) => id), order.slice(1, 3))
      assert.deepStrictEqual(page[0], yield* Steps.read(order[1]!))
      const past = yield* store.list({ type: jobs[0]!.type, limit: 2, offset: 50 })
      assert.deepStrictEqual(past.jobs, [])
    }))

  it.effect("14: a walk with the cursor sees each job once, and misses none, while others come", () =>
    Effect.gen(function*() {
      const type = yield* Jobs.freshType
      const there = yield* Steps.submittedAll(23, { type })

      const seen = yield* walk({ type, limit: 3 }, Effect.andThen(pass(2), Steps.submittedAll(2, { type })))

      assert.strictEqual(new Set(seen).size, seen.length, "a job twice")
      assert.deepStrictEqual(there.map(({ id }) => id).filter((id) => !seen.includes(id)), [])
      assert.deepStrictEqual(seen, seen.toSorted().toReversed())
    }))

  it.effect("14: a walk by state misses none of what matches throughout, while others change", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const type = yield* Jobs.freshType
      const stay = yield* Steps.submittedAll(12, { type })
      const leave = yield* Steps.submittedAll(6, { type })
      const leaving = leave.map(({ id }) => id)

      const seen = yield* walk(
        { type, state: "pending", limit: 2 },
        Effect.suspend(() => {
          const id = leaving.pop()
          return id === undefined ? Effect.void : Effect.asVoid(store.cancel(id))
        })
      )

      assert.strictEqual(new Set(seen).size, seen.length, "a job twice")
      assert.deepStrictEqual(stay.map(({ id }) => id).filter((id) => !seen.includes(id)), [])
    }))

  it.effect("16: counts follow every change of state", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const [type, queue] = [yield* Jobs.freshType, yield* Jobs.freshQueue]
      const before = yield* store.counts
      const jobs = yield* Steps.submittedAll(6, { type, queue })
      yield* Steps.settled((yield* Steps.held(pass, jobs[0]!)).claim, "complete")
      yield* Steps.settled((yield* Steps.held(pass, jobs[1]!)).claim, "fail", { delayMs: 60_000 })
      yield* store.cancel(jobs[2]!.id)
      yield* Steps.held(pass, jobs[3]!)
      yield* Steps.settled((yield* Steps.held(pass, jobs[4]!)).claim, "release")

      const counts = yield* Steps.eventually(
        pass,
        "the counts have caught up",
        Effect.map(store.counts, (counts) =>
          counts.byType[type] === 6 && counts.pendingByType[type] === 2 &&
            counts.byState.running > before.byState.running
            ? counts
            : null)
      )

      assert.strictEqual(counts.byQueue[queue], 6)
      assert.strictEqual(counts.pendingByType[type], 2)
      const gained = (state: keyof typeof counts.byState) => counts.byState[state] - before.byState[state]
      assert.deepStrictEqual(
        { pending: gained("pending"), running: gained("running"), failed: gained("failed") },
        { pending: 2, running: 1, failed: 1 }
      )
      assert.deepStrictEqual({ completed: gained("completed"), dead: gained("dead") }, { completed: 1, dead: 1 })
      assert.isAtMost(counts.asOfMs, yield* store.now)
    }))

  it.effect("the store's clock goes on", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const before = yield* store.now
      yield* pass(30)

      assert.isAtLeast(yield* store.now, before + 30)
      assert.isTrue(Number.isInteger(before))
    }))
}
