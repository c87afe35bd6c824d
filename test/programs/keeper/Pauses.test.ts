/** How soon a chore comes again: at once where there is more to do, else when there may be, or when it is told. */
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Fiber, Layer, Queue } from "effect"
import { TestClock } from "effect/testing"
import * as DelayedJobsMemory from "../../../src/adapters/memory/DelayedJobsMemory.ts"
import * as QueuesMemory from "../../../src/adapters/memory/QueuesMemory.ts"
import * as TransportMemory from "../../../src/adapters/memory/TransportMemory.ts"
import { queueDefault } from "../../../src/domain/Job.ts"
import { type DeadLetter, JobStore } from "../../../src/ports/JobStore.ts"
import { Queues } from "../../../src/ports/Queues.ts"
import { Transport, type Wake } from "../../../src/ports/Transport.ts"
import * as Announcer from "../../../src/programs/keeper/Announcer.ts"
import * as Expirer from "../../../src/programs/keeper/Expirer.ts"
import type { KeeperConfig } from "../../../src/programs/keeper/KeeperConfig.ts"
import * as Pruner from "../../../src/programs/keeper/Pruner.ts"
import * as Reranker from "../../../src/programs/keeper/Reranker.ts"
import * as Loops from "../../../src/programs/process/Loops.ts"
import * as Ids from "../../support/Ids.ts"
import * as Stage from "./Stage.ts"

const layer = Layer.mergeAll(
  Layer.provideMerge(QueuesMemory.layer, Stage.memory),
  DelayedJobsMemory.layer,
  TransportMemory.layer,
  Loops.layer
)

/** When the rounds began, each of which is answered by one of `answers`. */
const begins = Effect.fnUntraced(function*<A>(
  run: Effect.Effect<never, never, JobStore | Transport | KeeperConfig | Loops.Loops>,
  ported: (round: Effect.Effect<A>) => Partial<JobStore["Service"]>,
  answers: ReadonlyArray<A>
) {
  const store = yield* JobStore
  const at: Array<number> = []
  const round = Effect.flatMap(Clock.currentTimeMillis, (now) => {
    at.push(now)
    return at.length > answers.length ? Effect.never : Effect.succeed(answers[at.length - 1]!)
  })
  const running = yield* Effect.forkChild(Effect.provideService(run, JobStore, { ...store, ...ported(round) }))
  for (let passedMs = 0; passedMs < 15_000; passedMs += 10) {
    yield* TestClock.adjust("10 millis")
  }
  yield* Fiber.interrupt(running)
  return at
})

const letters = (count: number) =>
  Array.from({ length: count }, (): DeadLetter => ({
    id: Ids.jobId(),
    type: Stage.type,
    queue: queueDefault,
    reason: "expired",
    attempts: 0,
    diedAtMs: 0
  }))

it.effect("jobs that were not started in time: at once after a full batch, else when the next one is due or soon", () =>
  Effect.gen(function*() {
    const at = yield* begins(Expirer.run, (round) => ({ expire: () => round }), [
      { jobs: 1_000, nextInMs: null },
      { jobs: 0, nextInMs: 300 },
      { jobs: 0, nextInMs: 10 },
      { jobs: 0, nextInMs: null },
      { jobs: 0, nextInMs: 3_600_000 }
    ])
    assert.deepStrictEqual(at, [0, 0, 300, 350, 2_350, 4_350])
  }).pipe(Effect.provide(layer)))

it.effect("dead letters: at once after a full batch, else soon", () =>
  Effect.gen(function*() {
    const at = yield* begins(Announcer.run, (round) => ({ deadLetters: () => round, announced: () => Effect.void }), [
      letters(200),
      letters(199),
      []
    ])
    assert.deepStrictEqual(at, [0, 0, 2_000, 4_000])
  }).pipe(Effect.provide(layer)))

it.effect("what is final: in a moment where there is more, else after a while", () =>
  Effect.gen(function*() {
    const at = yield* begins(Pruner.run, (round) => ({ prune: () => round }), [
      { jobs: 0, keys: 0, more: true },
      { jobs: 1_000, keys: 0, more: false }
    ])
    assert.deepStrictEqual(at, [0, 50, 10_050])
  }).pipe(Effect.provide(layer)))

it.effect("ranks: when a queue has changed or may have, and after a breath as long as there is more", () =>
  Effect.gen(function*() {
    const queues = yield* Queues
    const transport = yield* Transport
    const wakes = yield* Queue.unbounded<Wake>()
    let rounds = 0
    let againInMs: number | null = null
    const running = yield* Effect.forkChild(
      Effect.scoped(Reranker.run).pipe(
        Effect.provideService(Queues, {
          ...queues,
          rerank: () =>
            Effect.sync(() => {
              rounds += 1
              return { jobs: 0, againInMs }
            })
        }),
        Effect.provideService(Transport, {
          ...transport,
          subscribe: (options) => Effect.map(transport.subscribe(options), (subscribed) => ({ ...subscribed, wakes }))
        })
      )
    )
    const roundsAfter = (ms: number) => Effect.map(TestClock.adjust(ms), () => rounds)
    const told = (wake: Wake) => Effect.andThen(Queue.offer(wakes, wake), roundsAfter(1))
    assert.strictEqual(yield* roundsAfter(9_999), 1)
    assert.strictEqual(yield* roundsAfter(1), 2)
    assert.strictEqual(yield* told({ _tag: "Ready" }), 2)
    assert.strictEqual(yield* told({ _tag: "Queues" }), 3)
    againInMs = 500
    assert.strictEqual(yield* told({ _tag: "Resumed" }), 4)
    assert.strictEqual(yield* roundsAfter(498), 4)
    againInMs = 0
    assert.strictEqual(yield* roundsAfter(1), 5)
    // It is at it already.
    assert.strictEqual(yield* told({ _tag: "Queues" }), 5)
    assert.strictEqual(yield* roundsAfter(18), 5)
    assert.strictEqual(yield* roundsAfter(1), 6)
    yield* Fiber.interrupt(running)
  }).pipe(Effect.provide(layer)))
