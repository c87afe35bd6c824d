/** What a worker does about queues that are paused or have a limit. */
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect } from "effect"
import { JobType, Queue } from "../../../src/domain/Job.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import type { ClaimRequest, JobStore } from "../../../src/ports/JobStore.ts"
import type { HandlerJob } from "../../../src/programs/worker/HandlerApi.ts"
import * as Jobs from "../../support/Jobs.ts"
import { make, pass, settle, type World } from "../../support/WorkerWorld.ts"

const limited = Queue.make("limited")
const free = Queue.make("free")
const both = new Set(["claim", "claimIds"])

/** Handlers that run for `ms`, and how many of them at once, by queue. */
const probes = (ms: number | null) => {
  const running = new Map<string, number>()
  const most = new Map<string, number>()
  const order: Array<string> = []
  const work = (job: HandlerJob) =>
    Effect.sync(() => {
      const queue = String(job.payload)
      const n = (running.get(queue) ?? 0) + 1
      running.set(queue, n)
      most.set(queue, Math.max(most.get(queue) ?? 0, n))
      order.push(job.id)
    }).pipe(
      Effect.andThen(ms === null ? Effect.never : Effect.sleep(ms)),
      Effect.ensuring(Effect.sync(() => running.set(String(job.payload), (running.get(String(job.payload)) ?? 1) - 1)))
    )
  return {
    handlers: { work },
    order,
    most: (queue: Queue) => most.get(queue) ?? 0,
    running: (queue: Queue) => running.get(queue) ?? 0
  }
}

const submit = (world: World, queue: Queue, count: number, change: { readonly priority?: number } = {}) =>
  Effect.forEach(
    Array.from({ length: count }),
    () => world.submit("work", { queue, payload: JSON.stringify(queue), ...change })
  )

/** All of them told by one wake. */
const together = Effect.fnUntraced(function*(world: World, queue: Queue, count: number) {
  const jobs = yield* Jobs.jobs(count, { type: JobType.make("work"), queue, payload: JSON.stringify(queue) })
  yield* world.store.submit(jobs, { atomic: false })
  yield* world.transport.wake([{ _tag: "Ready" }])
  return jobs.map(({ id }) => id)
})

/** A millisecond apart, so that which is first does not depend on ids. */
const apart = (world: World, queue: Queue, count: number, priority = 0) =>
  Effect.map(
    Effect.forEach(
      Array.from({ length: count }),
      () => Effect.tap(submit(world, queue, 1, { priority }), () => pass(1, 1))
    ),
    (ids) => ids.flat()
  )

const states = (world: World, ids: ReadonlyArray<JobId>) =>
  Effect.map(Effect.forEach(ids, world.job), (jobs) => jobs.map(({ state }) => state))

const count = (all: ReadonlyArray<string>, state: string) => all.filter((one) => one === state).length

/** The most rows of a queue that were running at once, looked at after each claim. */
const watched = (queue: Queue) => {
  let most = 0
  const look = (store: JobStore["Service"]) =>
    Effect.map(store.list({ queue, state: "running", limit: 500, offset: 0 }), ({ jobs }) => {
      most = Math.max(most, jobs.length)
    })
  const watch = (store: JobStore["Service"]): JobStore["Service"] => ({
    ...store,
    claim: (request) => Effect.tap(store.claim(request), () => look(store)),
    claimIds: (request) => Effect.tap(store.claimIds(request), () => look(store))
  })
  return { watch, most: () => most }
}

