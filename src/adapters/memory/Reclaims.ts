/** The part of the memory store through which a reaper sees leases, and takes the lapsed ones. */
import * as Backoff from "../../domain/Backoff.ts"
import type { JobStore, Reclaimed } from "../../ports/JobStore.ts"
import type { JobRow } from "./JobRow.ts"
import * as Tables from "./Tables.ts"

export const make = (tables: Tables.Tables): Pick<JobStore["Service"], "look" | "reclaim"> => {
  const look: JobStore["Service"]["look"] = Tables.at(() => ({
    incarnation: "memory",
    leases: [...tables.leases.values()].map((record) => ({
      lease: record.lease,
      leaseMs: record.leaseMs,
      token: String(record.token),
      worker: record.worker,
      jobs: record.jobIds.length
    }))
  }))

  const lose = (
    row: JobRow,
    record: Tables.LeaseRow,
    options: { readonly counted: boolean; readonly lossesMax: number },
    nowMs: number
  ): void => {
    row.losses += 1
    row.lossesCounted += options.counted ? 1 : 0
    Tables.record(row, {
      kind: "lease_lost",
      epoch: row.epoch,
      worker: record.worker,
      atMs: nowMs,
      claimedAtMs: record.claimedAtMs,
      lastSeenMs: record.seenAtMs,
      counted: options.counted
    })
    Tables.cutOff(row)
    if (options.counted && row.lossesCounted >= options.lossesMax) {
      Tables.advance(row, "crash")
      return Tables.end(tables, row, "crash_loop", nowMs)
    }
    Tables.advance(row, "reclaim")
    const delayMs = Math.floor(Backoff.lossCeilingMs(row.losses) * tables.draw())
    Tables.place(tables, row, nowMs + delayMs, nowMs)
  }

  const reclaim: JobStore["Service"]["reclaim"] = (lapsed, options) =>
    Tables.at((nowMs) =>
      lapsed.map(({ lease, token }): Reclaimed => {
        const record = tables.leases.get(lease)
        if (record === undefined) {
          return { _tag: "Gone", lease }
        }
        if (String(record.token) !== token) {
          return { _tag: "Moved", lease }
        }
        const rows = Tables.runningUnder(tables, record)
        for (const row of rows) {
          lose(row, record, options, nowMs)
        }
        tables.leases.delete(lease)
        const jobs = rows.map((row) => ({ id: row.submitted.id, type: row.submitted.type, state: row.state }))
        return { _tag: "Reclaimed", lease, worker: record.worker, jobs }
      })
    )

  return { look, reclaim }
}
