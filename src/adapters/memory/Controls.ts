/** The part of the memory store through which people cancel and retry, and the keeper does its chores. */
import type { JobId } from "../../domain/JobId.ts"
import {
  type Cancelled,
  type DeadLetter,
  type JobStore,
  keptLeastMs,
  type Promoted,
  type Rebooked
} from "../../ports/JobStore.ts"
import * as JobRow from "./JobRow.ts"
import * as Submits from "./Submits.ts"
import * as Tables from "./Tables.ts"

type Control =
  | "cancel"
  | "retry"
  | "promote"
  | "promoteIds"
  | "upcoming"
  | "expire"
  | "deadLetters"
  | "announced"
  | "prune"

export const cancelAt = (tables: Tables.Tables, id: JobId, nowMs: number): Cancelled => {
  const row = tables.jobs.get(id)
  if (row === undefined) {
    return { _tag: "NotFound" }
  }
  const lease = row.state === "running" ? row.lease : null
  if (!Tables.advance(row, "cancel")) {
    return { _tag: "Refused", state: row.state }
  }
  const { epoch, worker } = row
  Tables.end(tables, row, "cancelled", nowMs)
  Tables.record(row, { kind: "cancel_requested", epoch, worker, atMs: nowMs })
  if (lease === null) {
    return { _tag: "Cancelled", job: JobRow.asJob(row), cutOff: null }
  }
  Tables.cutOff(row)
  const record = tables.leases.get(lease)
  if (record !== undefined) {
    record.revoked = [...record.revoked, { id, epoch, reason: "cancelled" }]
  }
  return { _tag: "Cancelled", job: JobRow.asJob(row), cutOff: { lease, epoch } }
}