describe("queues with a limit", () => {
  for (const delivering of [false, true]) {
    const how = delivering ? "by messages" : "by wakes"

    it.effect(`no more run, nor are claimed, than the limit allows, and others use the slots, ${how}`, () =>
      Effect.gen(function*() {
        const rows = watched(limited)
        const world = yield* make({ delivering, store: rows.watch })
        yield* world.queues.put(limited, { concurrency: 2 })
        const seen = probes(40)
        const held = yield* submit(world, limited, 30)
        yield* world.start(seen.handlers, { slots: 8 })
        const others = yield* submit(world, free, 60)
        yield* pass(700, 10)

        assert.strictEqual(seen.most(limited), 2)
        assert.strictEqual(rows.most(), 2)
        assert.isAtLeast(seen.most(free), 6)
        assert.strictEqual(count(yield* states(world, others), "completed"), 60)
        // A slot of the queue is not left empty for longer than a claim takes.
        assert.isAtLeast(count(yield* states(world, held), "completed"), 20)
        yield* pass(400, 10)
        assert.strictEqual(count(yield* states(world, held), "completed"), 30)
        assert.strictEqual(rows.most(), 2)
      }))
  }

  it.effect("a queue that is full does not stop others, whatever waits in it", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.queues.put(limited, { concurrency: 1 })
      const seen = probes(null)
      yield* submit(world, limited, 50)
      yield* submit(world, free, 3)
      yield* world.start(seen.handlers, { slots: 4 })
      yield* pass(200)
      assert.strictEqual(seen.running(limited), 1)
      assert.strictEqual(seen.running(free), 3)
      assert.strictEqual((yield* world.store.counts).byState.running, 4)
    }))

  it.effect("an idle queue with a limit costs no more claims than another", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.queues.put(limited, { concurrency: 1 })
      yield* submit(world, limited, 5)
      yield* world.start(probes(null).handlers, { slots: 4 })
      yield* pass(10_000)
      assert.isAtMost(world.calls.filter(({ operation }) => operation === "claim").length, 15)
    }))

  it.effect("while there is room to spare the end of a job brings no claim", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.queues.put(limited, { concurrency: 10 })
      yield* world.start(probes(20).handlers, { slots: 20 })
      yield* pass(100)
      const before = world.calls.length
      for (let n = 0; n < 20; n++) {
        yield* submit(world, limited, 1)
        yield* pass(100, 10)
      }
      const claims = world.calls.slice(before).filter(({ operation }) => operation === "claim").length
      // One for each wake, and some that nobody asked for.
      assert.isAtLeast(claims, 20)
      assert.isAtMost(claims, 26)
    }))

  it.effect("a limit that comes while jobs wait for a slot hands back those it does not let start", () =>
    Effect.gen(function*() {
      const world = yield* make()
      const seen = probes(20)
      const ids = yield* submit(world, limited, 400)
      yield* world.start(seen.handlers, { slots: 4 })
      yield* pass(300, 10)
      assert.isAbove((yield* world.store.counts).byState.running, 20)
      yield* world.queues.put(limited, { concurrency: 1 })
      yield* world.transport.wake([{ _tag: "Queues" }])
      yield* pass(60, 5)
      for (let n = 0; n < 10; n++) {
        assert.isAtMost(seen.running(limited), 1)
        assert.isAtMost((yield* world.store.counts).byState.running, 1)
        yield* pass(10, 5)
      }
      assert.isTrue(
        (yield* Effect.forEach(ids, world.job)).every(({ attempts, events }) => attempts + events.length === 0)
      )
    }))

  it.effect("a limit that is raised, lowered or taken away holds from the wake on, and without one within seconds", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.queues.put(limited, { concurrency: 1 })
      const seen = probes(200)
      yield* submit(world, limited, 500)
      yield* world.start(seen.handlers, { slots: 10 })
      yield* pass(100)
      assert.strictEqual(seen.running(limited), 1)
      yield* world.queues.put(limited, { concurrency: 4 })
      yield* world.transport.wake([{ _tag: "Queues" }])
      yield* pass(50)
      assert.strictEqual(seen.running(limited), 4)
      yield* world.queues.put(limited, { concurrency: 2 })
      yield* world.transport.wake([{ _tag: "Queues" }])
      yield* pass(400)
      assert.isAtMost(seen.running(limited), 2)
      yield* world.queues.put(limited, { concurrency: null })
      yield* pass(7_000)
      assert.strictEqual(seen.running(limited), 10)
      yield* world.queues.put(limited, { concurrency: 3 })
      yield* pass(7_000)
      assert.isAtMost(seen.running(limited), 3)
    }))

  it.effect("a limit that comes while its jobs are being claimed hands back what may not start", () =>
    Effect.gen(function*() {
      let slow = 0
      const world = yield* make({
        store: (store) => ({ ...store, claim: (request) => Effect.delay(store.claim(request), slow) })
      })
      const seen = probes(null)
      slow = 300
      const ids = yield* submit(world, limited, 6)
      yield* world.start(seen.handlers, { slots: 6 })
      yield* pass(100)
      yield* world.queues.put(limited, { concurrency: 2 })
      yield* world.transport.wake([{ _tag: "Queues" }])
      yield* pass(500)
      assert.strictEqual(seen.most(limited), 2)
      const all = yield* Effect.forEach(ids, world.job)
      assert.deepStrictEqual(all.map(({ state }) => state).toSorted(), [
        ...Array.from({ length: 4 }, () => "pending"),
        ...Array.from({ length: 2 }, () => "running")
      ])
      assert.isTrue(all.every((job) => job.attempts + job.leaseLosses + job.events.length === 0))
    }))

  it.effect("until the limits were read nothing is claimed, and while they cannot be read the last ones hold", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.queues.put(limited, { concurrency: 1 })
      const seen = probes(100)
      const ids = yield* submit(world, limited, 40)
      world.faults.set("limits", "away")
      yield* world.start(seen.handlers, { slots: 4 })
      yield* pass(3_000)
      assert.lengthOf(world.calls.filter(({ operation }) => both.has(operation)), 0)
      assert.strictEqual(count(yield* states(world, ids), "pending"), 40)
      world.faults.clear()
      yield* pass(3_000)
      world.faults.set("limits", "away")
      yield* pass(10_000)
      assert.strictEqual(count(yield* states(world, ids), "completed"), 40)
      assert.strictEqual(seen.most(limited), 1)
    }))

  it.effect("they are read every five seconds, more rarely while all is calm, and at once when wakes stop to arrive", () =>
    Effect.gen(function*() {
      let well = true
      const world = yield* make({
        transport: (transport) => ({
          ...transport,
          subscribe: (how) =>
            Effect.map(transport.subscribe(how), (subscription) => ({
              ...subscription,
              healthy: Effect.sync(() => well)
            }))
        })
      })
      const reads = () => world.calls.filter(({ operation }) => operation === "limits")
      yield* world.start({ work: () => undefined })
      yield* pass(30_000)
      const early = reads().length
      yield* pass(100_000)
      assert.strictEqual(reads().length - early, 5)
      yield* world.transport.wake([{ _tag: "Queues" }])
      yield* settle
      assert.strictEqual(reads().length - early, 6)
      well = false
      // Health is looked at every five seconds.
      yield* pass(6_000)
      assert.isAtLeast(reads().length - early, 7)
      const deaf = reads().length
      yield* pass(30_000)
      assert.approximately(reads().length - deaf, 6, 1)
    }))

  it.effect("a job that ends while the next one of its queue is claimed leaves its place to a third", () =>
    Effect.gen(function*() {
      let slow = 0
      const world = yield* make({
        store: (store) => ({ ...store, claim: (request) => Effect.delay(store.claim(request), slow) })
      })
      yield* world.queues.put(limited, { concurrency: 2 })
      const ends: Array<() => void> = []
      // Nothing is found by looking: what is claimed was told.
      yield* world.start({ work: () => new Promise<void>((resolve) => ends.push(resolve)) }, {
        slots: 8,
        poll: Duration.minutes(10)
      })
      yield* pass(100)
      yield* submit(world, limited, 1)
      yield* pass(100, 10)
      assert.lengthOf(ends, 1)
      slow = 200
      const ids = yield* together(world, limited, 2)
      yield* pass(100, 10)
      ends[0]!()
      yield* pass(1_000, 10)
      assert.deepStrictEqual(yield* states(world, ids), ["running", "running"])
      ends.forEach((end) => end())
      yield* settle
    }))

  it.effect("a job whose claim is over before its handler has begun leaves its place in the limit at once", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.queues.put(limited, { concurrency: 1 })
      let runs = 0
      yield* world.start({
        work: () => {
          runs += 1
          throw Object.assign(new Error("the claim is not current"), { code: "DM001" })
        }
      }, { slots: 8, poll: Duration.minutes(10) })
      yield* pass(100)
      yield* together(world, limited, 3)
      yield* pass(300, 10)
      assert.strictEqual(runs, 3)
    }))

  it.effect("a handler that runs on after its interruption keeps its place in the limit", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.queues.put(limited, { concurrency: 1 })
      let running = 0
      let most = 0
      let release = () => {}
      const deaf = () => {
        running += 1
        most = Math.max(most, running)
        return new Promise<void>((resolve) => {
          release = () => {
            running -= 1
            resolve()
          }
        })
      }
      const [first] = yield* submit(world, limited, 1)
      // Nothing is found by looking: what is claimed was told.
      const pool = yield* world.start({ work: deaf }, { slots: 2, poll: Duration.minutes(10) })
      yield* pass(100)
      const [second] = yield* submit(world, limited, 1)
      yield* world.store.cancel(first!)
      // Its worker has learnt of it, and has given up waiting for its end.
      yield* pass(8_000)
      assert.strictEqual((yield* world.job(first!)).state, "dead")
      assert.strictEqual(yield* pool.service.runaways, 1)
      assert.strictEqual((yield* world.job(second!)).state, "pending")
      release()
      yield* pass(200)
      assert.strictEqual((yield* world.job(second!)).state, "running")
      assert.strictEqual(most, 1)
      release()
      yield* settle
    }))

  it.effect("a claim whose answer was lost counts what it took", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.queues.put(limited, { concurrency: 2 })
      const seen = probes(100)
      const ids = yield* submit(world, limited, 10)
      world.faults.set("claim", "lost")
      yield* world.start(seen.handlers, { slots: 6 })
      yield* pass(500)
      world.faults.clear()
      yield* pass(4_000)
      assert.strictEqual(seen.most(limited), 2)
      assert.strictEqual(count(yield* states(world, ids), "completed"), 10)
    }))
})

