/**
 * The chores of a cluster, each in a fiber of its own: reclaim, promote, expire,
 * announce, prune, rank anew, and fire schedules. Any number of keepers may run at the same time.
 *
 * They end with the scope; a chore that is cut off half-way is done again by
 * whoever comes next.
 */
import { Effect, Layer, Schedule } from "effect"
import * as Announcer from "./Announcer.ts"
import * as Expirer from "./Expirer.ts"
import * as Promoter from "./Promoter.ts"
import * as Pruner from "./Pruner.ts"
import * as Reaper from "./Reaper.ts"
import * as Reranker from "./Reranker.ts"
import * as Scheduler from "./Scheduler.ts"

const make = Effect.gen(function*() {
  yield* Effect.forkScoped(Reaper.run)
  yield* Effect.forkScoped(
    // Subscribing itself may fail while the transport is away.
    Promoter.run.pipe(
      Effect.tapCause((cause) => Effect.logWarning("promoter: cannot subscribe, trying again", cause)),
      Effect.retry(Schedule.spaced("1 second")),
      Effect.scoped
    )
  )
  yield* Effect.forkScoped(Expirer.run)
  yield* Effect.forkScoped(Announcer.run)
  yield* Effect.forkScoped(Pruner.run)
  yield* Effect.forkScoped(Scheduler.run)
  yield* Effect.forkScoped(
    Reranker.run.pipe(
      Effect.tapCause((cause) => Effect.logWarning("reranker: cannot subscribe, trying again", cause)),
      Effect.retry(Schedule.spaced("1 second")),
      Effect.scoped
    )
  )
})

export const layer = Layer.effectDiscard(make)
