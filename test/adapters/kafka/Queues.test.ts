/** Queues that hold back, on a system over Kafka: messages about their jobs only wake, and Postgres keeps the order. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { Queue } from "../../../src/domain/Job.ts"
import * as Rank from "../../../src/domain/Rank.ts"
import type { HandlerJob } from "../../../src/programs/worker/HandlerApi.ts"
import { eventually } from "../../support/Eventually.ts"
import * as TestServers from "../../support/TestServers.ts"
import * as Stage from "./Stage.ts"

const held = Queue.make("held")
const free = Queue.make("free")

/** Handlers that know their queue by their payload. */
const probes = (ms: number) => {
  const running = new Map<unknown, number>()
  const most = new Map<unknown, number>()
  const order: Array<string> = []
  const work = ({ id, payload }: HandlerJob) =>
    Effect.suspend(() => {
      order.push(id)
      const n = (running.get(payload) ?? 0) + 1
      running.set(payload, n)
      most.set(payload, Math.max(most.get(payload) ?? 0, n))
      return Effect.sleep(ms)
    }).pipe(Effect.ensuring(Effect.sync(() => running.set(payload, (running.get(payload) ?? 1) - 1))))
  return { handlers: { work }, order, most: (queue: Queue) => most.get(queue) ?? 0 }
}

const manned = Effect.fnUntraced(function*(options: { readonly slots: number; readonly ms: number }) {
  const system = yield* Stage.make(yield* TestServers.kafkaBrokers)
  const seen = probes(options.ms)
  const start = Effect.gen(function*() {
    const worker = yield* system.worker(seen.handlers, { slots: options.slots })
    yield* eventually("it is well", Effect.map(worker.reasons, ({ length }) => length === 0), "60 seconds")
    return worker
  })
  const of = (queue: Queue, count: number, priority = 0) =>
    system.submit("work", count, { queue, payload: JSON.stringify(queue), priority })
  return { ...system, ...seen, start, of }
})

TestServers.describeWithKafka("queues over Kafka", () => {
  it.live(
    "a limited queue runs no more at once than it may, its messages hold up no others, and all of it runs once",
    () =>
      Effect.gen(function*() {
        const { completed, lag, most, of, order, queues, start } = yield* manned({ slots: 6, ms: 30 })
        yield* Effect.orDie(queues.put(held, { concurrency: 2 }))
        yield* start
        const limited = yield* of(held, 60)
        const others = yield* of(free, 200)
        yield* eventually("the others are done", completed(others), "60 seconds")
        yield* eventually("all are done", completed(limited), "60 seconds")
        assert.strictEqual(most(held), 2)
        assert.isAtLeast(most(free), 4)
        assert.strictEqual(new Set(order).size, 260)
        assert.lengthOf(order, 260)
        yield* eventually("nothing is left to commit", Effect.map(lag, (lag) => lag === 0), "60 seconds")
      }).pipe(Effect.scoped),
    180_000
  )

  it.live(
    "a paused queue runs nothing, its messages are committed, and it goes on at once when it is resumed",
    () =>
      Effect.gen(function*() {
        const { completed, lag, of, order, queues, start, states } = yield* manned({ slots: 4, ms: 10 })
        yield* start
        yield* Effect.orDie(queues.put(held, { paused: true }))
        const waiting = yield* of(held, 40)
        const others = yield* of(free, 40)
        yield* eventually("the others are done", completed(others), "60 seconds")
        yield* eventually("all messages are committed", Effect.map(lag, (lag) => lag === 0), "60 seconds")
        assert.isTrue((yield* states(waiting)).every((state) => state === "pending"))
        yield* Effect.orDie(queues.put(held, { paused: false }))
        yield* eventually("they are done", completed(waiting), "5 seconds")
        assert.deepStrictEqual(order.slice(40).toSorted(), [...waiting].toSorted())
      }).pipe(Effect.scoped),
    180_000
  )

  it.live(
    "a strict queue is claimed in its order, whatever the topic says",
    () =>
      Effect.gen(function*() {
        const { completed, of, order, queues, send, start } = yield* manned({ slots: 1, ms: 20 })
        yield* Effect.orDie(queues.put(held, { paused: true, stepMs: Rank.stepMaxMs }))
        const low = yield* of(held, 10, -1)
        const plain = yield* of(held, 10)
        const high = yield* of(held, 10, 1)
        yield* Effect.orDie(queues.put(held, { paused: false }))
        // Named by messages too, the least urgent first.
        yield* send([...low, ...plain, ...high].map((id) => `1:${id}`))
        yield* start
        yield* eventually("all are done", completed([...low, ...plain, ...high]), "60 seconds")
        const at = (ids: ReadonlyArray<string>) => ids.map((id) => order.indexOf(id))
        assert.isBelow(Math.max(...at(high)), Math.min(...at(plain)))
        assert.isBelow(Math.max(...at(plain)), Math.min(...at(low)))
      }).pipe(Effect.scoped),
    180_000
  )
})
