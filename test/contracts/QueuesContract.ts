/**
 * The laws of `Queues`, for any adapter, beside the store whose claims heed them.
 *
 * Every test takes queues and types of its own, so the tests share one layer; the one that fills the limits frees them.
 */
import { assert, it } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import type { JobType, NewJob, Queue } from "../../src/domain/Job.ts"
import * as QueueSettings from "../../src/domain/QueueSettings.ts"
import * as Rank from "../../src/domain/Rank.ts"
import { type ClaimRequest, JobStore } from "../../src/ports/JobStore.ts"
import { Queues } from "../../src/ports/Queues.ts"
import * as Clock from "../support/Clock.ts"
import { eventually } from "../support/Eventually.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Steps from "./JobStoreContractSteps.ts"

interface Options {
  readonly pass?: Clock.Pass
}

const rerankMax = 200

/** A queue of its own, and a type. */
const fresh = Effect.all({ queue: Jobs.freshQueue, type: Jobs.freshType })

const claimIds = Effect.fnUntraced(function*(
  jobs: ReadonlyArray<Pick<NewJob, "id">>,
  type: JobType,
  change: Partial<ClaimRequest> = {}
) {
  const store = yield* JobStore
  return yield* store.claimIds({
    ...(yield* Steps.request({ type }, change)),
    ids: jobs.map(({ id }) => id)
  })
})

const inTurn = Effect.fnUntraced(function*(
  of: { readonly queue: Queue; readonly type: JobType },
  priorities: ReadonlyArray<number>,
  pass: Clock.Pass
) {
  const jobs = []
  for (const priority of priorities) {
    jobs.push(yield* Steps.submitted({ ...of, priority }))
    yield* pass(5)
  }
  return jobs
})

