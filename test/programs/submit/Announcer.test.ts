/** What is said of stored jobs: when, how many at once, and what a transport that hangs may cost. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Layer, Scope } from "effect"
import { TestClock } from "effect/testing"
import { JobType, queueDefault } from "../../../src/domain/Job.ts"
import { DelayedJobs } from "../../../src/ports/DelayedJobs.ts"
import { Transport } from "../../../src/ports/Transport.ts"
import * as Announcer from "../../../src/programs/submit/Announcer.ts"
import * as Ids from "../../support/Ids.ts"

const unused = Effect.die("not asked for")

/** What was said, by rounds; `hint` is what a round then waits for. */
const stage = (hints: { readonly publish?: Effect.Effect<void>; readonly schedule?: Effect.Effect<void> } = {}) => {
  const published: Array<number> = []
  const scheduled: Array<number> = []
  const transport = Layer.succeed(Transport, {
    publish: (jobs) =>
      Effect.suspend(() => {
        published.push(jobs.length)
        return hints.publish ?? Effect.void
      }),
    wake: () => unused,
    subscribe: () => unused,
    awaits: () => unused,
    announceDead: () => unused
  })
  const delayed = Layer.succeed(DelayedJobs, {
    horizonMs: 60_000,
    schedule: (jobs) =>
      Effect.suspend(() => {
        scheduled.push(jobs.length)
        return hints.schedule ?? Effect.void
      }),
    due: () => unused,
    filled: () => unused,
    forget: () => unused
  })
  return { published, scheduled, layer: Layer.merge(transport, delayed) }
}

const jobs = (count: number, inMs = 0) => () =>
  Array.from({ length: count }, () => ({
    id: Ids.jobId(),
    type: JobType.make("t"),
    queue: queueDefault,
    ordered: false,
    createdAtMs: 1_000,
    runAtMs: 1_000 + inMs
  }))

/** Fibers that were woken get to where they wait. */
const settle = Effect.repeat(Effect.yieldNow, { times: 20 })

it.effect("one job after another is said at once, by itself, and to whom it is for", () =>
  Effect.gen(function*() {
    const { layer, published, scheduled } = stage()
    const announce = yield* Effect.provide(Announcer.make, layer)
    for (const inMs of [0, 0, 500, 60_000, 60_001]) {
      announce(jobs(1, inMs), false)
      yield* settle
    }
    announce(jobs(1), true)
    yield* settle
    assert.deepStrictEqual([published, scheduled], [[1, 1], [1, 1]], "what the store has said is not said again")
  }))

it.effect("what comes during a round is said together in the next one, a thousand at most", () =>
  Effect.gen(function*() {
    const gate = yield* Deferred.make<void>()
    const { layer, published } = stage({ publish: Deferred.await(gate) })
    const announce = yield* Effect.provide(Announcer.make, layer)
    for (let n = 0; n < 3; n++) {
      announce(jobs(1), false)
      yield* settle
    }
    announce(jobs(1_500), false)
    yield* settle
    assert.deepStrictEqual(published, [1])
    yield* Deferred.succeed(gate, undefined)
    yield* settle
    assert.deepStrictEqual(published, [1, 1_000])
    yield* TestClock.adjust(5)
    assert.deepStrictEqual(published, [1, 1_000, 502])
  }))

it.effect("the more a round had, the longer the next one waits for company", () =>
  Effect.gen(function*() {
    for (const [count, gapMs] of [[15, 0], [32, 2], [1_000, 5]] as const) {
      const { layer, published } = stage()
      yield* Effect.scoped(Effect.gen(function*() {
        const announce = yield* Effect.provide(Announcer.make, layer)
        announce(jobs(count), false)
        yield* settle
        announce(jobs(1), false)
        yield* settle
        if (gapMs > 0) {
          yield* TestClock.adjust(gapMs - 1)
          assert.deepStrictEqual(published, [count])
          yield* TestClock.adjust(1)
        }
        assert.deepStrictEqual(published, [count, 1])
      }))
    }
  }))

it.effect("a hint that hangs is given up, holds up none of the other kind, and what waits behind it is bounded", () =>
  Effect.gen(function*() {
    const { layer, published, scheduled } = stage({ publish: Effect.never })
    const announce = yield* Effect.provide(Announcer.make, layer)
    announce(jobs(1), false)
    yield* settle
    for (let n = 0; n < 30; n++) {
      announce(jobs(1_000), false)
      announce(jobs(1, 500), false)
      yield* settle
    }
    assert.deepStrictEqual([published, scheduled.length], [[1], 30])
    for (let round = 0; round < 30; round++) {
      yield* TestClock.adjust(5_010)
    }
    assert.deepStrictEqual(published, [1, ...Array.from({ length: 20 }, () => 1_000)])
  }))

it.effect("a hint that breaks is the end of its round, and of no other", () =>
  Effect.gen(function*() {
    const { layer, published, scheduled } = stage({ publish: Effect.die("broken"), schedule: Effect.die("broken") })
    const announce = yield* Effect.provide(Announcer.make, layer)
    for (let n = 0; n < 3; n++) {
      announce(jobs(1), false)
      announce(jobs(1, 500), false)
      yield* settle
    }
    assert.deepStrictEqual([published, scheduled], [[1, 1, 1], [1, 1, 1]])
  }))

it.effect("what waits at the end is said, as long as that takes no second", () =>
  Effect.gen(function*() {
    for (const [publish, said] of [[Effect.void, [500, 1_000, 200]], [Effect.never, [500, 1_000]]] as const) {
      const { layer, published } = stage({ publish })
      const scope = yield* Scope.make()
      const announce = yield* Announcer.make.pipe(Effect.provide(layer), Scope.provide(scope))
      announce(jobs(500), false)
      yield* settle
      announce(jobs(1_200), false)
      const closing = yield* Effect.forkChild(Scope.close(scope, Exit.void), { startImmediately: true })
      yield* TestClock.adjust(1_000)
      assert.isNotNull(closing.pollUnsafe())
      assert.deepStrictEqual(published, [...said])
    }
  }))
