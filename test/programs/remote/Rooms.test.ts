/** Whether claims for workers elsewhere are counted: until that is known, and while it cannot be read. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { Queue } from "../../../src/domain/Job.ts"
import { type QueueLimit, Queues, QueuesUnavailable } from "../../../src/ports/Queues.ts"
import * as Rooms from "../../../src/programs/remote/Rooms.ts"

const away = Effect.fail(new QueuesUnavailable({ operation: "limits", cause: "away" }))
const limited: ReadonlyArray<QueueLimit> = [{ queue: Queue.make("q"), concurrency: 1 }]

const stage = () => {
  const state: { nowMs: number; limits: Queues["Service"]["limits"]; reads: number } = {
    nowMs: 0,
    limits: away,
    reads: 0
  }
  const limits = Effect.suspend(() => {
    state.reads += 1
    return state.limits
  })
  const queues = Queues.of({ limits, list: () => away, get: () => away, put: () => away, rerank: () => away })
  const rooms = Rooms.make({ queues, now: () => state.nowMs })
  return { state, rooms, claim: rooms.inTurn("ada", Effect.succeed("claimed")) }
}

it.effect("until it is known whether a queue has a limit nobody claims, and what was known last holds", () =>
  Effect.gen(function*() {
    const { claim, rooms, state } = stage()
    assert.strictEqual((yield* Effect.flip(claim))._tag, "QueuesUnavailable")
    state.limits = Effect.succeed(limited)
    assert.strictEqual(yield* claim, "claimed")
    assert.isTrue(rooms.some())
    state.limits = away
    rooms.changed()
    assert.strictEqual(yield* claim, "claimed")
    assert.isTrue(rooms.some())
  }))

it.effect("it is looked at every five seconds, and as soon as a queue is said to have changed", () =>
  Effect.gen(function*() {
    const { claim, rooms, state } = stage()
    state.limits = Effect.succeed([])
    for (const [atMs, reads] of [[0, 1], [4_999, 1], [5_000, 2], [5_001, 2]] as const) {
      state.nowMs = atMs
      yield* claim
      assert.strictEqual(state.reads, reads)
    }
    state.limits = Effect.succeed(limited)
    rooms.changed()
    yield* claim
    assert.strictEqual(state.reads, 3)
    assert.isTrue(rooms.some())
  }))
