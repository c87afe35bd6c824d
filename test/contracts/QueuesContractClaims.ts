/** Laws of `Queues`: how claims heed pauses, limits and steps. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { JobType, NewJob } from "../../src/domain/Job.ts"
import * as Rank from "../../src/domain/Rank.ts"
import { type ClaimRequest, JobStore } from "../../src/ports/JobStore.ts"
import { Queues } from "../../src/ports/Queues.ts"
import { eventually } from "../support/Eventually.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Steps from "./JobStoreContractSteps.ts"
import { claimIds, fresh, inTurn, type Laws } from "./QueuesContractSteps.ts"

const rerankMax = 200

export const claimLaws: Laws = (it, pass) => {
  it.effect("2: of a paused queue nothing is claimed, by order or by id, and other queues go on", () =>
    Effect.gen(function*() {
      const queues = yield* Queues
      const { queue, type } = yield* fresh
      const held = yield* Steps.submitted({ queue, type })
      const free = yield* Steps.submitted({ queue: yield* Jobs.freshQueue, type })
      yield* queues.put(queue, { paused: true })
      const later = yield* Steps.submitted({ queue, type })

      const byId = yield* claimIds([held, later], type)
      assert.deepStrictEqual(byId, { ...byId, claimed: [], notYetDue: [], inOrder: [] })
      assert.deepStrictEqual(Steps.idsOf(yield* Steps.take({ type })), [free.id])
      // Nobody is told to ask for them again: they are found when the queue goes on.
      const next = yield* Steps.submitted({ queue: free.queue, type })
      const other = yield* Steps.submitted({ queue: free.queue })
      const mixed = yield* claimIds([held, next, other, later], type)
      assert.deepStrictEqual(Steps.idsOf(mixed.claimed), [next.id])
      assert.deepStrictEqual(mixed, { ...mixed, notYetDue: [], inOrder: [], left: [] })
    }))

  it.effect("2: a type that a paused queue sees for the first time waits too, and a promotion does not free it", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const queues = yield* Queues
      const queue = yield* Jobs.freshQueue
      yield* queues.put(queue, { paused: true })
      const now = yield* Steps.submitted({ queue })
      const soon = yield* Steps.submitted({ queue, runAtMs: (yield* store.now) + 20 })
      yield* pass(50)
      yield* store.promoteIds([soon.id])

      assert.lengthOf(yield* Steps.take(now, { types: [now.type, soon.type] }), 0)
      yield* queues.put(queue, { paused: false })
      assert.lengthOf(yield* Steps.take(now, { types: [now.type, soon.type] }), 2)
    }))

  it.effect("2: what runs when its queue is paused goes on, settles, and waits if it has failed", () =>
    Effect.gen(function*() {
      const queues = yield* Queues
      const { queue, type } = yield* fresh
      const [one, two] = [yield* Steps.submitted({ queue, type }), yield* Steps.submitted({ queue, type })]
      const a = yield* Steps.held(pass, one)
      const b = yield* Steps.held(pass, two)
      yield* queues.put(queue, { paused: true })

      yield* Steps.settled(a.claim, "complete")
      yield* Steps.settled(b.claim, "release")
      assert.strictEqual((yield* Steps.read(a.claim.id)).state, "completed")
      assert.strictEqual((yield* Steps.read(b.claim.id)).state, "pending")
      assert.lengthOf(yield* Steps.take({ type }), 0)
    }))

  it.effect("3: after a pause what became ready is claimed in its order", () =>
    Effect.gen(function*() {
      const queues = yield* Queues
      const of = yield* fresh
      yield* queues.put(of.queue, { paused: true })
      const jobs = yield* inTurn(of, [0, 0, 1, 0], pass)
      yield* queues.put(of.queue, { paused: false })

      const order = [jobs[2], jobs[0], jobs[1], jobs[3]].map((job) => job!.id)
      assert.deepStrictEqual(Steps.idsOf(yield* Steps.take(of)), order)
    }))

  it.effect("4: a claim takes of each queue as many as there is room for, over all of its types, in order", () =>
    Effect.gen(function*() {
      const { queue: a, type } = yield* fresh
      const [b, c, other] = [yield* Jobs.freshQueue, yield* Jobs.freshQueue, yield* Jobs.freshType]
      const jobs: Array<NewJob> = []
      for (
        const [queue, of] of [[a, type], [a, other], [a, type], [b, type], [c, type], [c, type], [c, type]] as const
      ) {
        jobs.push(yield* Steps.submitted({ queue, type: of }))
        yield* pass(5)
      }
      const ids = (...numbers: ReadonlyArray<number>) => numbers.map((n) => jobs[n]!.id)
      const take = (rooms: ClaimRequest["rooms"], limit = 50) =>
        Effect.map(Steps.take({ type }, { types: [type, other], limit, rooms: rooms ?? [] }), Steps.idsOf)

      assert.deepStrictEqual(yield* take([{ queue: a, room: 2 }, { queue: b, room: 0 }], 3), ids(0, 1, 4))
      assert.deepStrictEqual(yield* take([{ queue: a, room: 0 }, { queue: c, room: 1 }]), ids(3, 5))
      assert.deepStrictEqual(yield* take([{ queue: a, room: 0 }, { queue: c, room: 0 }]), [])
      assert.deepStrictEqual(yield* take([{ queue: a, room: 9 }, { queue: c, room: 9 }]), ids(2, 6))
      jobs.push(yield* Steps.submitted({ queue: a, type }), yield* Steps.submitted({ queue: c, type, priority: 1 }))
      assert.deepStrictEqual(yield* take([{ queue: a, room: 9 }, { queue: c, room: 9 }], 1), ids(8))
    }))

  it.effect("4: claims side by side take no more of a queue than each has room for, and no job twice", () =>
    Effect.gen(function*() {
      const of = yield* fresh
      yield* Steps.submittedAll(20, of)

      const claims = yield* Effect.forEach(
        Array.from({ length: 4 }),
        () => Steps.take(of, { limit: 50, rooms: [{ queue: of.queue, room: 3 }] }),
        { concurrency: "unbounded" }
      )
      assert.isTrue(claims.every((jobs) => jobs.length <= 3))
      const taken = claims.flatMap(Steps.idsOf)
      assert.strictEqual(new Set(taken).size, taken.length)
      assert.isAtLeast(taken.length, 3)
    }))

  it.effect("4: by id nothing is taken of a queue with a limit: it is named, so that it is claimed in order", () =>
    Effect.gen(function*() {
      const { queue, type } = yield* fresh
      const free = yield* Steps.submitted({ queue: yield* Jobs.freshQueue, type })
      const limited = yield* Steps.submitted({ queue, type })

      const { claimed, inOrder } = yield* claimIds([free, limited], type, { rooms: [{ queue, room: 5 }] })
      assert.deepStrictEqual(Steps.idsOf(claimed), [free.id])
      assert.deepStrictEqual(inOrder, [queue])
    }))

  it.effect("4: a claim by its name takes what the limits leave beside the jobs that run under it", () =>
    Effect.gen(function*() {
      const queues = yield* Queues
      const [one, two] = [yield* fresh, yield* fresh]
      const [ada, grace] = [yield* Jobs.freshKey, yield* Jobs.freshKey]
      const take = (worker: string, of: { readonly type: JobType }, change: Partial<ClaimRequest> = {}) =>
        Steps.take(of, { worker, limit: 50, limitsByName: true, ...change })
      yield* queues.put(one.queue, { concurrency: 3 })
      yield* Steps.submittedAll(9, one)
      yield* Steps.submittedAll(3, two)
      const lease = yield* Jobs.freshLease
      const [first] = yield* take(ada, one, { limit: 2, lease })
      assert.lengthOf(yield* take(ada, two), 3, "without a limit all")
      assert.lengthOf(yield* take(grace, one), 3, "by name")
      assert.lengthOf(yield* take(ada, one), 1)
      assert.lengthOf(yield* take(ada, one), 0)
      yield* Steps.settled(Steps.claimOf(lease, first!), "complete")
      yield* queues.put(one.queue, { concurrency: 2 })
      assert.lengthOf(yield* take(ada, one), 0, "two of them run still")
      yield* queues.put(one.queue, { concurrency: 4 })
      assert.lengthOf(yield* take(ada, one), 2)
      yield* queues.put(one.queue, { concurrency: null })
      assert.lengthOf(yield* take(ada, one), 1)
    }))

  it.effect("4: a job that another name holds by now counts for that name alone", () =>
    Effect.gen(function*() {
      const queues = yield* Queues
      const of = yield* fresh
      const [ada, grace] = [yield* Jobs.freshKey, yield* Jobs.freshKey]
      const take = (worker: string, change: Partial<ClaimRequest> = {}) =>
        Steps.take(of, { worker, limitsByName: true, ...change })
      yield* queues.put(of.queue, { concurrency: 1 })
      const first = yield* Steps.submitted(of)
      const lease = yield* Jobs.freshLease
      const [held] = yield* take(ada, { lease })
      yield* Steps.settled(Steps.claimOf(lease, held!), "release")
      assert.deepStrictEqual(Steps.idsOf(yield* take(grace)), [first.id])
      const second = yield* Steps.submitted(of)

      assert.lengthOf(yield* take(grace), 0)
      assert.deepStrictEqual(Steps.idsOf(yield* take(ada)), [second.id])
      yield* queues.put(of.queue, { concurrency: null })
    }))

  it.effect("4: claims by one name that meet take no more of a queue than one after the other", () =>
    Effect.gen(function*() {
      const queues = yield* Queues
      const of = yield* fresh
      const [ada, grace] = [yield* Jobs.freshKey, yield* Jobs.freshKey]
      yield* queues.put(of.queue, { concurrency: 3 })
      yield* Steps.submittedAll(40, of)
      const claims = yield* Effect.forEach(
        [ada, grace, ada, grace, ada, grace],
        (worker) => Steps.take(of, { worker, limit: 2, limitsByName: true }),
        { concurrency: "unbounded" }
      )
      const by = (n: number) => claims.filter((_, index) => index % 2 === n).flatMap(Steps.idsOf)
      assert.deepStrictEqual([by(0).length, by(1).length], [3, 3])
      assert.strictEqual(new Set([...by(0), ...by(1)]).size, 6)
      yield* queues.put(of.queue, { concurrency: null })
    }))

  it.effect("5: by id nothing is taken that has a priority or whose queue has a step of its own", () =>
    Effect.gen(function*() {
      const queues = yield* Queues
      const { queue, type } = yield* fresh
      const [urgent, other] = [yield* Jobs.freshQueue, yield* Jobs.freshQueue]
      yield* queues.put(queue, { stepMs: Rank.stepMaxMs })
      const stepped = yield* Steps.submitted({ queue, type })
      const low = yield* Steps.submitted({ queue: urgent, type, priority: -1 })
      const plain = yield* Steps.submitted({ queue: other, type })

      const { claimed, inOrder } = yield* claimIds([low, stepped, plain], type)
      assert.deepStrictEqual(Steps.idsOf(claimed), [plain.id])
      assert.deepStrictEqual(inOrder.toSorted(), [queue, urgent].toSorted())
      assert.deepStrictEqual(Steps.idsOf(yield* Steps.take({ type })), [stepped.id, low.id])
    }))

  it.effect("5: what becomes ready after a put is ranked by the step of its queue", () =>
    Effect.gen(function*() {
      const queues = yield* Queues
      const [flat, strict] = [yield* fresh, yield* fresh]
      yield* queues.put(flat.queue, { stepMs: 0 })
      yield* queues.put(strict.queue, { stepMs: Rank.stepMaxMs })
      const inFlat = yield* inTurn(flat, [0, 5, 1_000], pass)
      const inStrict = yield* inTurn(strict, [0, 5, 1_000], pass)

      assert.deepStrictEqual(Steps.idsOf(yield* Steps.take(flat)), inFlat.map(({ id }) => id))
      assert.deepStrictEqual(Steps.idsOf(yield* Steps.take(strict)), inStrict.map(({ id }) => id).toReversed())
    }))

  it.effect("5: what was ready before is ranked anew, so many at a time, and no other", () =>
    Effect.gen(function*() {
      const queues = yield* Queues
      const [of, other] = [yield* fresh, yield* fresh]
      const jobs = yield* inTurn(of, [0, 3, 1, 2], pass)
      const second = yield* Steps.submitted({ queue: of.queue, priority: 1 })
      const others = yield* inTurn(other, [0, 1], pass)
      yield* queues.put(of.queue, { stepMs: 0 })

      let changed = 0
      yield* eventually(
        "the first walk is over",
        Effect.map(queues.rerank(2), ({ againInMs, jobs }) => {
          assert.isAtMost(jobs, 2)
          changed += jobs
          return againInMs !== 0
        })
      )
      assert.strictEqual(changed, 4)
      assert.deepStrictEqual(Steps.idsOf(yield* Steps.take(of)), jobs.map(({ id }) => id))
      assert.deepStrictEqual(Steps.idsOf(yield* Steps.take(second)), [second.id])
      assert.deepStrictEqual(Steps.idsOf(yield* Steps.take(other)), others.map(({ id }) => id).toReversed())
      // And back, so that nothing is left for the next test.
      yield* queues.put(of.queue, { stepMs: Rank.stepDefaultMs })
      yield* eventually(
        "nothing is left to do at once",
        Effect.map(queues.rerank(rerankMax), ({ againInMs }) => againInMs !== 0)
      )
    }))
}