describe("queues that are paused", () => {
  for (const delivering of [false, true]) {
    const how = delivering ? "by messages" : "by wakes"

    it.effect(`nothing of them starts until they are resumed, and then all of it, ${how}`, () =>
      Effect.gen(function*() {
        const world = yield* make({ delivering })
        const seen = probes(20)
        yield* world.start(seen.handlers, { slots: 4 })
        yield* pass(100)
        yield* world.queues.put(limited, { paused: true })
        const held = yield* submit(world, limited, 20)
        const others = yield* submit(world, free, 20)
        yield* pass(5_000)
        assert.strictEqual(count(yield* states(world, others), "completed"), 20)
        assert.strictEqual(count(yield* states(world, held), "pending"), 20)
        yield* world.queues.put(limited, { paused: false })
        yield* world.transport.wake([{ _tag: "Queues" }, { _tag: "Ready" }])
        yield* pass(500, 10)
        assert.strictEqual(count(yield* states(world, held), "completed"), 20)
        assert.isTrue((yield* Effect.forEach(held, world.job)).every(({ deliveries }) => deliveries === 1))
      }))
  }
})

describe("order where messages name jobs", () => {
  it.effect("a message about a job with a priority only wakes: the jobs before it go first", () =>
    Effect.gen(function*() {
      const world = yield* make({ delivering: true })
      const seen = probes(30)
      yield* world.queues.put(free, { paused: true })
      const low = yield* apart(world, free, 1, -1)
      const plain = yield* apart(world, free, 3)
      const high = yield* apart(world, free, 1, 1)
      yield* world.queues.put(free, { paused: false })
      yield* world.start(seen.handlers, { slots: 1 })
      yield* pass(2_000, 10)
      assert.deepStrictEqual(seen.order, [...high, ...plain, ...low])
      const byId = world.calls.filter(({ operation }) => operation === "claimIds")
        .map((call) => call.arguments[0] as ClaimRequest)
      assert.isAbove(byId.length, 0)
    }))

  it.effect("in a queue with a step of its own messages only wake, so that its order is exact", () =>
    Effect.gen(function*() {
      const world = yield* make({
        delivering: true,
        // The wake that a priority brings is lost.
        transport: (transport) => ({
          ...transport,
          publish: (jobs) => transport.publish(jobs.map(({ id, queue, type }) => ({ id, queue, type })))
        })
      })
      yield* world.queues.put(free, { stepMs: 100_000_000_000 })
      const seen = probes(30)
      yield* world.start(seen.handlers, { slots: 1 })
      yield* pass(100)
      const first = yield* submit(world, free, 1)
      yield* pass(10, 10)
      const plain = yield* apart(world, free, 5)
      const high = yield* apart(world, free, 3, 5)
      yield* pass(3_000, 10)
      assert.deepStrictEqual(seen.order, [...first, ...high, ...plain])
    }))
})
