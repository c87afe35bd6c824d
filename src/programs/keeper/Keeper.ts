/**
 * The chores of a cluster, each in a fiber of its own: reclaim, promote,
 * announce, prune. Any number of keepers may run at the same time.
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
  yield* Effect.forkScoped(Expirer.run)
})

export const layer = Layer.effectDiscard(make)
