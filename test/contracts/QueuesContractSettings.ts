/** Laws of `Queues`: what is said about a queue, which of them have a limit, lists and counts. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { Queue } from "../../src/domain/Job.ts"
import * as QueueSettings from "../../src/domain/QueueSettings.ts"
import * as Rank from "../../src/domain/Rank.ts"
import { JobStore } from "../../src/ports/JobStore.ts"
import { Queues } from "../../src/ports/Queues.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Steps from "./JobStoreContractSteps.ts"
import { fresh, type Laws } from "./QueuesContractSteps.ts"

export const settingLaws: Laws = (it, pass) => {
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
}
