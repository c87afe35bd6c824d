/**
 * Says that jobs were stored, behind the answer.
 *
 * Publishing is a hint: the store has the jobs and workers claim from it by themselves, so a transport that is slow or
 * away costs latency. What waits to be said is bounded; beyond the bound nothing is said.
 *
 * To say something costs much the same for one job as for many, and whoever submits pays for it. So a round says what
 * has come together since the last one began, and the more that was, the longer the next one waits for company. One job
 * after another waits for nobody.
 */
import { Effect, Latch, type Scope } from "effect"
import type { JobType, Queue } from "../../domain/Job.ts"
import type { JobId } from "../../domain/JobId.ts"
import { DelayedJobs } from "../../ports/DelayedJobs.ts"
import { Transport } from "../../ports/Transport.ts"

/** Jobs that wait to be said. */
const waitingMax = 20_000
const roundMax = 1_000
const deadline = "5 seconds"
const closeMs = 1_000
/** After a round of so many jobs the next one waits a millisecond, and in proportion, up to the bound. */
const jobsPerMs = 16
const gapMaxMs = 5

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

type Hint = (jobs: ReadonlyArray<StoredJob>) => Effect.Effect<void, { readonly message: string }>

/** What is handed over is on its way, a round at a time. A hint that hangs holds up those of its kind. */
const inRounds = Effect.fnUntraced(function*(hint: Hint) {
  const some = yield* Latch.make()
  let waiting: Array<StoredJob> = []

  const round = Effect.suspend(() => {
    const jobs = waiting.slice(0, roundMax)
    waiting = waiting.slice(roundMax)
    if (waiting.length === 0) {
      some.closeUnsafe()
    }
    return Effect.suspend(() => hint(jobs)).pipe(
      Effect.timeout(deadline),
      Effect.catch((error) => Effect.logDebug(`a hint about new jobs was not taken: ${error.message}`)),
      // The next rounds are of other jobs.
      Effect.catchCause((cause) => Effect.logError("a hint about new jobs broke", cause)),
      Effect.as(Math.min(gapMaxMs, Math.floor(jobs.length / jobsPerMs)))
    )
  })

  const rounds = Effect.gen(function*() {
    while (true) {
      yield* some.await
      const gapMs = yield* round
      if (gapMs > 0) {
        yield* Effect.sleep(gapMs)
      }
    }
  })

  const rest: Effect.Effect<void> = Effect.suspend(() =>
    waiting.length === 0 ? Effect.void : Effect.andThen(round, rest)
  )

  yield* Effect.forkScoped(rounds)
  // The last submits were answered before this: nobody comes any more.
  yield* Effect.addFinalizer(() => Effect.timeoutOption(rest, closeMs))

  return (jobs: ReadonlyArray<StoredJob>) => {
    if (jobs.length === 0 || waiting.length >= waitingMax) {
      return
    }
    waiting = waiting.length === 0 ? [...jobs] : waiting.concat(jobs)
    some.openUnsafe()
  }
})

export const make: Effect.Effect<Announcer, never, Transport | DelayedJobs | Scope.Scope> = Effect.gen(function*() {
  const transport = yield* Transport
  const delayed = yield* DelayedJobs
  const publish = yield* inRounds(transport.publish)
  const schedule = yield* inRounds(delayed.schedule)

  return (stored, announced) => {
    const horizonMs = delayed.horizonMs
    if (announced && horizonMs === null) {
      return
    }
    const jobs = stored()
    if (!announced) {
      publish(jobs.filter((job) => job.runAtMs <= job.createdAtMs))
    }
    if (horizonMs !== null) {
      schedule(jobs.filter((job) => job.runAtMs > job.createdAtMs && job.runAtMs - job.createdAtMs <= horizonMs))
    }
  }
})
