/**
 * Says that jobs were stored, behind the answer.
 *
 * Publishing is a hint: the store has the jobs and workers claim from it by themselves, so a transport that is slow or
 * away costs latency. What is under way is bounded; beyond the bound nothing is said.
 */
import { Effect, FiberSet, type Scope } from "effect"
import type { JobType, Queue } from "../../domain/Job.ts"
import type { JobId } from "../../domain/JobId.ts"
import { DelayedJobs } from "../../ports/DelayedJobs.ts"
import { Transport } from "../../ports/Transport.ts"

const inFlightMax = 16
const deadline = "5 seconds"

export interface StoredJob {
  readonly id: JobId
  readonly type: JobType
  readonly queue: Queue
  /** It has a priority: it does not queue behind what was published. */
  readonly ordered: boolean
  readonly createdAtMs: number
  readonly runAtMs: number
}

/** `stored` is asked for only where there is somebody to tell. */
export type Announcer = (stored: () => ReadonlyArray<StoredJob>, announced: boolean) => void

export const make: Effect.Effect<Announcer, never, Transport | DelayedJobs | Scope.Scope> = Effect.gen(function*() {
  const transport = yield* Transport
  const delayed = yield* DelayedJobs
  const fork = yield* FiberSet.makeRuntime<never, void, never>()
  let inFlight = 0

  const start = (hint: Effect.Effect<void, { readonly message: string }>) => {
    if (inFlight >= inFlightMax) {
      return
    }
    inFlight += 1
    fork(hint.pipe(
      Effect.timeout(deadline),
      Effect.catch((error) => Effect.logDebug(`a hint about new jobs was not taken: ${error.message}`)),
      Effect.ensuring(Effect.sync(() => {
        inFlight -= 1
      }))
    ))
  }

  return (stored, announced) => {
    const horizonMs = delayed.horizonMs
    if (announced && horizonMs === null) {
      return
    }
    const jobs = stored()
    const ready = announced ? [] : jobs.filter((job) => job.runAtMs <= job.createdAtMs)
    if (ready.length > 0) {
      start(transport.publish(ready))
    }
    if (horizonMs !== null) {
      const near = jobs.filter((job) => job.runAtMs > job.createdAtMs && job.runAtMs - job.createdAtMs <= horizonMs)
      if (near.length > 0) {
        start(delayed.schedule(near))
      }
    }
  }
})
