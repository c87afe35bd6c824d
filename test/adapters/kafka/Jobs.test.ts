/** Jobs on a system over Kafka: what slow, repeated, unreadable and moved messages do to them. */
import { assert, it } from "@effect/vitest"
import { Effect, Exit, Metric } from "effect"
import { JobType, queueDefault } from "../../../src/domain/Job.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import type { HandlerContext, HandlerJob } from "../../../src/programs/worker/HandlerApi.ts"
import { eventually } from "../../support/Eventually.ts"
import * as TestServers from "../../support/TestServers.ts"
import * as Stage from "./Stage.ts"

/** Handlers that count their runs. */
const probes = () => {
  const runs = new Map<string, number>()
  let running = 0
  let runningMax = 0
  const during = (ms: number) => ({ id }: HandlerJob, { signal: _ }: HandlerContext) =>
    Effect.suspend(() => {
      runs.set(id, (runs.get(id) ?? 0) + 1)
      running += 1
      runningMax = Math.max(runningMax, running)
      return Effect.sleep(ms)
    }).pipe(Effect.ensuring(Effect.sync(() => {
      running -= 1
    })))
  return {
    handlers: {
      fast: during(5),
      short: during(20),
      medium: during(300),
      long: during(2_000),
      slow: during(60_000)
    },
    runs: (id: JobId) => runs.get(id) ?? 0,
    once: (ids: ReadonlyArray<JobId>) => ids.every((id) => runs.get(id) === 1),
    runningMax: () => runningMax
  }
}

const message = (id: JobId) => `1:${id}`

const stage = (prefix?: string) => Effect.flatMap(TestServers.kafkaBrokers, (brokers) => Stage.make(brokers, prefix))

/** A stage and a worker that takes part in the deliveries. */
const manned = Effect.fnUntraced(function*(slots = 4) {
  const system = yield* stage()
  const { handlers, ...seen } = probes()
  const worker = yield* system.worker(handlers, { slots })
  yield* eventually("it is well", Effect.map(worker.reasons, ({ length }) => length === 0), "60 seconds")
  return { ...system, ...seen, handlers, theWorker: worker }
})

