/** The part of the memory store that keeps what handlers note down. */
import * as Notes from "../../domain/Notes.ts"
import type { JobStore } from "../../ports/JobStore.ts"
import * as Tables from "./Tables.ts"

export const make = (tables: Tables.Tables): Pick<JobStore["Service"], "note"> => ({
  note: (notes) =>
    Tables.at((nowMs) => {
      for (const { attempt, claim, lines, progress } of notes) {
        const row = tables.jobs.get(claim.id)
        const current = row !== undefined && row.epoch === claim.epoch && row.lease === claim.lease
        const settled = row?.settled?.epoch === claim.epoch && row.settled.lease === claim.lease
        if (row === undefined || !(current || settled)) {
          continue
        }
        if (progress !== null && current) {
          row.progress = progress
        }
        row.lines = Notes.append(row.lines, lines.map(({ agoMs, line }) => ({ attempt, atMs: nowMs - agoMs, line })))
      }
    })
})
