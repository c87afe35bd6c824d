/**
 * What a job costs Postgres at load, in statements, commits and bytes of WAL. A round trip per job turns these red.
 *
 * Buffers of an empty claim, and that every settle is a HOT update: `test/adapters/postgres/JobStorePlans.test.ts`.
 */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as Counting from "./Counting.ts"

const perJobMax = 0.02

it.layer(Counting.layer, { excludeTestServices: true, timeout: "2 minutes" })("a job at load", (it) => {
  it.effect(
    "costs Postgres a fiftieth of a statement and of a commit for each of submit, claim and settle",
    () =>
      Effect.gen(function*() {
        const counter = yield* Counting.Counter
        // The first flush of a type makes its route.
        yield* Counting.submit(1, 1)
        const empty = { ...counter }
        const before = yield* Counting.written
        const jobs = yield* Counting.submit(256, 40)
        const stored = { ...counter }
        const between = yield* Counting.written
        yield* Counting.work()
        const after = yield* Counting.written

        const atMost = (n: number, what: string) =>
          assert.isAtMost(n / jobs, perJobMax, `${what}: ${n} for ${jobs} jobs. What is sent once per job?`)
        atMost(stored.submit - empty.submit, "statements that store")
        atMost(stored.other - empty.other, "statements beside those that store")
        atMost(between.commits - before.commits, "commits of submits")
        atMost(counter.claim - stored.claim, "claims")
        atMost(counter.settle - stored.settle, "settles")
        atMost(counter.other - stored.other, "statements beside claims and settles")
        atMost(after.commits - between.commits, "commits of a worker")
        // So that the counts above are of what they say.
        assert.isAbove(stored.submit - empty.submit, 0)
        assert.isAbove(counter.claim - stored.claim, 0)
        assert.isAbove(counter.settle - stored.settle, 0)

        // Two narrow rows and their index entries, and two updates of the narrower one.
        assert.isAtMost((between.wal - before.wal) / jobs, 750, "bytes of WAL to store a job")
        assert.isAtMost((after.wal - between.wal) / jobs, 750, "bytes of WAL to run a job")
      }).pipe(Effect.provide(Layer.provideMerge(Counting.ports(), Counting.postgresPorts))),
    180_000
  )

  it.effect("costs an idle worker no claim, and little more than a statement a second", () =>
    Effect.gen(function*() {
      const counter = yield* Counting.Counter
      yield* Counting.submit(1, 1)
      const seconds = 6
      const sent = yield* Counting.idle(seconds)
      assert.strictEqual(sent.submit + sent.claim + sent.settle, 0, "statements that claim")
      // A look about once a second, the limits of queues every five, and who it is every fifteen.
      assert.isAtMost(sent.other, Math.ceil(sent.seconds / 0.75) + 5, "statements of an idle worker")
      assert.isAtLeast(sent.other, seconds / 1.25 - 1)
      assert.isAbove(counter.claim, 0)
    }).pipe(Effect.provide(Layer.provideMerge(Counting.ports(), Counting.postgresPorts))))

  it.effect("in a batch of a thousand costs a thousandth of a statement", () =>
    Effect.gen(function*() {
      const counter = yield* Counting.Counter
      yield* Counting.submit(1, 1)
      const before = { ...counter }
      yield* Counting.submitAll(1_000)
      assert.strictEqual(counter.submit - before.submit, 1, "statements that store")
      assert.strictEqual(counter.other - before.other, 0, "statements beside the one that stores")
    }).pipe(Effect.provide(Layer.provideMerge(Counting.ports(), Counting.postgresPorts))))
})
