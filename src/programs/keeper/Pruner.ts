/**
 * Deletes what has been final for longer than it is kept.
 *
 * In small batches with a breath between them, so that no lock is held for long
 * and claims do not wait; a batch cut short by a crash is simply not done.
 */
import { Duration, Effect } from "effect"
import { JobStore } from "../../ports/JobStore.ts"
import * as Steady from "../process/Steady.ts"
import { KeeperConfig } from "./KeeperConfig.ts"

const batch = 1_000

export const round = Effect.gen(function*() {
  const store = yield* JobStore
  const config = yield* KeeperConfig
  return yield* store.prune({
    completedMs: Duration.toMillis(config.retainCompleted),
    deadMs: Duration.toMillis(config.retainDead),
    limit: batch
  })
})

export const run = Effect.gen(function*() {
  const config = yield* KeeperConfig
  return yield* Steady.run({
    name: "prune",
    limit: "2 minutes",
    retry: "10 seconds",
    pause: (pruned) => Effect.sleep(pruned.more ? Duration.millis(50) : config.prunePoll)
  }, round)
})
