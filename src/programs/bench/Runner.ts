/**
 * Runs the cases in turn: each round runs every case once, so that what is compared shares the machine's moods.
 *
 * The rows of one suite share a site where the case says so; a case that fails says so in its row and costs no other.
 */
import { Cause, Effect, Exit, type Scope } from "effect"
import * as Figures from "./Figures.ts"
import type { BenchFailed, Stage } from "./Stage.ts"

export interface Case {
  readonly suite: string
  readonly name: string
  /** A run may give the figures of several rows, by name; most give their own. */
  readonly run: Effect.Effect<Figures.Sample, BenchFailed, Stage | Scope.Scope>
  /** Most is known after so many rounds; long cases ask for few. */
  readonly roundsMax?: number
}

export interface Progress {
  readonly show: (done: number, total: number, what: string) => Effect.Effect<void>
}

const caseWithin = "5 minutes"

export const run = Effect.fnUntraced(function*(cases: ReadonlyArray<Case>, rounds: number, progress: Progress) {
  const samples = new Map<Case, Array<Figures.Sample>>(cases.map((one) => [one, []]))
  const failures = new Map<Case, Array<string>>(cases.map((one) => [one, []]))
  const turns = Array.from(
    { length: rounds },
    (_, round) => cases.filter((one) => round < (one.roundsMax ?? rounds))
  ).flat()
  for (const [at, one] of turns.entries()) {
    yield* progress.show(at, turns.length, `${one.suite}: ${one.name}`)
    const exit = yield* Effect.exit(
      Effect.scoped(one.run).pipe(Effect.timeout(caseWithin))
    )
    if (Exit.isSuccess(exit)) {
      samples.get(one)!.push(exit.value)
    } else if (Cause.hasInterruptsOnly(exit.cause)) {
      return yield* Effect.failCause(exit.cause)
    } else {
      failures.get(one)!.push(String(Cause.squash(exit.cause)).slice(0, 300))
    }
  }
  yield* progress.show(turns.length, turns.length, "done")
  return cases.map((one) => Figures.summary(one.suite, one.name, samples.get(one)!, failures.get(one)!))
})
