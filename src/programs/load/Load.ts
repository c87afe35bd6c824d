/** Submits many jobs, batch by batch, straight into the store. */
import { Effect, Random, Schedule, Schema } from "effect"
import { type JobType, type NewJob, plainJob } from "../../domain/Job.ts"
import type { JobId } from "../../domain/JobId.ts"
import { JobStore, JobStoreUnavailable } from "../../ports/JobStore.ts"
import * as JobIds from "../submit/JobIds.ts"

/** The store cannot hold these jobs: no further try helps. */
export class LoadRefused extends Schema.TaggedError<LoadRefused>()("LoadRefused", { message: Schema.String }) {}

export interface Workload {
  readonly jobs: number
  readonly type: JobType
  /** The payload of the n-th job, as JSON text. */
  readonly payload: (n: number, draw: number) => string
  readonly batch: number
  /** Batches under way at once. */
  readonly width: number
}

/** The first and the last id of what was loaded; ids are drawn in order. `null` if nothing was. */
export type Loaded = { readonly first: JobId; readonly last: JobId } | null

const triesMax = 20

/** Answers what was stored. An outage is sat out for a while: ids are drawn before, so nothing comes twice. */
export const run = Effect.fnUntraced(function*(
  workload: Workload,
  onStored: (stored: number) => Effect.Effect<void>
): Effect.fn.Return<Loaded, LoadRefused | JobStoreUnavailable, JobStore> {
  const store = yield* JobStore
  const draw = yield* JobIds.make
  let stored = 0
  let first: JobId | null = null
  let last: JobId | null = null
  const drawn = () => {
    last = draw()
    first ??= last
    return last
  }
  const job = (n: number, fraction: number): NewJob => ({
    id: drawn(),
    ...plainJob(workload.type, workload.payload(n, fraction))
  })
  const starts = Array.from({ length: Math.ceil(workload.jobs / workload.batch) }, (_, n) => n * workload.batch)
  yield* Effect.forEach(starts, (start) =>
    Effect.gen(function*() {
      const jobs: Array<NewJob> = []
      for (let n = start; n < Math.min(start + workload.batch, workload.jobs); n++) {
        jobs.push(job(n, yield* Random.next))
      }
      const { answers } = yield* store.submit(jobs, { atomic: false }).pipe(
        Effect.filterOrFail(
          ({ answers }) => answers.every(({ _tag }) => _tag !== "Undecided"),
          () => new JobStoreUnavailable({ operation: "submit", cause: new Error("something is locked that jobs need") })
        ),
        Effect.retry({ times: triesMax, schedule: Schedule.spaced("500 millis") })
      )
      const refused = answers.find(({ _tag }) => _tag !== "Created")
      if (refused !== undefined) {
        return yield* new LoadRefused({
          message: refused._tag === "Refused" ? refused.message : `a job was answered ${refused._tag}`
        })
      }
      stored += jobs.length
      yield* onStored(stored)
    }), { concurrency: workload.width, discard: true })
  return first === null || last === null ? null : { first, last }
})
