import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import { JobStore } from "../../../src/ports/JobStore.ts"
import * as Expirer from "../../../src/programs/keeper/Expirer.ts"
import * as Loops from "../../../src/programs/process/Loops.ts"
import * as Meters from "../../../src/programs/process/Meters.ts"
import * as Stage from "./Stage.ts"

it.effect("what was not started in time is dead within a poll, counted, and to be announced; the rest is left alone", () =>
  Effect.gen(function*() {
    const store = yield* JobStore
    const now = yield* store.now
    const late = Stage.newJob({ startByMs: now + 30_000 })
    const later = Stage.newJob({ startByMs: now + 3_600_000 })
    const plain = Stage.newJob()
    yield* store.submit([late, later, plain], { atomic: false })
    const { dead } = yield* Meters.read
    const running = yield* Effect.forkChild(Expirer.run)
    const state = ({ id }: { readonly id: typeof late.id }) => Effect.map(Stage.stateOf(id), (job) => job?.state)

    yield* TestClock.adjust("29 seconds")
    assert.strictEqual(yield* state(late), "pending")
    for (let n = 0; n < 12; n++) {
      yield* TestClock.adjust("100 millis")
    }

    assert.deepStrictEqual([yield* state(late), yield* state(later), yield* state(plain)], [
      "dead",
      "pending",
      "pending"
    ])
    assert.strictEqual((yield* Stage.stateOf(late.id))?.reason, "expired")
    assert.deepStrictEqual((yield* store.deadLetters(10)).map(({ id, reason }) => [id, reason]), [[late.id, "expired"]])
    assert.strictEqual((yield* Meters.read).dead - dead, 1)
    yield* Fiber.interrupt(running)
  }).pipe(Effect.provide(Layer.mergeAll(Stage.memory, Loops.layer))))
