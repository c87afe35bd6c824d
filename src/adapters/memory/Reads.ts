/** The part of the memory store that only reads. */
import type { JobState } from "../../domain/JobState.ts"
import type { JobStore, ListRequest } from "../../ports/JobStore.ts"
import * as JobRow from "./JobRow.ts"
import * as Tables from "./Tables.ts"

const matches = (request: ListRequest, { state, submitted }: JobRow.JobRow): boolean =>
  (request.state === undefined || state === request.state) &&
  (request.type === undefined || submitted.type === request.type) &&
  (request.queue === undefined || submitted.queue === request.queue) &&
  (request.tag === undefined || submitted.tags.includes(request.tag)) &&
  (request.before === undefined || submitted.id < request.before)

/** When the oldest job that may start was due: of each type and queue that is not paused, the one that comes first. */
const readySince = (tables: Tables.Tables): number | null => {
  const heads = new Map<string, JobRow.JobRow>()
  for (const row of tables.ready) {
    const { id, queue, type } = row.submitted
    const route = JSON.stringify([type, queue])
    const head = heads.get(route)
    const isFirst = head === undefined || row.rank! < head.rank! || (row.rank === head.rank && id < head.submitted.id)
    if (isFirst && tables.queues.get(queue)?.paused !== true) {
      heads.set(route, row)
    }
  }
  return heads.size === 0 ? null : Math.min(...Array.from(heads.values(), ({ runAtMs }) => runAtMs))
}

export const make = (tables: Tables.Tables): Pick<JobStore["Service"], "get" | "list" | "counts" | "now"> => {
  const get: JobStore["Service"]["get"] = (ids) =>
    Tables.at(() => [...new Set(ids)].flatMap((id) => tables.jobs.get(id) ?? []).map(JobRow.asJob))

  const list: JobStore["Service"]["list"] = (request) =>
    Tables.at(() => {
      const found = [...tables.jobs.values()]
        .filter((row) => matches(request, row))
        .sort((a, b) => a.submitted.id < b.submitted.id ? 1 : -1)
        .slice(request.offset)
      const jobs = found.slice(0, request.limit).map(JobRow.asJob)
      return { jobs, next: found.length > jobs.length ? jobs.at(-1)?.id ?? null : null }
    })

  const counts: JobStore["Service"]["counts"] = Tables.at((nowMs) => {
    const byState: Record<JobState, number> = { pending: 0, running: 0, failed: 0, completed: 0, dead: 0 }
    // A type may be called `constructor`.
    const [byType, byQueue, pendingByType] = [
      new Map<string, number>(),
      new Map<string, number>(),
      new Map<string, number>()
    ]
    const count = (counts: Map<string, number>, name: string) => counts.set(name, (counts.get(name) ?? 0) + 1)
    for (const { state, submitted: { queue, type } } of tables.jobs.values()) {
      byState[state] += 1
      count(byType, type)
      count(byQueue, queue)
      if (state === "pending") {
        count(pendingByType, type)
      }
    }
    const since = readySince(tables)
    return {
      byState,
      byType: Object.fromEntries(byType),
      byQueue: Object.fromEntries(byQueue),
      pendingByType: Object.fromEntries(pendingByType),
      oldestReadyMs: since === null ? null : Math.max(0, nowMs - since),
      asOfMs: nowMs
    }
  })

  return { get, list, counts, now: Tables.at((nowMs) => nowMs) }
}
