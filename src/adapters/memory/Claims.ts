/** The part of the memory store through which workers take jobs, and hand back what they never learnt of. */
import { type LeaseId, suspectLosses } from "../../domain/Claim.ts"
import type { ClaimedJob } from "../../domain/Job.ts"
import * as QueueSettings from "../../domain/QueueSettings.ts"
import { claimedToken, type ClaimRequest, type JobStore } from "../../ports/JobStore.ts"
import * as JobRow from "./JobRow.ts"
import * as Tables from "./Tables.ts"

const isSuspect = (row: JobRow.JobRow): boolean => row.losses >= suspectLosses

const serves = (tables: Tables.Tables, request: ClaimRequest, row: JobRow.JobRow, nowMs: number): boolean =>
  tables.queues.get(row.submitted.queue)?.paused !== true &&
  request.types.includes(row.submitted.type) &&
  (row.expireMs === null || row.expireMs > nowMs) &&
  row.losses < (request.freeSlots > 0 ? request.lossesBelow ?? Infinity : suspectLosses) &&
  (request.queues === undefined || request.queues.includes(row.submitted.queue)) &&
  (request.readyForMs === undefined || row.runAtMs <= nowMs - request.readyForMs)

const inOrder = (tables: Tables.Tables) => (a: JobRow.JobRow, b: JobRow.JobRow): number => {
  const rank = (row: JobRow.JobRow) => row.rank ?? Tables.rankOf(tables, row)
  return rank(a) - rank(b) || (a.submitted.id < b.submitted.id ? -1 : 1)
}

/** Whether a message about it only says to look. */
const keepsItsPlace = (tables: Tables.Tables, { rooms = [] }: ClaimRequest, { submitted }: JobRow.JobRow): boolean =>
  submitted.priority !== 0 || rooms.some(({ queue }) => queue === submitted.queue) ||
  (tables.queues.get(submitted.queue) ?? QueueSettings.defaults).stepMs !== QueueSettings.defaults.stepMs

/** Of each queue with a limit so many as there is room for. */
const withinRooms = ({ rooms = [] }: ClaimRequest, candidates: ReadonlyArray<JobRow.JobRow>) => {
  const left = new Map(rooms.map(({ queue, room }) => [queue, room]))
  return candidates.filter(({ submitted: { queue } }) => {
    const room = left.get(queue)
    if (room === undefined) {
      return true
    }
    left.set(queue, room - 1)
    return room > 0
  })
}

/** What the limits leave beside what runs under leases of this name. */
const roomsOf = (tables: Tables.Tables, worker: string) => {
  const held = [...tables.leases.values()].filter((lease) => lease.worker === worker)
    .flatMap((lease) => Tables.runningUnder(tables, lease))
  return Tables.limitsOf(tables).map(({ concurrency, queue }) => ({
    queue,
    room: Math.max(0, concurrency - held.filter(({ submitted }) => submitted.queue === queue).length)
  }))
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
  const ordered = withinRooms(request, [...candidates].sort(inOrder(tables)))
  const rows = chosen(request, ordered).filter((row) => Tables.advance(row, "claim"))
  if (rows.length === 0) {
    return []
  }
  for (const row of rows) {
    Tables.unplace(tables, row)
    row.expireMs = null
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
    token: Number(claimedToken),
    seenAtMs: nowMs,
    revoked: []
  })
  return rows.map(JobRow.asClaimed)
}

export const make = (
  tables: Tables.Tables
): Pick<JobStore["Service"], "claim" | "claimIds" | "recall" | "abandon" | "handBack"> => {
  const claim: JobStore["Service"]["claim"] = (request) =>
    Tables.at((nowMs) => {
      const counted = request.limitsByName === true ? { ...request, rooms: roomsOf(tables, request.worker) } : request
      return take(tables, counted, [...tables.ready].filter((row) => serves(tables, request, row, nowMs)), nowMs)
    })

  const claimIds: JobStore["Service"]["claimIds"] = (request) =>
    Tables.at((nowMs) => {
      const rows = [...new Set(request.ids)].flatMap((id) => tables.jobs.get(id) ?? [])
      const startable = rows.filter((row) => row.rank !== null || (row.waitMs !== null && row.waitMs <= nowMs))
        .filter((row) => serves(tables, request, row, nowMs))
      const byId = startable.filter((row) => !keepsItsPlace(tables, request, row))
      const claimed = take(tables, request, byId, nowMs)
      const taken = new Set(claimed.map(({ id }) => id))
      return {
        notYetDue: rows.flatMap((row) =>
          row.waitMs !== null && row.waitMs > nowMs ? [{ id: row.submitted.id, runAtMs: row.waitMs }] : []
        ),
        inOrder: [
          ...new Set(
            startable.filter((row) => row.rank !== null && keepsItsPlace(tables, request, row))
              .map((row) => row.submitted.queue)
          )
        ],
        claimed,
        left: claimed.length === 0 ? [] : byId.flatMap(({ submitted: { id } }) => taken.has(id) ? [] : [id])
      }
    })

  const recall: JobStore["Service"]["recall"] = (lease) =>
    Tables.at((nowMs) => {
      const record = tables.leases.get(lease)
      if (record === undefined) {
        return { jobs: [], token: claimedToken }
      }
      record.token += 1
      record.seenAtMs = nowMs
      return { jobs: Tables.runningUnder(tables, record).map(JobRow.asClaimed), token: String(record.token) }
    })

  const abandonAt = (lease: LeaseId, token: string | null, nowMs: number) => {
    const record = tables.leases.get(lease)
    if (record === undefined || (token !== null && String(record.token) !== token)) {
      return
    }
    for (const row of Tables.runningUnder(tables, record)) {
      Tables.advance(row, "release")
      Tables.place(tables, row, nowMs, nowMs)
    }
    tables.leases.delete(record.lease)
  }

  const abandon: JobStore["Service"]["abandon"] = (leases) =>
    Tables.at((nowMs) => leases.forEach((lease) => abandonAt(lease, null, nowMs)))

  const handBack: JobStore["Service"]["handBack"] = (lease, token) =>
    Tables.at((nowMs) => abandonAt(lease, token, nowMs))

  return { claim, claimIds, recall, abandon, handBack }
}