TestServers.describeWithKafka("jobs over Kafka", () => {
  it.live("run once each, and their messages are committed", () =>
    Effect.gen(function*() {
      const { completed, lag, once, submit } = yield* manned()
      const ids = yield* submit("fast", 300)
      yield* eventually("all are done", completed(ids), "60 seconds")
      assert.isTrue(once(ids))
      yield* eventually("nothing is left to commit", Effect.map(lag, (lag) => lag === 0), "60 seconds")
    }).pipe(Effect.scoped), 180_000)

  it.live(
    "fast ones finish behind a slow one on the same partition, whose message stays uncommitted",
    () =>
      Effect.gen(function*() {
        const { completed, lag, send, states, store, submit } = yield* manned()
        const [slow] = yield* submit("slow", 1, { runAtMs: (yield* Effect.orDie(store.now)) + 1_500 })
        const fast = yield* submit("fast", 50, { runAtMs: (yield* Effect.orDie(store.now)) + 3_000 })
        yield* send([slow!, ...fast].map(message), 0)
        yield* eventually("the slow one runs", Effect.map(states([slow!]), ([state]) => state === "running"))
        yield* eventually("the fast ones are done", completed(fast), "60 seconds")
        assert.deepStrictEqual(yield* states([slow!]), ["running"])
        yield* eventually("what was dropped is committed", Effect.map(lag, (lag) => lag <= 52), "60 seconds")
      }).pipe(Effect.scoped),
    180_000
  )

  it.live(
    "a message about a running, a finished, a cancelled or an unknown job is dropped",
    () =>
      Effect.gen(function*() {
        const { completed, lag, runs, send, states, store, submit } = yield* manned()
        const [running] = yield* submit("long", 1)
        yield* eventually("it runs", Effect.map(states([running!]), ([state]) => state === "running"))
        const [cancelled] = yield* submit("fast", 1, { runAtMs: (yield* Effect.orDie(store.now)) + 60_000 })
        yield* Effect.orDie(store.cancel(cancelled!))
        yield* send([running!, cancelled!, crypto.randomUUID() as JobId].map(message))
        yield* eventually("it is done", completed([running!]))
        yield* send([message(running!)])
        yield* eventually("all of it is committed", Effect.map(lag, (lag) => lag === 0), "60 seconds")
        assert.strictEqual(runs(running!), 1)
        assert.strictEqual(runs(cancelled!), 0)
      }).pipe(Effect.scoped),
    180_000
  )

  it.live("garbage is counted, skipped and committed", () =>
    Effect.gen(function*() {
      const { completed, lag, send, submit } = yield* manned()
      const counter = Metric.counter("deadman_garbage_messages_total", {
        description: "Transport messages that could not be read and were skipped",
        incremental: true
      })
      const before = Number((yield* Metric.value(counter)).count)
      yield* send([null, "", "{}", `2:${crypto.randomUUID()}`, Buffer.alloc(900_000, 65)], 2)
      const ids = yield* submit("fast", 20)
      yield* send(ids.map(message), 2)
      yield* eventually("the jobs are done", completed(ids))
      yield* eventually("all of it is committed", Effect.map(lag, (lag) => lag === 0), "60 seconds")
      assert.strictEqual(Number((yield* Metric.value(counter)).count), before + 5)
    }).pipe(Effect.scoped), 180_000)

  it.live(
    "a job with a priority, and one that was taken back, run ahead of what was published",
    () =>
      Effect.gen(function*() {
        const { completed, states, store, submit } = yield* manned(1)
        const backlog = yield* submit("short", 300)
        yield* eventually("some are done", Effect.map(states(backlog), (all) => all.includes("completed")))
        const [urgent] = yield* submit("fast", 1, { priority: 10 })
        yield* eventually("the urgent one is done", completed([urgent!]))
        assert.include(yield* states(backlog), "pending")
        const [retried] = yield* submit("fast", 1, { runAtMs: (yield* Effect.orDie(store.now)) + 60_000, priority: 1 })
        yield* Effect.orDie(store.retry(retried!))
        yield* eventually("the retried one is done", completed([retried!]))
        assert.include(yield* states(backlog), "pending")
      }).pipe(Effect.scoped),
    180_000
  )

  it.live(
    "offsets that somebody has set, to the beginning or behind the end, lose nothing and run nothing twice",
    () =>
      Effect.gen(function*() {
        const system = yield* manned()
        const { admin, completed, group, handlers, lag, once, submit, theWorker, topic, worker } = system
        const ids = [...(yield* submit("fast", 60))]
        yield* eventually("the first are done", completed(ids), "60 seconds")
        let last = theWorker
        for (const offset of ["0", "1000000000"]) {
          yield* last.stop
          const partitions = Array.from({ length: 6 }, (_, partition) => ({ partition, offset }))
          yield* admin((admin) => admin.setOffsets({ groupId: group, topic, partitions }))
          ids.push(...(yield* submit("fast", 20)))
          last = yield* worker(handlers, { slots: 4 })
          yield* eventually("all are done", completed(ids), "60 seconds")
          yield* eventually("all of it is committed", Effect.map(lag, (lag) => lag === 0), "60 seconds")
        }
        assert.isTrue(once(ids))
      }).pipe(Effect.scoped),
    180_000
  )

  it.live("a topic that is deleted is made again, while its jobs run", () =>
    Effect.gen(function*() {
      const { admin, completed, lag, offsets, submit, theWorker, topic, transport } = yield* manned()
      const before = yield* submit("fast", 20)
      yield* eventually("the first are done", completed(before), "60 seconds")
      yield* admin((admin) => admin.deleteTopics({ topics: [topic] }))
      const during = yield* submit("fast", 20)
      yield* eventually("those published meanwhile are done", completed(during), "60 seconds")
      yield* eventually(
        "the topic is there again",
        Effect.map(admin((admin) => admin.listTopics()), (topics) => topics.includes(topic)),
        "60 seconds"
      )
      yield* eventually("the worker is well", Effect.map(theWorker.reasons, ({ length }) => length === 0), "60 seconds")
      const unknown = { id: crypto.randomUUID() as JobId, type: JobType.make("fast"), queue: queueDefault }
      yield* eventually("ids are taken again", Effect.map(Effect.exit(transport.publish([unknown])), Exit.isSuccess))
      const after = yield* submit("fast", 60)
      yield* eventually("the later ones are done", completed(after), "60 seconds")
      yield* eventually(
        "they came by the topic",
        Effect.map(Effect.all([lag, offsets]), ([lag, all]) => lag === 0 && all.some((offset) => offset > 0)),
        "60 seconds"
      )
    }).pipe(Effect.scoped), 180_000)

  it.live("a worker without a partition has work within 2 s while another is full", () =>
    Effect.gen(function*() {
      const brokers = yield* TestServers.kafkaBrokers
      const prefix = `one${process.pid}.`
      const probe = yield* Stage.make(brokers)
      yield* probe.admin((admin) =>
        admin.createTopics({ topics: [{ topic: `${prefix}jobs.ready`, numPartitions: 1 }] })
      )
      const system = yield* stage(prefix)
      const { handlers } = probes()
      const full = yield* system.worker(handlers, { slots: 2 })
      yield* eventually("it is well", Effect.map(full.reasons, ({ length }) => length === 0), "60 seconds")
      const slow = yield* system.submit("slow", 2)
      yield* eventually("it is full", Effect.map(system.states(slow), (all) => all.every((s) => s === "running")))
      const idle = yield* system.worker(handlers, { slots: 2 })
      yield* eventually("both are well", Effect.map(idle.reasons, ({ length }) => length === 0), "60 seconds")
      const fast = yield* system.submit("fast", 2)
      yield* eventually("the fast ones are done", system.completed(fast))
      for (const { createdAtMs, startedAtMs } of yield* Effect.orDie(system.store.get(fast))) {
        assert.isBelow(startedAtMs! - createdAtMs, 2_000)
      }
    }).pipe(Effect.scoped), 180_000)

  it.live("twelve workers on six partitions all have work", () =>
    Effect.gen(function*() {
      const { completed, store, submit, worker } = yield* stage()
      const { handlers, once } = probes()
      yield* Effect.forEach(Array.from({ length: 12 }), () => worker(handlers, { slots: 1 }), { concurrency: 4 })
      const ids = yield* submit("medium", 240)
      yield* eventually("all are done", completed(ids), "60 seconds")
      assert.isTrue(once(ids))
      const workers = new Set((yield* Effect.orDie(store.get(ids))).map((job) => job.worker))
      assert.strictEqual(workers.size, 12)
    }).pipe(Effect.scoped), 180_000)

  it.live(
    "full workers that come and go run no more than they have slots, and leave nothing behind",
    () =>
      Effect.gen(function*() {
        const { completed, lag, submit, worker } = yield* stage()
        const seen = Array.from({ length: 5 }, probes)
        const start = (n: number) => worker(seen[n]!.handlers, { slots: 2 })
        const first = yield* start(0)
        const ids = yield* submit("short", 1_500)
        const second = yield* start(1)
        yield* Effect.sleep("1500 millis")
        yield* first.stop
        yield* start(2)
        yield* Effect.sleep("1500 millis")
        yield* second.stop
        yield* start(3)
        yield* eventually("all are done", completed(ids), "60 seconds")
        assert.isTrue(seen.every(({ runningMax }) => runningMax() <= 2))
        assert.isTrue(ids.every((id) => seen.reduce((sum, { runs }) => sum + runs(id), 0) <= 2))
        yield* eventually("nothing is left to commit", Effect.map(lag, (lag) => lag === 0), "60 seconds")
      }).pipe(Effect.scoped),
    180_000
  )
})
