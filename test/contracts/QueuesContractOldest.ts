/** A law of `JobStore` that queues have a part in: how long the oldest job that may start has been due. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { JobId } from "../../src/domain/JobId.ts"
import { JobStore } from "../../src/ports/JobStore.ts"
import { Queues } from "../../src/ports/Queues.ts"
import * as Steps from "./JobStoreContractSteps.ts"
import { fresh, type Laws } from "./QueuesContractSteps.ts"

/** When the oldest job that may start was due. */
const since = Effect.gen(function*() {
  const store = yield* JobStore
  const { asOfMs, oldestReadyMs } = yield* store.counts
  return oldestReadyMs === null ? null : asOfMs - oldestReadyMs
})

const isOldest = Effect.fnUntraced(function*({ id }: { readonly id: JobId }, what: string) {
  assert.strictEqual(yield* since, (yield* Steps.read(id)).runAtMs, what)
})

export const oldestLaws: Laws = (it, pass) => {
  it.effect("16: the oldest job that may start is the one that was due first, of the queues that are not paused", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const queues = yield* Queues
      const { queue, type } = yield* fresh
      assert.isNull(yield* since)
      const later = yield* Steps.submitted({ runAtMs: (yield* store.now) + 3_600_000 })
      assert.isNull(yield* since)

      const first = yield* Steps.submitted({ queue, type })
      yield* pass(20)
      yield* Steps.submitted({ queue, type })
      const second = yield* Steps.submitted()
      yield* pass(20)
      yield* isOldest(first, "of two queues")
      yield* queues.put(queue, { paused: true })
      yield* isOldest(second, "of the queue that is not paused")
      yield* queues.put(queue, { paused: false })
      yield* isOldest(first, "after the pause")

      const { claim } = yield* Steps.held(pass, first)
      const rest = yield* Steps.take({ type })
      assert.lengthOf(rest, 1)
      yield* isOldest(second, "of those that do not run")
      yield* Steps.settled(claim, "fail", { delayMs: 5 })
      yield* store.cancel(second.id)
      yield* pass(30)
      yield* store.promoteIds([first.id])
      yield* isOldest(first, "what has failed, from when it is due again")

      yield* store.cancel(first.id)
      assert.isNull(yield* since)
      yield* store.cancel(later.id)
    }))

  it.effect("16: of jobs of one type and queue it is the one that comes first, as a priority has it", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const of = yield* fresh
      const plain = yield* Steps.submitted(of)
      yield* pass(20)
      const urgent = yield* Steps.submitted({ ...of, priority: 5 })
      yield* isOldest(urgent, "it starts before the other")
      yield* store.cancel(urgent.id)
      yield* isOldest(plain, "the other is next")
      yield* store.cancel(plain.id)
    }))
}
