/** Brings the witnesses before the judge, page by page. */
import { Effect } from "effect"
import type { EffectRow, JobRow, Line, Transition } from "./Evidence.ts"
import { type GroundFailed, Witness } from "./Ground.ts"
import * as Judge from "./Judge.ts"
import type { Breach } from "./Laws.ts"
import type { Plan } from "./Plan.ts"
import type { Outcome } from "./Siege.ts"

const page = 2_000
/** `DEADMAN_MAX_LEASE_LOSSES` of the processes of a run. Beyond the default: here those who lose leases are innocent. */
export const lossesMax = 10

const grouped = <Row extends { readonly job: string }>(rows: ReadonlyArray<Row>) => {
  const byJob = new Map<string, Array<Row>>()
  for (const row of rows) {
    const of = byJob.get(row.job)
    if (of === undefined) {
      byJob.set(row.job, [row])
    } else {
      of.push(row)
    }
  }
  return byJob
}

const none: ReadonlyArray<never> = []

export const hold = Effect.fnUntraced(function*(
  plan: Plan,
  outcome: Outcome
): Effect.fn.Return<Judge.Verdict, GroundFailed, Witness> {
  const witness = yield* Witness
  yield* witness.close
  const { boots, lines } = yield* witness.lines
  const vanished = yield* witness.vanished
  const judge = Judge.make({
    ...outcome,
    boots,
    order: plan.order,
    lossesMax,
    renewals: yield* witness.renewals,
    passed: grouped(yield* witness.passed),
    doubled: vanished.map((job): Breach => ({
      law: "every accepted job is there",
      job,
      detail: "it was stored, and its row is gone"
    }))
  })
  let after: string | null = null
  while (true) {
    const rows: ReadonlyArray<JobRow> = yield* witness.jobs(after, page)
    const first = rows[0]
    const last = rows.at(-1)
    if (first === undefined || last === undefined) {
      break
    }
    const transitions: Map<string, Array<Transition>> = grouped(yield* witness.transitions(first.id, last.id))
    const effects: Map<string, Array<EffectRow>> = grouped(yield* witness.effects(first.id, last.id))
    for (const row of rows) {
      judge.add({
        row,
        transitions: transitions.get(row.id) ?? none,
        effects: effects.get(row.id) ?? none,
        lines: (lines.get(row.id) ?? none) as ReadonlyArray<Line>
      })
    }
    after = last.id
  }
  return judge.finish()
})
