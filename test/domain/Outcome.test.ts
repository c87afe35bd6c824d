import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { Backoff, ceilingMs } from "../../src/domain/Backoff.ts"
import { type Claim, Epoch, epochMax, LeaseId } from "../../src/domain/Claim.ts"
import { MaxAttempts } from "../../src/domain/Job.ts"
import { JobId } from "../../src/domain/JobId.ts"
import { steps } from "../../src/domain/JobState.ts"
import { type Outcome, type Settlement, settlement } from "../../src/domain/Outcome.ts"

const uuid = "01890000-0000-7000-8000-000000000001"
const claim: Claim = { id: JobId.make(uuid), epoch: Epoch.make(3), lease: LeaseId.make(uuid) }
const failure = { name: "Boom", message: "it went wrong" }

const Attempts = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1_000 }))
const Draw = Schema.Number.check(Schema.isBetween({ minimum: 0, maximum: 0.9999999999 }))

const job = (attempts: number, maxAttempts: number, backoff: Backoff) => ({ attempts, maxAttempts, backoff })
const plain = job(0, 10, { kind: "fixed", delay_ms: 100 })

const outcomes: ReadonlyArray<Outcome> = [
  { _tag: "Completed", result: "1" },
  { _tag: "Completed", result: null },
  { _tag: "Failed", failure },
  { _tag: "Rejected", failure },
  { _tag: "Released", started: true },
  { _tag: "Released", started: false },
  { _tag: "Again", delayMs: 70 }
]

describe("Outcome", () => {
  it.prop(
    "a failure retries within its backoff while attempts remain, and ends the job with the last",
    [Attempts, MaxAttempts, Backoff, Draw],
    ([attempts, maxAttempts, backoff, draw]) => {
      const made = settlement(claim, job(attempts, maxAttempts, backoff), { _tag: "Failed", failure }, draw)

      assert.deepStrictEqual(made.failure, failure)
      if (attempts + 1 >= maxAttempts) {
        assert.include(made, { step: "die", reason: "attempts_exhausted", delayMs: 0 })
      } else {
        assert.include(made, { step: "fail", reason: null })
        assert.isTrue(Number.isSafeInteger(made.delayMs))
        assert.isAtLeast(made.delayMs, 0)
        assert.isAtMost(made.delayMs, ceilingMs(backoff, attempts + 1))
      }
    }
  )

  it("each failure waits for twice as long as the one before, the first one for the base", () => {
    const doubling: Backoff = { kind: "exponential", base_ms: 1_000, cap_ms: 5_000 }
    const delays = [0, 1, 2, 3].map((attempts) =>
      settlement(claim, job(attempts, 10, doubling), { _tag: "Failed", failure }, 0.5).delayMs
    )
    assert.deepStrictEqual(delays, [500, 1_000, 2_000, 2_500])
  })

  it.prop("whatever the outcome, the settlement is well formed", [Attempts, MaxAttempts, Backoff, Draw], (
    [attempts, maxAttempts, backoff, draw]
  ) => {
    for (const outcome of outcomes) {
      const made: Settlement = settlement(claim, job(attempts, maxAttempts, backoff), outcome, draw)
      const rule: { readonly from: ReadonlyArray<string>; readonly to: string } = steps[made.step]
      assert.deepStrictEqual(made.claim, claim)
      assert.include(rule.from, "running")
      assert.strictEqual(made.reason !== null, rule.to === "dead")
      assert.strictEqual(made.failure !== null, made.step === "fail" || made.step === "die")
      assert.isTrue(made.step === "complete" || made.result === null)
    }
  })

  it("one attempt means one failure and it is dead", () => {
    const once = job(0, 1, plain.backoff)
    assert.include(settlement(claim, once, { _tag: "Failed", failure }, 0), { step: "die" })
    assert.include(settlement(claim, job(0, 2, plain.backoff), { _tag: "Failed", failure }, 0), { step: "fail" })
    assert.include(settlement(claim, job(1, 2, plain.backoff), { _tag: "Failed", failure }, 0), { step: "die" })
  })

  it("a rejection is never retried, however many attempts remain", () => {
    assert.include(settlement(claim, plain, { _tag: "Rejected", failure }, 0.5), { step: "die", reason: "rejected" })
  })

  it("a release is an event only where a handler saw the job", () => {
    assert.include(settlement(claim, plain, { _tag: "Released", started: true }, 0), {
      step: "release",
      recorded: true,
      delayMs: 0
    })
    assert.include(settlement(claim, plain, { _tag: "Released", started: false }, 0), { recorded: false })
  })

  it("a result goes with completion, and a delay with running again", () => {
    assert.include(settlement(claim, plain, { _tag: "Completed", result: "[1]" }, 0), {
      step: "complete",
      result: "[1]"
    })
    assert.include(settlement(claim, plain, { _tag: "Again", delayMs: 70 }, 0), { step: "again", delayMs: 70 })
    assert.include(settlement(claim, plain, { _tag: "Failed", failure }, 0.5), { step: "fail", delayMs: 50 })
  })

  it("what was claimed too often is not handed back any more, and everything else is as ever", () => {
    const last: Claim = { ...claim, epoch: Epoch.make(epochMax) }
    const before: Claim = { ...claim, epoch: Epoch.make(epochMax - 1) }
    for (const outcome of outcomes) {
      const made = settlement(last, plain, outcome, 0)
      if (outcome._tag === "Again" || outcome._tag === "Released") {
        assert.include(made, { step: "die", reason: "rejected" })
        assert.strictEqual(made.failure?.name, "ClaimsExhausted")
      } else {
        assert.strictEqual(made.step, settlement(claim, plain, outcome, 0).step)
      }
      assert.strictEqual(settlement(before, plain, outcome, 0).step, settlement(claim, plain, outcome, 0).step)
    }
  })
})
