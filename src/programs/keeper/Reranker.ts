/**
 * Gives ready jobs their new place when their queue has got another step.
 *
 * In small batches with a breath between them, so that claims do not wait. What
 * was changed is told by a wake; one that gets lost costs some seconds.
 */
import { Duration, Effect, Queue } from "effect"
import { Queues } from "../../ports/Queues.ts"
import { Transport } from "../../ports/Transport.ts"
import * as Steady from "../process/Steady.ts"

const batch = 1_000
const breathMs = 20
const pollMs = 10_000

export const round = Effect.flatMap(Queues, (queues) => queues.rerank(batch))

export const run = Effect.gen(function*() {
  const transport = yield* Transport
  const wakes = (yield* transport.subscribe({ worker: false })).wakes

  const told = Effect.gen(function*() {
    while (true) {
      const wake = yield* Queue.take(wakes)
      if (wake._tag === "Queues" || wake._tag === "Resumed") {
        return
      }
    }
  })

  return yield* Steady.run({
    name: "rerank",
    limit: "1 minute",
    retry: "5 seconds",
    pause: ({ againInMs }) =>
      Effect.raceFirst(
        Effect.sleep(Duration.millis(Math.min(pollMs, Math.max(breathMs, againInMs ?? pollMs)))),
        againInMs === 0 ? Effect.never : told
      )
  }, round)
})
