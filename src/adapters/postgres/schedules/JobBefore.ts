/**
 * The job before: what a schedule that cancels ends for the next one.
 *
 * It happens inside the transaction that stores the next one. The schedule is locked first, then the job's lease and
 * the job, as everybody does.
 */
import { Effect } from "effect"
import type { LeaseId } from "../../../domain/Claim.ts"
import type { JobId } from "../../../domain/JobId.ts"
import type { CutOff } from "../../../ports/Schedules.ts"
import type { Session } from "../Database.ts"
import type { DatabaseFailed } from "../DatabaseFailed.ts"
import * as Rounds from "../Rounds.ts"
import { type CancelRow, cancelSql } from "../store/Control.ts"
import { state } from "../store/Rows.ts"

/** Nothing is answered for one that was over by itself. */
export type Cancel = (session: Session, id: string) => Effect.Effect<ReadonlyArray<CutOff>, DatabaseFailed>

const toCutOff = (id: string, row: CancelRow | undefined): ReadonlyArray<CutOff> | undefined => {
  if (row === undefined || (!row.done && row.state >= state.completed)) {
    return []
  }
  const cutOff = row.lease === null ? null : { lease: row.lease as LeaseId, epoch: row.epoch }
  return row.done ? [{ id: id as JobId, cutOff }] : undefined
}

export const make = (wake: boolean): Cancel => {
  const cancel = cancelSql(wake)
  return (session, id) =>
    Rounds.untilAnswered(
      Effect.map(session.query<CancelRow>(cancel, [id]), ([row]) => toCutOff(id, row)),
      () => Rounds.busy("the job before kept moving on")
    )
}
