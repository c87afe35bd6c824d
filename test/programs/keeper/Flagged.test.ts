import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { JobStore } from "../../../src/ports/JobStore.ts"
import * as Flagged from "../../../src/programs/process/Flagged.ts"
import * as Meters from "../../../src/programs/process/Meters.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Stage from "./Stage.ts"

const stage = Layer.provideMerge(Flagged.layer, Stage.memory)

it.effect("a cancel of a running job makes the next renewal of its lease answer check", () =>
  Effect.gen(function*() {
    const { id, lease } = yield* Stage.claimed
    assert.deepStrictEqual(yield* Stage.renew(lease), ["held"])
    const before = (yield* Meters.read).dead
    yield* (yield* JobStore).cancel(id)
    assert.strictEqual((yield* Meters.read).dead, before + 1)
    yield* (yield* JobStore).cancel(id)
    assert.strictEqual((yield* Meters.read).dead, before + 1)
    yield* eventually("the flag is seen", Effect.map(Stage.renew(lease), ([answer]) => answer === "check"))
  }).pipe(Effect.provide(stage)))
