import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import * as JobStoreMemory from "../../../src/adapters/memory/JobStoreMemory.ts"
import * as JobStoreContract from "../../contracts/JobStoreContract.ts"
import * as Steps from "../../contracts/JobStoreContractSteps.ts"

JobStoreContract.suite("memory", JobStoreMemory.layer)
JobStoreContract.suiteOfKeys("memory", JobStoreMemory.layerWith({ keyTtlMs: 1_000 }), { keyTtlMs: 1_000 })

// Beside the suite, since no server's clock can be moved by a minute: what is asked of it there is asked of its rows.
it.layer(JobStoreMemory.layer)("JobStore (memory), on a clock that is moved", (it) => {
  it.effect("3: a job is overtaken by one of the next priority for a minute, and no longer", () =>
    Effect.gen(function*() {
      const old = yield* Steps.submitted()
      yield* TestClock.adjust(59_999)
      const soon = yield* Steps.submitted({ type: old.type, priority: 1 })
      yield* TestClock.adjust(2)
      const late = yield* Steps.submitted({ type: old.type, priority: 1 })

      assert.deepStrictEqual(Steps.idsOf(yield* Steps.take(old)), [soon.id, old.id, late.id])
    }))
})
