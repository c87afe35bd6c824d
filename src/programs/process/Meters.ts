/**
 * What this process has counted since it started.
 *
 * The same counters are served as Prometheus text, shown in `/stats`, and
 * reported to `Sessions`. They are added to in batches: one update per claim,
 * settle or submit, not one per job. Labels have few values by construction;
 * nothing a user chose ever becomes a label.
 */
import { type Context, Effect, Metric } from "effect"

const counter = (name: string, description: string) =>
  Metric.counter(`deadman_${name}_total`, { description, incremental: true })

export const counters = {
  submitted: counter("submitted", "Jobs stored by this process"),
  replayed: counter("replayed", "Submits answered from a known Idempotency-Key"),
  claimed: counter("claimed", "Jobs taken by this process"),
  completed: counter("completed", "Runs that ended well"),
  failed: counter("failed", "Runs that ended in failure, timeouts included"),
  dead: counter("dead", "Jobs that ended dead"),
  released: counter("released", "Jobs handed back at no cost"),
  reclaimed: counter("reclaimed", "Jobs taken back from lapsed leases"),
  lease_losses: counter("lease_losses", "Leases of this process that were lost"),
  stale_writes: counter("stale_writes", "Writes of this process that were refused as stale"),
  runaways: counter("runaways", "Handlers that did not end within 1 s of their interruption"),
  schedule_fires: counter("schedule_fires", "Jobs made by this process for the ticks of schedules"),
  garbage: counter("garbage_messages", "Transport messages that could not be read and were skipped")
} as const

export type CounterName = keyof typeof counters

const boundaries = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 3_600_000]

/** From when a job was due to its claim, both by the store's clock. */
export const waitMs = Metric.histogram("deadman_wait_ms", {
  description: "Time between a job's being due and its claim, in milliseconds",
  boundaries
})

export const runMs = Metric.histogram("deadman_run_ms", {
  description: "Time a handler ran, in milliseconds",
  boundaries
})

/** How often a counter was added to. */
let changes = 0

export const add = (name: CounterName, n: number): Effect.Effect<void> =>
  n > 0
    ? Effect.suspend(() => {
      changes += 1
      return Metric.update(counters[name], n)
    })
    : Effect.void

/** Another text once one of the counters has moved: to be asked instead of reading all of them. */
export const stamp = (context: Context.Context<never>): string =>
  `${changes} ${counters.garbage.valueUnsafe(context).count}`

/** All counters with their present values. */
export const read: Effect.Effect<Readonly<Record<CounterName, number>>> = Effect.map(
  Effect.forEach(
    Object.entries(counters),
    ([name, metric]) => Effect.map(Metric.value(metric), (state) => [name, Number(state.count)] as const)
  ),
  (entries) => Object.fromEntries(entries) as Record<CounterName, number>
)
