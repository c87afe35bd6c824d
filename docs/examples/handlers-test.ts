/** Tests of handlers and of what submits to them, in memory and on a clock of their own. `node --test handlers-test.ts` */
// #region test
import { Job } from "deadman"
import * as Testing from "deadman/testing"
import { Schema } from "effect"
import assert from "node:assert/strict"
import { test } from "node:test"

const charge = Job.define({
  type: "card.charge",
  payload: Schema.Struct({ cents: Schema.Int }),
  maxAttempts: 3,
  backoff: { kind: "fixed", delayMs: 60_000 }
})

test("a refused card is tried again after a minute", async () => {
  let asked = 0
  const charger = charge.handle(() => {
    asked += 1
    if (asked === 1) throw new Error("the bank is away")
  })
  const deadman = await Testing.start({ handlers: [charger] })

  const job = await deadman.submit(charge, { cents: 1_900 })
  await deadman.drain() // runs what is due now
  assert.equal((await deadman.get(job))?.state, "failed")

  await deadman.advance(60_000) // moves time, and runs what becomes due
  assert.equal((await deadman.get(job))?.state, "completed")

  const submitted = await deadman.submitted(charge)
  assert.deepEqual(submitted.map(({ payload }) => payload), [{ cents: 1_900 }])
  await deadman.stop()
})
// #endregion
