/** `Queues` beside the memory store, over its tables: for tests and for the simulation. */
import { Effect, Layer } from "effect"
import type { Queue } from "../../domain/Job.ts"
import type { JobState } from "../../domain/JobState.ts"
import * as QueueSettings from "../../domain/QueueSettings.ts"
import { Queues, type QueueView, TooManyLimits } from "../../ports/Queues.ts"
import { SharedTables } from "./JobStoreMemory.ts"
import * as Tables from "./Tables.ts"

const viewOf = (tables: Tables.Tables, name: Queue): QueueView => {
  const byState: Record<JobState, number> = { pending: 0, running: 0, failed: 0, completed: 0, dead: 0 }
  for (const { state, submitted } of tables.jobs.values()) {
    byState[state] += submitted.queue === name ? 1 : 0
  }
  const row = tables.queues.get(name)
  const { concurrency, paused, stepMs } = row ?? QueueSettings.defaults
  return { name, paused, concurrency, stepMs, createdAtMs: row?.createdAtMs ?? null, byState }
}

const namesOf = (tables: Tables.Tables): ReadonlySet<Queue> =>
  new Set([...tables.queues.keys(), ...Array.from(tables.jobs.values(), ({ submitted }) => submitted.queue)])

const make = Effect.map(SharedTables, (tables) => {
  const list: Queues["Service"]["list"] = ({ after, limit }) =>
    Tables.at(() => {
      const names = [...namesOf(tables)].filter((name) => after === null || name > after)
        .sort((a, b) => a < b ? -1 : 1)
      return { queues: names.slice(0, limit).map((name) => viewOf(tables, name)), more: names.length > limit }
    })

  const get: Queues["Service"]["get"] = (name) =>
    Tables.at(() => namesOf(tables).has(name) ? viewOf(tables, name) : null)

  const put: Queues["Service"]["put"] = (name, change) =>
    Effect.flatten(Tables.at((nowMs) => {
      const before = tables.queues.get(name)
      const row = { ...QueueSettings.defaults, createdAtMs: nowMs, stepped: false, ...before }
      const limited = Tables.limitsOf(tables)
      const isNew = typeof change.concurrency === "number" && row.concurrency === null
      if (isNew && limited.length >= QueueSettings.limitedMax) {
        return Effect.fail(new TooManyLimits({ most: QueueSettings.limitedMax }))
      }
      const stepped = row.stepped || (change.stepMs !== undefined && change.stepMs !== row.stepMs)
      tables.queues.set(name, { ...row, ...change, stepped })
      return Effect.succeed({ queue: viewOf(tables, name), announced: false })
    }))

  const rerank: Queues["Service"]["rerank"] = (limit) =>
    Tables.at(() => {
      const misplaced = [...tables.ready].filter((row) =>
        tables.queues.get(row.submitted.queue)?.stepped === true && row.rank !== Tables.rankOf(tables, row)
      )
      for (const row of misplaced.slice(0, limit)) {
        row.rank = Tables.rankOf(tables, row)
      }
      if (misplaced.length > limit) {
        return { jobs: limit, againInMs: 0 }
      }
      for (const [name, row] of tables.queues) {
        tables.queues.set(name, { ...row, stepped: false })
      }
      return { jobs: misplaced.length, againInMs: null }
    })

  return Queues.of({ list, get, put, limits: Tables.at(() => Tables.limitsOf(tables)), rerank })
})

/** Over the tables of a memory store. */
export const layer: Layer.Layer<Queues, never, SharedTables> = Layer.effect(Queues, make)
