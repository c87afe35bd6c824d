/** `DelayedJobs` in a map: for tests and simulation. */
import { Effect, Layer } from "effect"
import type { JobId } from "../../domain/JobId.ts"
import { DelayedJobs } from "../../ports/DelayedJobs.ts"

/** Ten minutes, so that far dates exercise the refill. */
const horizonMs = 600_000

const make = Effect.sync(() => {
  const times = new Map<JobId, number>()
  let filledUntilMs = Number.NEGATIVE_INFINITY

  const schedule: DelayedJobs["Service"]["schedule"] = (jobs) =>
    Effect.sync(() => {
      for (const { id, runAtMs } of jobs) {
        times.set(id, runAtMs)
      }
    })

  const due: DelayedJobs["Service"]["due"] = (nowMs, limit) =>
    Effect.sync(() => {
      const ripe: Array<readonly [JobId, number]> = []
      let nextMs: number | null = null
      for (const entry of times) {
        if (entry[1] <= nowMs) {
          ripe.push(entry)
        } else if (nextMs === null || entry[1] < nextMs) {
          nextMs = entry[1]
        }
      }
      ripe.sort((a, b) => a[1] - b[1])
      return { ids: ripe.slice(0, limit).map(([id]) => id), nextMs, wantsFill: filledUntilMs <= nowMs }
    })

  const forget: DelayedJobs["Service"]["forget"] = (ids) =>
    Effect.sync(() => {
      for (const id of ids) {
        times.delete(id)
      }
    })

  const filled: DelayedJobs["Service"]["filled"] = (untilMs) =>
    Effect.sync(() => {
      filledUntilMs = untilMs
    })

  return DelayedJobs.of({ horizonMs, schedule, due, filled, forget })
})

export const layer: Layer.Layer<DelayedJobs> = Layer.effect(DelayedJobs, make)
