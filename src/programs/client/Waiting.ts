/**
 * Waits until jobs are final, by asking the store.
 *
 * All waiters of a process share their questions: one reads many jobs. Asking is dense at first and gets rarer, up to
 * twice a second; with nobody waiting nothing is asked. A store that is away costs patience only.
 */
import { Clock, Deferred, Effect, Exit, FiberSet, Option, Schema, Semaphore } from "effect"
import type { Job } from "../../domain/Job.ts"
import type { JobId } from "../../domain/JobId.ts"
import * as JobState from "../../domain/JobState.ts"
import type { JobStore } from "../../ports/JobStore.ts"
import * as Signal from "../worker/Signal.ts"

/** There is no such job; it may have been pruned. */
export class JobNotFound extends Schema.TaggedError<JobNotFound>()("JobNotFound", { id: Schema.String }) {
  override get message(): string {
    return `there is no job ${this.id.slice(0, 100)}: it may have been pruned, or the id is of another database`
  }
}

/** The job goes on; only the waiting is over. */
export class WaitTimedOut extends Schema.TaggedError<WaitTimedOut>()("WaitTimedOut", {
  id: Schema.String,
  timeoutMs: Schema.Number
}) {
  override get message(): string {
    return `job ${this.id} was not final within ${this.timeoutMs} ms. It goes on: wait again, or give a longer timeoutMs. ` +
      "A job that stays pending may have no worker with its handler"
  }
}

const firstMs = 20
const mostMs = 500
/** Jobs of one question. */
const idsMax = 200
/** Who comes later waits for a place first. */
const waitersMax = 10_000

/** `null`: this process stops, and nobody asks for them any more. */
type Waiter = Deferred.Deferred<Job | null, JobNotFound>

export type Wait = (id: JobId, timeoutMs: number) => Effect.Effect<Job, JobNotFound | WaitTimedOut>

export const make = Effect.fnUntraced(function*(store: JobStore["Service"]) {
  const waiters = new Map<JobId, Set<Waiter>>()
  const places = yield* Semaphore.make(waitersMax)
  const fork = yield* FiberSet.makeRuntime<never, void, never>()
  const arrived = Signal.make()
  let watching = false
  let stopped = false
  let pauseMs = firstMs

  const end = (id: JobId, exit: Exit.Exit<Job | null, JobNotFound>) => {
    for (const waiter of waiters.get(id) ?? []) {
      Deferred.doneUnsafe(waiter, exit)
    }
    waiters.delete(id)
  }

  /** Asks about each job once. */
  const round = Effect.gen(function*() {
    const ids = [...waiters.keys()]
    for (let from = 0; from < ids.length; from += idsMax) {
      const asked = ids.slice(from, from + idsMax)
      const jobs = yield* Effect.exit(store.get(asked))
      if (Exit.isSuccess(jobs)) {
        const found = new Map(jobs.value.map((job) => [job.id, job]))
        for (const id of asked) {
          const job = found.get(id)
          if (job === undefined) {
            end(id, Exit.fail(new JobNotFound({ id })))
          } else if (JobState.isFinal(job.state)) {
            end(id, Exit.succeed(job))
          }
        }
      }
    }
  })

  const watch = Effect.gen(function*() {
    while (true) {
      yield* round
      // In one step with the look: who comes after it starts a watch of their own.
      if (waiters.size === 0) {
        watching = false
        return
      }
      yield* arrived.wait(pauseMs)
      pauseMs = Math.min(mostMs, Math.ceil(pauseMs * 1.5))
    }
  })

  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      stopped = true
      for (const id of Array.from(waiters.keys())) {
        end(id, Exit.succeed(null))
      }
    })
  )

  const nowMs = Effect.map(Clock.monotonicTimeNanos, (nanos) => Math.floor(Number(nanos) / 1_000_000))

  /** Who has no time to wait still wants to know. */
  const look = (id: JobId): Effect.Effect<Job, JobNotFound | WaitTimedOut> =>
    Effect.flatMap(Effect.option(store.get([id])), (found): Effect.Effect<Job, JobNotFound | WaitTimedOut> => {
      const jobs = Option.getOrNull(found)
      const job = jobs?.[0]
      return jobs !== null && job === undefined
        ? Effect.fail(new JobNotFound({ id }))
        : job !== undefined && JobState.isFinal(job.state)
        ? Effect.succeed(job)
        : Effect.fail(new WaitTimedOut({ id, timeoutMs: 0 }))
    })

  const sharing = (id: JobId, timeoutMs: number): Effect.Effect<Job | null, JobNotFound | WaitTimedOut> =>
    places.withPermits(1)(Effect.suspend((): Effect.Effect<Job | null, JobNotFound> => {
      if (stopped) {
        return Effect.succeed(null)
      }
      const waiter: Waiter = Deferred.makeUnsafe()
      const others = waiters.get(id)
      if (others === undefined) {
        waiters.set(id, new Set([waiter]))
      } else {
        others.add(waiter)
      }
      pauseMs = firstMs
      if (watching) {
        arrived.notify()
      } else {
        watching = true
        fork(watch)
      }
      return Effect.ensuring(
        Deferred.await(waiter),
        Effect.sync(() => {
          const left = waiters.get(id)
          left?.delete(waiter)
          if (left?.size === 0) {
            waiters.delete(id)
          }
        })
      )
    })).pipe(
      Effect.timeoutOrElse({ duration: timeoutMs, orElse: () => Effect.fail(new WaitTimedOut({ id, timeoutMs })) })
    )

  const wait: Wait = (id, timeoutMs) =>
    timeoutMs > 0
      ? Effect.flatMap(nowMs, (fromMs) =>
        Effect.flatMap(sharing(id, timeoutMs), (job) =>
          job === null
            ? Effect.flatMap(nowMs, (now) => Effect.fail(new WaitTimedOut({ id, timeoutMs: now - fromMs })))
            : Effect.succeed(job)))
      : look(id)

  return wait
})
