/** Schedules as lines for people, from what the API answers. */
import * as Table from "./Table.ts"
import * as Text from "./Text.ts"

export interface ShownSchedule {
  readonly name: string
  readonly cron: string | null
  readonly zone: string | null
  readonly every_ms: number | null
  readonly type: string
  readonly payload: unknown
  readonly queue: string
  readonly missed: "skip" | "latest" | { readonly all: number }
  readonly overlap: string
  readonly paused: boolean
  readonly last_fire_ms: number | null
  readonly next_fires_ms: ReadonlyArray<number>
  readonly last_job: string | null
}

const head = ["SCHEDULE", "STATE", "WHEN", "TYPE", "QUEUE", "LAST (UTC)", "NEXT (UTC)"]

const when = ({ cron, every_ms, zone }: ShownSchedule): string =>
  cron === null ? `every ${Text.length(every_ms ?? 0)}` : zone === null || zone === "UTC" ? cron : `${cron} ${zone}`

const at = (ms: number | null | undefined): Table.Cell =>
  Table.cell(ms === null || ms === undefined ? null : Text.time(ms).slice(0, 19))

const row = (schedule: ShownSchedule): ReadonlyArray<Table.Cell> => [
  Table.cell(schedule.name),
  Table.cell(schedule.paused ? "paused" : "on", schedule.paused ? "bad" : "good"),
  Table.cell(when(schedule)),
  Table.cell(schedule.type),
  Table.cell(schedule.queue),
  at(schedule.last_fire_ms),
  at(schedule.next_fires_ms[0])
]

export const table = (look: Table.Look, schedules: ReadonlyArray<ShownSchedule>): string =>
  Table.table(look, head, schedules.map(row), "no schedules")

export const page = (look: Table.Look, schedule: ShownSchedule): string => {
  const { missed } = schedule
  // No heading says whose clock it is, and `when` may be by another one.
  const zoned = (ms: number | null) => Table.cell(ms === null ? null : `${Text.time(ms).slice(0, 19)} UTC`)
  return Table.fields(look, [
    ["schedule", Table.cell(schedule.name)],
    ["state", Table.cell(schedule.paused ? "paused" : "on", schedule.paused ? "bad" : "good")],
    ["when", Table.cell(when(schedule))],
    ["type", Table.cell(schedule.type)],
    ["payload", Table.cell(JSON.stringify(schedule.payload))],
    ["queue", Table.cell(schedule.queue)],
    ["missed", Table.cell(typeof missed === "string" ? missed : `the newest ${missed.all}`)],
    ["overlap", Table.cell(schedule.overlap)],
    ["last", zoned(schedule.last_fire_ms)],
    ["last job", Table.cell(schedule.last_job)],
    ...schedule.next_fires_ms.map((ms, n) => [n === 0 ? "next" : "", zoned(ms)] as const)
  ])
}
