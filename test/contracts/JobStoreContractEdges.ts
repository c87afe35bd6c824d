/**
 * Laws of `JobStore`: the table of states, step by step.
 *
 * A job is brought into each state and every step is tried on it, the legal ones and all the others, with the best claim
 * there is: the one that last held the job, or a forged one where nobody ever did.
 */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { type Claim, Epoch } from "../../src/domain/Claim.ts"
import type { Job, NewJob } from "../../src/domain/Job.ts"
import { isFinal, type JobState, jobStates, type Step, stepNames, steps } from "../../src/domain/JobState.ts"
import { JobStore } from "../../src/ports/JobStore.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Steps from "./JobStoreContractSteps.ts"

interface Subject {
  readonly job: NewJob
  readonly claim: Claim
}

/** What expires takes its time: that step has laws of its own, in `JobStoreContractTerms.ts`. */
const driven = stepNames.filter((step) => step !== "expire")

const origins: ReadonlyArray<{ readonly state: JobState; readonly by: string }> = [
  { state: "pending", by: "submit" },
  { state: "pending", by: "release" },
  { state: "pending", by: "again" },
  { state: "running", by: "claim" },
  { state: "failed", by: "fail" },
  { state: "completed", by: "complete" },
  { state: "dead", by: "die" },
  { state: "dead", by: "cancel" },
  { state: "dead", by: "crash" }
]

/** What no refused step may touch; only what counts refused writes may move. */
const untouched = ({ events: _events, eventsOmitted: _omitted, staleWrites: _stale, ...job }: Job) => job

export const edgeLaws: Steps.Laws = (it, pass) => {
  const bring = Effect.fnUntraced(function*(by: string) {
    const store = yield* JobStore
    const job = yield* Steps.submitted()
    if (by === "submit") {
      return { job, claim: { id: job.id, epoch: Epoch.make(1), lease: yield* Jobs.freshLease } } satisfies Subject
    }
    const { claim } = yield* Steps.held(pass, job)
    switch (by) {
      case "cancel":
        yield* store.cancel(job.id)
        break
      case "crash":
        yield* Steps.lapsed(claim.lease, { counted: true, lossesMax: 1 })
        break
      case "release":
      case "again":
      case "fail":
      case "complete":
      case "die":
        yield* Steps.settled(claim, by)
    }
    return { job, claim } satisfies Subject
  })

  const drive = Effect.fnUntraced(function*(step: Step, { claim, job }: Subject) {
    const store = yield* JobStore
    switch (step) {
      case "claim":
        yield* store.promoteIds([job.id])
        yield* store.claimIds({ ...(yield* Steps.request(job)), ids: [job.id] })
        return
      case "complete":
      case "fail":
      case "die":
      case "release":
      case "again":
        yield* Steps.settle(claim, step)
        return
      case "reclaim":
      case "crash": {
        const token = (yield* Steps.recorded(claim.lease))?.token ?? "0"
        yield* Steps.reclaim(claim.lease, token, { counted: true, lossesMax: step === "crash" ? 1 : 5 })
        return
      }
      case "retry":
        yield* store.retry(job.id)
        return
      case "cancel":
        yield* store.cancel(job.id)
        return
      case "expire":
        assert.fail("not an operation of the port")
    }
  })

  for (const { by, state } of origins) {
    for (const step of driven) {
      const rule: { readonly from: ReadonlyArray<JobState>; readonly to: JobState } = steps[step]
      const legal = rule.from.includes(state)
      it.effect(`12: ${step} of a ${state} job (by ${by}) ${legal ? `makes it ${rule.to}` : "is refused"}`, () =>
        Effect.gen(function*() {
          const subject = yield* bring(by)
          const before = yield* Steps.read(subject.job.id)
          assert.strictEqual(before.state, state)

          yield* drive(step, subject)

          const after = yield* Steps.read(subject.job.id)
          if (legal) {
            assert.strictEqual(after.state, rule.to)
            assert.strictEqual(after.finishedAtMs !== null, isFinal(rule.to))
            assert.strictEqual(after.reason !== null, rule.to === "dead")
          } else if (step === "retry" && state === "pending") {
            // Re-booking a job that waits is allowed: its state is what does not change.
            assert.strictEqual(after.state, "pending")
          } else {
            assert.deepStrictEqual(untouched(after), untouched(before))
          }
        }))
    }
  }

  it.effect("12: the states that the steps were tried on are all there are", () =>
    Effect.sync(() => {
      assert.deepStrictEqual([...new Set(origins.map(({ state }) => state))].toSorted(), jobStates.toSorted())
    }))

  it.effect("11: nothing leaves completed or dead, not even everything at once", () =>
    Effect.gen(function*() {
      for (const by of ["complete", "die", "cancel", "crash"]) {
        const subject = yield* bring(by)
        const before = yield* Steps.read(subject.job.id)

        yield* Effect.forEach(driven, (step) => drive(step, subject), { concurrency: "unbounded" })

        assert.deepStrictEqual(untouched(yield* Steps.read(subject.job.id)), untouched(before))
      }
    }))
}
