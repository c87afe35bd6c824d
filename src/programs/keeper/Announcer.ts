/**
 * Announces dead jobs, at least once each.
 *
 * The marker on the row is the outbox: it is cleared after the announcement is
 * on its way, never before, so a crash in between says it twice and never not at all.
 */
import { Effect } from "effect"
import { JobStore } from "../../ports/JobStore.ts"
import { Transport } from "../../ports/Transport.ts"
import * as Steady from "../process/Steady.ts"
import { KeeperConfig } from "./KeeperConfig.ts"

const batch = 200

/** Announces one batch. Answers how many there were. */
export const round = Effect.gen(function*() {
  const store = yield* JobStore
  const transport = yield* Transport
  const letters = yield* store.deadLetters(batch)
  if (letters.length > 0) {
    yield* transport.announceDead(letters)
    yield* store.announced(letters.map(({ id }) => id))
  }
  return letters.length
})

export const run = Effect.gen(function*() {
  const config = yield* KeeperConfig
  return yield* Steady.run({
    name: "announce",
    limit: "30 seconds",
    retry: "5 seconds",
    degraded: {
      by: (error) => error._tag === "TransportUnavailable",
      reason: "dead letters wait: what announces them takes none at present"
    },
    pause: (announced) => announced === batch ? Effect.yieldNow : Effect.sleep(config.announcePoll)
  }, round)
})
