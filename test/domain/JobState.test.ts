import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import {
  apply,
  type DeadReason,
  deadReasons,
  edges,
  isFinal,
  type JobState,
  jobStates,
  type Step,
  stepNames,
  steps
} from "../../src/domain/JobState.ts"

const StepName = Schema.Literals(stepNames)
const rule = (step: Step): {
  readonly from: ReadonlyArray<JobState>
  readonly to: JobState
  readonly reasons?: ReadonlyArray<DeadReason>
} => steps[step]

describe("JobState", () => {
  for (const step of stepNames) {
    for (const from of jobStates) {
      const legal = rule(step).from.includes(from)
      it(`${step} of a ${from} job ${legal ? "is legal" : "is refused"}`, () => {
        const next = apply(step, from)

        assert.deepStrictEqual(
          next,
          legal ? Result.succeed(steps[step].to) : Result.fail({ _tag: "IllegalStep", step, from } as const)
        )
        assert.isTrue(Result.isFailure(next) || edges[from].includes(next.success))
      })
    }
  }

  // Written out, so that a change of the table is a change of two places that a reader sees.
  it("the edges are these and no others", () => {
    assert.deepStrictEqual(edges, {
      pending: ["running", "dead"],
      running: ["pending", "failed", "completed", "dead"],
      failed: ["pending", "running", "dead"],
      completed: [],
      dead: []
    })
  })

  it("each step is from these states and to this one", () => {
    assert.deepStrictEqual(
      Object.fromEntries(stepNames.map((step) => [step, `${steps[step].from.join(" ")} > ${steps[step].to}`])),
      {
        claim: "pending failed > running",
        complete: "running > completed",
        fail: "running > failed",
        die: "running > dead",
        release: "running > pending",
        again: "running > pending",
        reclaim: "running > pending",
        crash: "running > dead",
        retry: "failed > pending",
        cancel: "pending failed running > dead",
        expire: "pending failed > dead"
      }
    )
  })

  it.prop("any history of steps is a path of edges, and ends for good in a final state", [Schema.Array(StepName)], (
    [history]
  ) => {
    let state: JobState = "pending"
    let final = false
    for (const step of history) {
      const next = apply(step, state)
      if (Result.isSuccess(next)) {
        assert.isFalse(final, `${step} left ${state}`)
        assert.include(edges[state], next.success)
        state = next.success
        final = isFinal(state)
      }
    }
  })

  it("completed and dead are final, and every other state can reach both", () => {
    assert.deepStrictEqual(jobStates.filter(isFinal), ["completed", "dead"])
    for (const from of jobStates.filter((state) => !isFinal(state))) {
      const reached = new Set<JobState>([from])
      // A set is walked to its end, also to the members that were added on the way.
      for (const state of reached) {
        for (const next of edges[state]) reached.add(next)
      }
      assert.isTrue(reached.has("completed") && reached.has("dead"), from)
    }
  })

  it("every reason to be dead belongs to one step that ends there, and to no other step", () => {
    const given = stepNames.flatMap((step) => rule(step).reasons ?? [])
    assert.deepStrictEqual(given.toSorted(), deadReasons.toSorted())
    for (const step of stepNames) {
      assert.strictEqual(rule(step).reasons !== undefined, rule(step).to === "dead", step)
    }
  })

  it("only a running job is given up, and only a claim makes one run", () => {
    assert.deepStrictEqual(stepNames.filter((step) => steps[step].to === "running"), ["claim"])
    for (const step of ["complete", "fail", "die", "release", "again", "reclaim", "crash"] as const) {
      assert.deepStrictEqual(rule(step).from, ["running"])
    }
  })
})
