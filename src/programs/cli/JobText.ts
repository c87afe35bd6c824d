/** Jobs as lines for people, from what the API answers. */
import * as Table from "./Table.ts"
import * as Text from "./Text.ts"

interface Entry {
  readonly at_ms: number
}

/** What is shown of a job. Whatever else a server says of it is left to `--json`. */
export interface ShownJob {
  readonly id: string
  readonly type: string
  readonly queue: string
  readonly priority: number
  readonly state: "pending" | "running" | "failed" | "completed" | "dead"
  readonly payload: unknown
  readonly tags: ReadonlyArray<string>
  readonly attempts: number
  readonly max_attempts: number
  readonly timeout_ms: number | null
  readonly run_at_ms: number
  readonly created_at_ms: number
  readonly started_at_ms: number | null
  readonly finished_at_ms: number | null
  readonly worker: string | null
  readonly epoch: number
  readonly deliveries: number
  readonly lease_losses: number
  readonly stale_writes: number
  readonly reason: string | null
  readonly result: unknown
  readonly errors: ReadonlyArray<
    Entry & { readonly attempt: number; readonly worker: string; readonly name: string; readonly message: string }
  >
  readonly errors_omitted: number
  readonly events: ReadonlyArray<
    Entry & { readonly kind: string; readonly epoch: number; readonly worker: string | null }
  >
  readonly events_omitted: number
  readonly resubmitted_from: string | null
  readonly resubmitted_as: string | null
  readonly progress?: unknown
  readonly logs?: ReadonlyArray<Entry & { readonly attempt: number; readonly line: string }>
}

const tones: Readonly<Record<ShownJob["state"], Table.Tone>> = {
  pending: "plain",
  running: "busy",
  failed: "bad",
  completed: "good",
  dead: "bad"
}

const stateOf = (job: ShownJob): Table.Cell =>
  Table.cell(job.reason === null ? job.state : `${job.state} (${job.reason})`, tones[job.state])

const tookOf = (job: ShownJob): string | null =>
  job.started_at_ms === null || job.finished_at_ms === null ? null : Text.length(job.finished_at_ms - job.started_at_ms)

const head = ["ID", "STATE", "TYPE", "QUEUE", "FAILED", "CREATED (UTC)", "TOOK", "WORKER"]

const row = (job: ShownJob): ReadonlyArray<Table.Cell> => [
  Table.cell(job.id),
  stateOf(job),
  Table.cell(job.type),
  Table.cell(job.queue),
  Table.cell(`${job.attempts}/${job.max_attempts}`),
  Table.cell(Text.time(job.created_at_ms)),
  Table.cell(tookOf(job)),
  Table.cell(job.worker)
]

export const table = (look: Table.Look, jobs: ReadonlyArray<ShownJob>): string =>
  Table.table(look, head, jobs.map(row), "no jobs")

/** One change of one job, for a list that grows. */
export const change = (look: Table.Look, job: ShownJob, atMs: number): string => {
  const state = stateOf(job)
  const error = job.errors.at(-1)
  const about = job.state === "running"
    ? `by ${job.worker ?? "-"}, delivery ${job.deliveries}`
    : job.state === "completed"
    ? `in ${tookOf(job) ?? "-"}`
    : error !== undefined && (job.state === "failed" || job.state === "dead")
    ? `${job.attempts}/${job.max_attempts} ${error.name}: ${error.message}`
    : job.lease_losses > 0
    ? `after ${job.lease_losses} lost leases`
    : ""
  const line = `${Text.time(atMs).slice(11)}  ${job.id}  ${state.text.padEnd(9)}  ${job.type}  ${about}`.trimEnd()
  const shown = Text.clean(look.width === null ? line : [...line].slice(0, look.width).join(""))
  return shown.replace(state.text, look.paint(state.text, state.tone))
}

const story = (look: Table.Look, job: ShownJob): ReadonlyArray<string> => {
  const entries = [
    ...job.errors.map(({ at_ms, attempt, message, name, worker }) => ({
      at_ms,
      what: `failed, attempt ${attempt}`,
      worker,
      text: `${name}: ${message}`,
      tone: "bad" as const
    })),
    ...job.events.map(({ at_ms, epoch, kind, worker }) => ({
      at_ms,
      what: kind.replaceAll("_", " "),
      worker,
      text: `epoch ${epoch}`,
      tone: "bad" as const
    })),
    ...(job.logs ?? []).map(({ at_ms, attempt, line }) => ({
      at_ms,
      what: `log, run ${attempt}`,
      worker: null,
      text: line,
      tone: "plain" as const
    }))
  ].sort((a, b) => a.at_ms - b.at_ms)
  if (entries.length === 0) {
    return []
  }
  const omitted = job.errors_omitted + job.events_omitted
  const rows = entries.map(({ at_ms, text, tone, what, worker }) => [
    Table.cell(Text.time(at_ms)),
    Table.cell(what, tone),
    Table.cell(worker),
    Table.cell(text)
  ])
  return [
    "",
    Table.table(look, ["AT (UTC)", "WHAT", "WORKER", ""], rows, ""),
    ...(omitted === 0 ? [] : [`(${omitted} more are not kept)`])
  ]
}

export const page = (look: Table.Look, job: ShownJob): string => {
  const at = (ms: number | null) => Table.cell(ms === null ? null : `${Text.time(ms)} UTC`)
  const ids = (name: string, id: string | null) => id === null ? [] : [[name, Table.cell(id)] as const]
  return [
    Table.fields(look, [
      ["id", Table.cell(job.id)],
      ["state", stateOf(job)],
      ["type", Table.cell(job.type)],
      ["queue", Table.cell(job.priority === 0 ? job.queue : `${job.queue}, priority ${job.priority}`)],
      ["tags", Table.cell(job.tags.length === 0 ? null : job.tags.join(", "))],
      ["payload", Table.cell(JSON.stringify(job.payload))],
      ["result", Table.cell(JSON.stringify(job.result))],
      ...(job.progress === undefined || job.progress === null
        ? []
        : [["progress", Table.cell(JSON.stringify(job.progress))] as const]),
      ["failed", Table.cell(`${job.attempts} of ${job.max_attempts}`)],
      ["deliveries", Table.cell(job.deliveries)],
      ["lease losses", Table.cell(job.lease_losses, job.lease_losses > 0 ? "bad" : "plain")],
      ["stale writes", Table.cell(job.stale_writes, job.stale_writes > 0 ? "bad" : "plain")],
      ["timeout", Table.cell(job.timeout_ms === null ? null : Text.length(job.timeout_ms))],
      ["created", at(job.created_at_ms)],
      ["due", at(job.run_at_ms)],
      ["started", at(job.started_at_ms)],
      ["finished", at(job.finished_at_ms)],
      ["worker", Table.cell(job.worker)],
      ...ids("resubmitted from", job.resubmitted_from),
      ...ids("resubmitted as", job.resubmitted_as)
    ]),
    ...story(look, job)
  ].join("\n")
}
