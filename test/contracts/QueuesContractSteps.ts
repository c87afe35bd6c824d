/** What the laws of `Queues` are tested with, beside the steps of `JobStore`. */
import type { Vitest } from "@effect/vitest"
import { Effect } from "effect"
import type { JobType, NewJob, Queue } from "../../src/domain/Job.ts"
import { type ClaimRequest, JobStore } from "../../src/ports/JobStore.ts"
import type { Queues } from "../../src/ports/Queues.ts"
import type * as Clock from "../support/Clock.ts"
import * as Jobs from "../support/Jobs.ts"
import * as Steps from "./JobStoreContractSteps.ts"

/** One part of the suite. */
export type Laws = (it: Vitest.MethodsNonLive<JobStore | Queues>, pass: Clock.Pass) => void

/** A queue of its own, and a type. */
export const fresh = Effect.all({ queue: Jobs.freshQueue, type: Jobs.freshType })

export const claimIds = Effect.fnUntraced(function*(
  jobs: ReadonlyArray<Pick<NewJob, "id">>,
  type: JobType,
  change: Partial<ClaimRequest> = {}
) {
  const store = yield* JobStore
  return yield* store.claimIds({
    ...(yield* Steps.request({ type }, change)),
    ids: jobs.map(({ id }) => id)
  })
})

export const inTurn = Effect.fnUntraced(function*(
  of: { readonly queue: Queue; readonly type: JobType },
  priorities: ReadonlyArray<number>,
  pass: Clock.Pass
) {
  const jobs = []
  for (const priority of priorities) {
    jobs.push(yield* Steps.submitted({ ...of, priority }))
    yield* pass(5)
  }
  return jobs
})
