/** The part of the memory store through which workers report, and ask whether they still hold what they hold. */
import type { Claim } from "../../domain/Claim.ts"
import * as History from "../../domain/History.ts"
import type { Settlement } from "../../domain/Outcome.ts"
import type { JobStore, Settled } from "../../ports/JobStore.ts"
import type { JobRow } from "./JobRow.ts"
import * as Tables from "./Tables.ts"

const staleMax = 32_767

/** Whether the claim was settled before, by this write's twin or by an older one of the same claim. */
const isRepeat = (row: JobRow, claim: Claim): boolean => {
  if (claim.epoch === row.epoch) {
    return row.state !== "running" && row.lease === claim.lease
  }
  if (claim.epoch > row.epoch) {
    return false
  }
  if (row.settled !== null && row.settled.epoch === claim.epoch) {
    return row.settled.lease === claim.lease
  }
  return !row.lostEpochs.includes(claim.epoch)
}

const write = (tables: Tables.Tables, row: JobRow, settlement: Settlement, nowMs: number): void => {
  const { delayMs, failure, reason, recorded, result, step } = settlement
  const epoch = row.epoch
  const worker = row.worker ?? ""
  if (step === "fail" || step === "die") {
    row.attempts += 1
  }
  if (failure !== null) {
    const claimedAtMs = row.startedAtMs ?? nowMs
    row.errors = History.append(row.errors, {
      attempt: row.attempts,
      epoch,
      worker,
      claimedAtMs,
      atMs: nowMs,
      ...failure
    })
  }
  if (recorded) {
    Tables.record(row, { kind: "released", epoch, worker, atMs: nowMs })
  }
  switch (step) {
    case "complete":
      row.result = result
      return Tables.end(tables, row, null, nowMs)
    case "die":
      return Tables.end(tables, row, reason, nowMs)
    case "release":
      return Tables.place(tables, row, nowMs, nowMs)
    case "fail":
    case "again":
      row.runAtMs = nowMs + delayMs
      return Tables.place(tables, row, row.runAtMs, nowMs)
  }
}

const settleOne = (tables: Tables.Tables, settlement: Settlement, nowMs: number): Settled => {
  const { claim } = settlement
  const row = tables.jobs.get(claim.id)
  if (row === undefined) {
    return { _tag: "Stale", currentEpoch: 0 }
  }
  const current = row.epoch === claim.epoch && row.lease === claim.lease
  if (current && Tables.advance(row, settlement.step)) {
    write(tables, row, settlement, nowMs)
    return { _tag: "Settled", repeated: false }
  }
  if (isRepeat(row, claim)) {
    return { _tag: "Settled", repeated: true }
  }
  row.stale = Math.min(row.stale + 1, staleMax)
  Tables.record(row, {
    kind: "stale_write",
    epoch: claim.epoch,
    // Its lease is gone as a rule; what took it has noted whose it was.
    worker: tables.leases.get(claim.lease)?.worker ??
      row.events.entries.find(({ epoch, kind }) => epoch === claim.epoch && kind !== "stale_write")?.worker ?? null,
    atMs: nowMs,
    outcome: settlement.step,
    currentEpoch: row.epoch
  })
  return { _tag: "Stale", currentEpoch: row.epoch }
}

export const make = (tables: Tables.Tables): Pick<JobStore["Service"], "settle" | "endLeases" | "verify"> => {
  const settle: JobStore["Service"]["settle"] = (settlements) =>
    Tables.at((nowMs) => settlements.map((settlement) => settleOne(tables, settlement, nowMs)))

  const endLeases: JobStore["Service"]["endLeases"] = (leases) =>
    Tables.at(() => {
      for (const record of leases.flatMap((lease) => tables.leases.get(lease) ?? [])) {
        if (Tables.runningUnder(tables, record).length === 0) {
          tables.leases.delete(record.lease)
        }
      }
    })

  const verify: JobStore["Service"]["verify"] = (leases) =>
    Tables.at((nowMs) =>
      leases.map((lease) => {
        const record = tables.leases.get(lease)
        if (record === undefined) {
          return { _tag: "Gone", lease }
        }
        record.token += 1
        record.seenAtMs = nowMs
        const running = Tables.runningUnder(tables, record).map((row) => ({ id: row.submitted.id, epoch: row.epoch }))
        return { _tag: "Stands", lease, running, revoked: record.revoked }
      })
    )

  return { settle, endLeases, verify }
}
