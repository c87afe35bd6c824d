/**
 * Ends jobs that were not started in time.
 *
 * No worker takes one after its time, whether this has run or not: it is what makes the end visible, and announces it.
 */
import { Duration, Effect } from "effect"
import { JobStore } from "../../ports/JobStore.ts"
import * as Meters from "../process/Meters.ts"
import * as Steady from "../process/Steady.ts"
import { KeeperConfig } from "./KeeperConfig.ts"

const batch = 1_000

export const round = Effect.flatMap(JobStore, (store) => store.expire(batch)).pipe(
  Effect.tap(({ jobs }) => Meters.add("dead", jobs))
)

export const run = Effect.gen(function*() {
  const config = yield* KeeperConfig
  const pollMs = Duration.toMillis(config.expirePoll)
  return yield* Steady.run({
    name: "expire",
    limit: "30 seconds",
    retry: "5 seconds",
    pause: ({ jobs, nextInMs }) =>
      jobs === batch ? Effect.yieldNow : Effect.sleep(Math.min(pollMs, Math.max(nextInMs ?? pollMs, 50)))
  }, round)
})
