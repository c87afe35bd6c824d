/** The part of the memory store through which workers take jobs, and hand back what they never learnt of. */
import { suspectLosses } from "../../domain/Claim.ts"
import type { ClaimedJob } from "../../domain/Job.ts"
import * as Rank from "../../domain/Rank.ts"
import type { ClaimRequest, JobStore } from "../../ports/JobStore.ts"
import * as JobRow from "./JobRow.ts"
import * as Tables from "./Tables.ts"

const isSuspect = (row: JobRow.JobRow): boolean => row.losses >= suspectLosses

const serves = (request: ClaimRequest, row: JobRow.JobRow, nowMs: number): boolean =>
  request.types.includes(row.submitted.type) &&
  row.losses < (request.freeSlots > 0 ? request.lossesBelow ?? Infinity : suspectLosses) &&
  (row.expireMs === null || row.expireMs > nowMs) &&
  (request.queues === undefined || request.queues.includes(row.submitted.queue)) &&
  (request.readyForMs === undefined || row.runAtMs <= nowMs - request.readyForMs)

const inOrder = (a: JobRow.JobRow, b: JobRow.JobRow): number => {
  const rank = (row: JobRow.JobRow) => row.rank ?? Rank.rank(row.runAtMs, row.submitted.priority, Rank.stepDefaultMs)
  return rank(a) - rank(b) || (a.submitted.id < b.submitted.id ? -1 : 1)
}

/** Those of the `candidates` there is room for: a suspect alone or not at all. */
const chosen = (request: ClaimRequest, candidates: ReadonlyArray<JobRow.JobRow>): ReadonlyArray<JobRow.JobRow> => {
  const head = candidates[0]
  if (head === undefined || request.limit < 1) {
    return []
  }
  if (isSuspect(head)) {
    return [head]
  }
  const rows: Array<JobRow.JobRow> = []
  let bytes = 0
  for (const row of candidates.filter((row) => !isSuspect(row)).slice(0, request.limit)) {
    bytes += row.bytes
    if (rows.length > 0 && bytes > request.bytes) {
      break
    }
    rows.push(row)
  }
  return rows
}

const take = (
  tables: Tables.Tables,
  request: ClaimRequest,
  candidates: ReadonlyArray<JobRow.JobRow>,
  nowMs: number
): ReadonlyArray<ClaimedJob> => {
  // A twin of this claim was here first. What it took is answered by `recall`.
  if (tables.leases.has(request.lease)) {
    return []
  }
  const rows = chosen(request, [...candidates].sort(inOrder)).filter((row) => Tables.advance(row, "claim"))
  if (rows.length === 0) {
    return []
  }
  for (const row of rows) {
    Tables.unplace(tables, row)
    if (row.lease !== null) {
      row.settled = { epoch: row.epoch, lease: row.lease }
    }
    row.epoch += 1
    row.lease = request.lease
    row.deliveries += 1
    row.startedAtMs = nowMs
    row.worker = request.worker
  }
  tables.leases.set(request.lease, {
    lease: request.lease,
    leaseMs: request.leaseMs,
    worker: request.worker,
    claimedAtMs: nowMs,
    jobIds: rows.map((row) => row.submitted.id),
    token: 0,
    seenAtMs: nowMs,
    revoked: []
  })
  return rows.map(JobRow.asClaimed)
    row.expireMs = null
}

export const make = (
  tables: Tables.Tables
): Pick<JobStore["Service"], "claim" | "claimIds" | "recall" | "abandon"> => {
  const claim: JobStore["Service"]["claim"] = (request) =>
    Tables.at((nowMs) => take(tables, request, [...tables.ready].filter((row) => serves(request, row, nowMs)), nowMs))

  const claimIds: JobStore["Service"]["claimIds"] = (request) =>
    Tables.at((nowMs) => {
      const rows = [...new Set(request.ids)].flatMap((id) => tables.jobs.get(id) ?? [])
      const startable = rows.filter((row) => row.rank !== null || (row.waitMs !== null && row.waitMs <= nowMs))
      return {
        notYetDue: rows.flatMap((row) =>
          row.waitMs !== null && row.waitMs > nowMs ? [{ id: row.submitted.id, runAtMs: row.waitMs }] : []
        ),
        claimed: take(tables, request, startable.filter((row) => serves(request, row, nowMs)), nowMs)
      }
    })

  const recall: JobStore["Service"]["recall"] = (lease) =>
    Tables.at((nowMs) => {
      const record = tables.leases.get(lease)
      if (record === undefined) {
        return []
      }
      record.token += 1
      record.seenAtMs = nowMs
      return Tables.runningUnder(tables, record).map(JobRow.asClaimed)
    })

  const abandon: JobStore["Service"]["abandon"] = (leases) =>
    Tables.at((nowMs) => {
      for (const record of leases.flatMap((lease) => tables.leases.get(lease) ?? [])) {
        for (const row of Tables.runningUnder(tables, record)) {
          Tables.advance(row, "release")
          Tables.place(tables, row, nowMs, nowMs)
        }
        tables.leases.delete(record.lease)
      }
    })

  return { claim, claimIds, recall, abandon }
}
