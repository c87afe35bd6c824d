/** What a worker says of itself to people: how often, and how soon after a change. */
import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect } from "effect"
import * as Rhythm from "../../../src/ports/Rhythm.ts"
import { SessionsUnavailable } from "../../../src/ports/Sessions.ts"
import * as Reports from "../../../src/programs/worker/Reports.ts"
import * as Signal from "../../../src/programs/worker/Signal.ts"
import { make, pass } from "../../support/WorkerWorld.ts"

/** More than it takes until a worker that hears of nothing looks around less often. */
const untilCalmMs = 15_000

describe("reports", () => {
  it.effect("of an idle worker come every ten seconds or so, and a row of fifteen is of one that is gone", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.start({ work: () => Effect.void })
      yield* pass(untilCalmMs)
      const seen = new Set<number>()
      for (let second = 0; second < 120; second++) {
        yield* pass(1_000, 250)
        const [session] = yield* world.sessions.list(60_000)
        seen.add(session!.seenAtMs)
      }
      const times = [...seen]
      const gaps = times.slice(1).map((at, index) => at - times[index]!)
      assert.isAtLeast(gaps.length, 9)
      assert.isAtMost(Math.max(...gaps), 12_500)
      assert.isAtLeast(Math.min(...gaps), 7_500)
    }))

  it.effect("tell within three seconds what a worker runs that was idle, whenever it comes", () =>
    Effect.gen(function*() {
      const world = yield* make()
      yield* world.start({ work: () => Effect.sleep("4 seconds") })
      for (let offset = 0; offset < 5; offset++) {
        yield* pass(untilCalmMs + offset * 1_000)
        yield* world.submit("work")
        yield* pass(3_000)
        const [during] = yield* world.sessions.list(60_000)
        assert.strictEqual(during!.running, 1, `${offset} s later`)
        yield* pass(4_000)
        const [after] = yield* world.sessions.list(60_000)
        assert.strictEqual(after!.running, 0)
      }
    }))

  it.effect("that fail are made again soon, also by a worker that runs nothing", () =>
    Effect.gen(function*() {
      const { sessions } = yield* make()
      const clock = yield* Clock.Clock
      const now = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
      const askedMs: Array<number> = []
      const session = {
        name: "idle",
        role: "worker" as const,
        version: "1",
        handlers: [],
        slots: 1,
        running: 0,
        runaways: 0,
        draining: false,
        counters: {}
      }
      const report = () =>
        Effect.suspend(() => {
          askedMs.push(now())
          return askedMs.length === 2
            ? Effect.fail(new SessionsUnavailable({ operation: "report", cause: new Error("fault") }))
            : Effect.void
        })
      yield* Effect.forkChild(Reports.run({
        sessions: { ...sessions, report },
        session: Effect.succeed(session),
        stamp: () => "the same",
        quiet: () => true,
        stirred: Signal.make(),
        now,
        rhythm: Rhythm.make(0, now)
      }))
      yield* pass(20_000)
      assert.isAtLeast(askedMs.length, 3)
      assert.isAtMost(askedMs[2]! - askedMs[1]!, 3_200)
    }))
})
