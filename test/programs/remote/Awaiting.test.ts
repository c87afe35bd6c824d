/** What is said of those who wait, to those who publish. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import * as TransportMemory from "../../../src/adapters/memory/TransportMemory.ts"
import { JobType } from "../../../src/domain/Job.ts"
import { awaitedMs, Transport, TransportUnavailable } from "../../../src/ports/Transport.ts"
import * as Awaiting from "../../../src/programs/remote/Awaiting.ts"
import { eventually } from "../../support/Eventually.ts"

const [a, b, c] = [JobType.make("a"), JobType.make("b"), JobType.make("c")]

const world = Effect.gen(function*() {
  const transport = Context.get(yield* Layer.build(TransportMemory.layer), Transport)
  const said: Array<ReadonlyArray<JobType>> = []
  const state = { nowMs: 0, away: false }
  const awaiting = Awaiting.make({
    now: () => state.nowMs,
    transport: {
      ...transport,
      awaits: (types) =>
        Effect.suspend(() => {
          said.push(types)
          return state.away ? new TransportUnavailable({ operation: "awaits", cause: "away" }) : Effect.void
        })
    }
  })
  yield* Effect.forkScoped(awaiting.run)
  const until = (times: number) => eventually(`said ${times} times`, Effect.sync(() => said.length === times))
  return { said, state, waits: awaiting.waits, until }
})

it.live("a type is said at once, together with others, and again only after a while", () =>
  Effect.gen(function*() {
    const { said, state, until, waits } = yield* world
    waits([a, b])
    waits([b])
    yield* until(1)
    waits([a])
    state.nowMs = awaitedMs / 3 - 1
    waits([a, b, c])
    yield* until(2)
    state.nowMs = awaitedMs / 3
    waits([a, c])
    yield* until(3)
    assert.deepStrictEqual(said, [[a, b], [c], [a]])
  }).pipe(Effect.scoped))

it.live("what could not be said is said again", () =>
  Effect.gen(function*() {
    const { said, state, until, waits } = yield* world
    state.away = true
    waits([a])
    yield* until(1)
    state.away = false
    yield* eventually(
      "said again",
      Effect.sync(() => {
        waits([a])
        return said.length === 2
      })
    )
    waits([a])
    waits([b])
    yield* until(3)
    assert.deepStrictEqual(said, [[a], [a], [b]])
  }).pipe(Effect.scoped))