export const suite = <E>(
  adapter: string,
  layer: Layer.Layer<JobStore | Queues, E>,
  { pass = Clock.adjust }: Options = {}
) =>
  it.layer(layer, { timeout: "2 minutes", excludeTestServices: pass === Clock.wait })(`Queues (${adapter})`, (it) => {
    it.effect("1: a queue exists once it has a job or was put", () =>
      Effect.gen(function*() {
        const queues = yield* Queues
        const { queue, type } = yield* fresh
        const other = yield* Jobs.freshQueue
        assert.isNull(yield* queues.get(queue))
        yield* Steps.submitted({ queue, type })
        assert.deepInclude(yield* queues.get(queue), { name: queue, ...QueueSettings.defaults, createdAtMs: null })
        const { queue: put } = yield* queues.put(other, {})
        assert.deepInclude(put, { name: other, ...QueueSettings.defaults })
        assert.isNumber(put.createdAtMs)
        assert.deepStrictEqual(yield* queues.get(other), put)
      }))

    it.effect("1: a put changes what it names and leaves the rest as it was", () =>
      Effect.gen(function*() {
        const queues = yield* Queues
        const queue = yield* Jobs.freshQueue
        const { queue: first } = yield* queues.put(queue, { paused: true })
        assert.deepInclude(first, { paused: true, concurrency: null, stepMs: Rank.stepDefaultMs })
        yield* pass(5)
        assert.deepInclude((yield* queues.put(queue, { concurrency: 3 })).queue, { paused: true, concurrency: 3 })
        yield* queues.put(queue, { stepMs: 0 })
        yield* queues.put(queue, { paused: false })
        assert.deepStrictEqual((yield* queues.put(queue, {})).queue, {
          ...first,
          paused: false,
          concurrency: 3,
          stepMs: 0
        })
        assert.deepInclude((yield* queues.put(queue, { concurrency: null })).queue, { concurrency: null, stepMs: 0 })
        yield* queues.put(queue, { stepMs: Rank.stepDefaultMs })
      }))

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

    it.effect("4: limits are the queues that have a concurrency", () =>
      Effect.gen(function*() {
        const queues = yield* Queues
        const [limited, paused, unlimited] = [yield* Jobs.freshQueue, yield* Jobs.freshQueue, yield* Jobs.freshQueue]
        const find = Effect.map(queues.limits, (all) =>
          all.filter(({ queue }) =>
            [limited, paused, unlimited].includes(queue)
          )
            .toSorted((a, b) => a.concurrency - b.concurrency))
        yield* queues.put(limited, { concurrency: 2 })
        yield* queues.put(paused, { concurrency: 7, paused: true })
        yield* queues.put(unlimited, { paused: true })
        assert.deepStrictEqual(yield* find, [{ queue: limited, concurrency: 2 }, { queue: paused, concurrency: 7 }])
        yield* queues.put(paused, { concurrency: null })
        assert.deepStrictEqual(yield* find, [{ queue: limited, concurrency: 2 }])
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

    it.effect("6: a list walks by name, with no queue twice and none missed", () =>
      Effect.gen(function*() {
        const queues = yield* Queues
        const put = yield* Effect.forEach(
          Array.from({ length: 5 }),
          () => Effect.tap(Jobs.freshQueue, (name) => queues.put(name, {}))
        )
        const { queue: worked, type } = yield* fresh
        yield* Steps.submitted({ queue: worked, type })
        const seen: Array<Queue> = []
        let after: Queue | null = null
        for (;;) {
          const page: { queues: ReadonlyArray<{ name: Queue }>; more: boolean } = yield* queues.list({
            limit: 3,
            after
          })
          assert.isAtMost(page.queues.length, 3)
          seen.push(...page.queues.map(({ name }) => name))
          if (!page.more) {
            break
          }
          after = seen.at(-1) ?? null
        }
        assert.strictEqual(new Set(seen).size, seen.length)
        assert.includeMembers(seen, [...put, worked])
      }))

    it.effect("7: counts are by state", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const queues = yield* Queues
        const of = yield* fresh
        const none = { pending: 0, running: 0, failed: 0, completed: 0, dead: 0 }
        yield* queues.put(of.queue, {})
        assert.deepStrictEqual((yield* queues.get(of.queue))?.byState, none)
        const jobs = yield* Steps.submittedAll(5, of)
        const a = yield* Steps.held(pass, jobs[0]!)
        yield* Steps.held(pass, jobs[1]!)
        const c = yield* Steps.held(pass, jobs[2]!)
        yield* Steps.settled(a.claim, "complete")
        yield* Steps.settled(c.claim, "fail")
        const waiting = (yield* store.get(jobs.map(({ id }) => id))).find(({ state }) => state === "pending")!
        yield* store.cancel(waiting.id)
        const counted = { pending: 1, running: 1, failed: 1, completed: 1, dead: 1 }
        assert.deepStrictEqual((yield* queues.get(of.queue))?.byState, counted)
        const { queues: listed } = yield* queues.list({ limit: 500, after: null })
        assert.deepStrictEqual(listed.find(({ name }) => name === of.queue)?.byState, counted)
      }))

    it.effect(
      "8: so many queues have a limit that no other may, until one gives its own back",
      () =>
        Effect.gen(function*() {
          const queues = yield* Queues
          const there = (yield* queues.limits).length
          const names = yield* Effect.forEach(
            Array.from({ length: QueueSettings.limitedMax - there }),
            () => Effect.tap(Jobs.freshQueue, (name) => queues.put(name, { concurrency: 1 }))
          )
          const further = yield* Jobs.freshQueue
          yield* queues.put(further, { paused: true })
          const refused = yield* Effect.flip(queues.put(further, { concurrency: 1, paused: false }))
          assert.strictEqual(refused._tag, "TooManyLimits")
          assert.deepInclude(yield* queues.get(further), { paused: true, concurrency: null })
          // Those that have one may get another.
          yield* queues.put(names[0]!, { concurrency: 2 })
          yield* queues.put(names[0]!, { concurrency: null })
          yield* queues.put(further, { concurrency: 1 })
          yield* Effect.forEach([...names, further], (name) => queues.put(name, { concurrency: null }), {
            discard: true
          })
        }),
      180_000
    )
  })
