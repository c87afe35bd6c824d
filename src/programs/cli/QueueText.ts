/** Queues as lines for people, from what the API answers. */
import * as Table from "./Table.ts"
import * as Text from "./Text.ts"

export interface ShownQueue {
  readonly name: string
  readonly paused: boolean
  readonly concurrency: number | null
  readonly step_ms: number | "strict"
  readonly jobs: {
    readonly pending: number
    readonly running: number
    readonly failed: number
    readonly completed: number
    readonly dead: number
  }
}

const head = ["QUEUE", "STATE", "AT ONCE", "STEP", "PENDING", "RUNNING", "FAILED", "COMPLETED", "DEAD"]

const row = ({ concurrency, jobs, name, paused, step_ms }: ShownQueue): ReadonlyArray<Table.Cell> => [
  Table.cell(name),
  Table.cell(paused ? "paused" : "open", paused ? "bad" : "good"),
  Table.cell(concurrency),
  Table.cell(typeof step_ms === "number" ? Text.length(step_ms) : step_ms),
  Table.cell(jobs.pending),
  Table.cell(jobs.running, jobs.running > 0 ? "busy" : "plain"),
  Table.cell(jobs.failed, jobs.failed > 0 ? "bad" : "plain"),
  Table.cell(jobs.completed),
  Table.cell(jobs.dead, jobs.dead > 0 ? "bad" : "plain")
]

export const table = (look: Table.Look, queues: ReadonlyArray<ShownQueue>): string =>
  Table.table(look, head, queues.map(row), "no queues")