export const make = (tables: Tables.Tables): Pick<JobStore["Service"], Control> => {
  const cancel: JobStore["Service"]["cancel"] = (id) => Tables.at((nowMs) => cancelAt(tables, id, nowMs))

  const retry: JobStore["Service"]["retry"] = (id) =>
    Tables.at((nowMs): Rebooked => {
      const row = tables.jobs.get(id)
      if (row === undefined) {
        return { _tag: "NotFound" }
      }
      // A pending job is booked anew where it is: its time changes and its state does not.
      if (row.state !== "pending" && !Tables.advance(row, "retry")) {
        return { _tag: "Refused", state: row.state }
      }
      row.runAtMs = Math.min(row.runAtMs, nowMs)
      Tables.place(tables, row, nowMs, nowMs)
      Tables.record(row, { kind: "retried", epoch: row.epoch, worker: row.worker, atMs: nowMs })
      return { _tag: "Rebooked", job: JobRow.asJob(row) }
    })

  const promoted = (rows: ReadonlyArray<JobRow.JobRow>, nowMs: number): Promoted => {
    for (const row of rows) {
      Tables.place(tables, row, nowMs, nowMs)
    }
    const next = [...tables.waiting].reduce<number | null>(
      (least, row) => row.waitMs === null ? least : Math.min(least ?? row.waitMs, row.waitMs),
      null
    )
    return {
      jobs: rows.map(({ losses, submitted: { id, priority, queue, type } }) => ({
        id,
        type,
        queue,
        ordered: priority !== 0 || losses > 0
      })),
      nextInMs: next === null ? null : Math.max(0, next - nowMs),
      announced: false
    }
  }

  const isDue = (row: JobRow.JobRow, nowMs: number) => row.waitMs !== null && row.waitMs <= nowMs

  const promote: JobStore["Service"]["promote"] = (limit) =>
    Tables.at((nowMs) => {
      const due = [...tables.waiting].filter((row) => isDue(row, nowMs))
      return promoted(due.sort((a, b) => (a.waitMs ?? 0) - (b.waitMs ?? 0)).slice(0, limit), nowMs)
    })

  const promoteIds: JobStore["Service"]["promoteIds"] = (ids) =>
    Tables.at((nowMs) => {
      const rows = [...new Set(ids)].flatMap((id: JobId) => tables.jobs.get(id) ?? [])
      return promoted(rows.filter((row) => isDue(row, nowMs)), nowMs)
    })

  const upcoming: JobStore["Service"]["upcoming"] = (withinMs, fromMs, limit) =>
    Tables.at((nowMs) => {
      const from = Math.max(nowMs, fromMs ?? 0)
      const jobs = [...tables.waiting].flatMap(({ submitted, waitMs }) =>
        waitMs !== null && waitMs >= from && waitMs <= nowMs + withinMs ? [{ id: submitted.id, runAtMs: waitMs }] : []
      )
      return { nowMs, jobs: jobs.sort((a, b) => a.runAtMs - b.runAtMs).slice(0, limit) }
    })

  const expire: JobStore["Service"]["expire"] = (limit) =>
    Tables.at((nowMs) => {
      const rows = [...tables.ready, ...tables.waiting].filter(({ expireMs }) => expireMs !== null)
      const late = rows.filter(({ expireMs }) => expireMs !== null && expireMs <= nowMs).slice(0, limit)
        .filter((row) => Tables.advance(row, "expire"))
      for (const row of late) {
        Tables.end(tables, row, "expired", nowMs)
      }
      const next = rows.flatMap(({ expireMs }) => expireMs === null || expireMs <= nowMs ? [] : [expireMs - nowMs])
      return { jobs: late.length, nextInMs: next.length === 0 ? null : Math.min(...next) }
    })

  const deadLetters: JobStore["Service"]["deadLetters"] = (limit) =>
    Tables.at(() => {
      const letters: Array<DeadLetter> = []
      for (const { announced, attempts, finishedAtMs, reason, submitted } of tables.jobs.values()) {
        if (letters.length < limit && !announced && reason !== null && finishedAtMs !== null) {
          const { id, queue, type } = submitted
          letters.push({ id, type, queue, reason, attempts, diedAtMs: finishedAtMs })
        }
      }
      return letters
    })

  const announced: JobStore["Service"]["announced"] = (ids) =>
    Tables.at(() => {
      for (const row of ids.flatMap((id) => tables.jobs.get(id) ?? [])) {
        row.announced = true
      }
    })

  const prune: JobStore["Service"]["prune"] = ({ completedMs, deadMs, leastMs = keptLeastMs, limit }) =>
    Tables.at((nowMs) => {
      const keys = [...tables.keys.keys()].filter((key) => Submits.keyed(tables, key, nowMs) === undefined)
      for (const key of keys.slice(0, limit)) {
        tables.keys.delete(key)
      }
      // Its key would point at nothing, and a repeat of its request would run it again.
      const holdsKey = ({ submitted }: JobRow.JobRow) =>
        submitted.key !== null && tables.keys.get(submitted.key.key)?.job === submitted.id
      // Nor may it be gone within its window: whoever is skipped for it must find it.
      const inPlace = new Set(
        [...tables.places.values()].flatMap(({ job, untilMs }) => untilMs !== null && untilMs > nowMs ? [job] : [])
      )
      const keptMs = ({ state, submitted }: JobRow.JobRow) =>
        typeof submitted.retainMs === "number"
          ? Math.max(submitted.retainMs, leastMs)
          : state === "completed"
          ? completedMs
          : deadMs
      const over = [...tables.jobs.values()].filter((row) =>
        row.finishedAtMs !== null && row.announced && !holdsKey(row) && !inPlace.has(row.submitted.id) &&
        row.finishedAtMs <= nowMs - keptMs(row)
      )
      for (const row of over.slice(0, limit)) {
        tables.jobs.delete(row.submitted.id)
      }
      for (const [place, { job }] of tables.places) {
        if (!tables.jobs.has(job)) tables.places.delete(place)
      }
      return {
        jobs: Math.min(over.length, limit),
        keys: Math.min(keys.length, limit),
        more: over.length > limit || keys.length > limit
      }
    })

  return { cancel, retry, promote, promoteIds, upcoming, expire, deadLetters, announced, prune }
}
