/** `/stats` as lines for people. */
import * as Table from "./Table.ts"
import * as Text from "./Text.ts"

type Numbers = Readonly<Record<string, number>>

export interface ShownStats {
  readonly version: string
  readonly profile: string
  readonly jobs: { readonly by_state: Numbers; readonly by_type: Numbers; readonly by_queue: Numbers }
  readonly oldest_ready_ms: number | null
  readonly as_of_ms: number
  readonly counters: Numbers
  readonly unhandled: Numbers
  readonly workers: ReadonlyArray<{
    readonly name: string
    readonly role: string
    readonly version: string
    readonly slots: number
    readonly running: number
    readonly runaways: number
    readonly draining: boolean
    readonly started_at_ms: number
    readonly seen_at_ms: number
  }>
}

const typesShown = 20

const numbers = (look: Table.Look, name: string, from: Numbers): string => {
  const entries = Object.entries(from).sort(([, a], [, b]) => b - a)
  const rows = entries.slice(0, typesShown).map(([key, n]) => [Table.cell(key), Table.cell(n)])
  const more = entries.length > typesShown ? `\n(${entries.length - typesShown} more: --json)` : ""
  return Table.table(look, [name, "JOBS"], rows, "") + more
}

export const page = (look: Table.Look, stats: ShownStats): string => {
  const { by_queue, by_state, by_type } = stats.jobs
  const workers = stats.workers.map((worker) => [
    Table.cell(worker.name),
    Table.cell(worker.role),
    Table.cell(worker.version, worker.version === stats.version ? "plain" : "bad"),
    Table.cell(`${worker.running}/${worker.slots}`),
    Table.cell(worker.runaways, worker.runaways > 0 ? "bad" : "plain"),
    Table.cell(Text.length(worker.seen_at_ms - worker.started_at_ms)),
    Table.cell(worker.draining ? "draining" : "up", worker.draining ? "bad" : "good")
  ])
  const parts = [
    `Deadman ${Text.clean(stats.version)}, profile ${Text.clean(stats.profile)}, as of ${
      Text.time(stats.as_of_ms)
    } UTC`,
    Table.fields(look, [
      ...Object.entries(by_state).map(([state, n]) => [state, Table.cell(n)] as const),
      ["oldest ready", Table.cell(stats.oldest_ready_ms === null ? "none" : Text.length(stats.oldest_ready_ms))]
    ]),
    ...(Object.keys(by_type).length === 0 ? [] : [numbers(look, "TYPE", by_type)]),
    ...(Object.keys(by_queue).length < 2 ? [] : [numbers(look, "QUEUE", by_queue)]),
    ...(Object.keys(stats.unhandled).length === 0 ? [] : [numbers(look, "NO HANDLER ANYWHERE", stats.unhandled)]),
    Table.fields(look, Object.entries(stats.counters).map(([name, n]) => [name.replaceAll("_", " "), Table.cell(n)])),
    Table.table(look, ["PROCESS", "ROLE", "VERSION", "RUNS", "RUNAWAYS", "FOR", "STATE"], workers, "no processes")
  ]
  return parts.join("\n\n")
}
