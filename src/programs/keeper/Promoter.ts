/**
 * Makes jobs ready when they are due, and tells the workers.
 *
 * The scan of the store is what makes promotion certain. It sleeps until the
 * next job is due, at most one poll long, and is woken when something is due
 * sooner. Where there is an index of the near future outside the store, that one
 * makes promotion punctual and the scan only catches what it has lost.
 */
import { Duration, Effect, Queue } from "effect"
import { DelayedJobs } from "../../ports/DelayedJobs.ts"
import { JobStore, type Promoted } from "../../ports/JobStore.ts"
import { Transport } from "../../ports/Transport.ts"
import * as Steady from "../process/Steady.ts"
import { KeeperConfig } from "./KeeperConfig.ts"

const batch = 1_000

export const make = Effect.gen(function*() {
  const store = yield* JobStore
  const transport = yield* Transport
  const delayed = yield* DelayedJobs

  const publish = (promoted: Promoted) =>
    promoted.announced || promoted.jobs.length === 0
      ? Effect.void
      : transport.publish(promoted.jobs).pipe(
        // The jobs are ready in the store, and workers look there too: a lost hint costs latency only.
        Effect.catchTag("TransportUnavailable", (error) => Effect.logWarning("promoter: could not publish", error))
      )

  const scan = Effect.gen(function*() {
    const promoted = yield* store.promote(batch)
    yield* publish(promoted)
    return promoted.jobs.length === batch ? 0 : promoted.nextInMs ?? Infinity
  })

  /** Answers how long until something may be due. */
  const indexed = Effect.gen(function*() {
    const nowMs = yield* store.now
    const due = yield* delayed.due(nowMs, batch)
    if (due.ids.length > 0) {
      yield* publish(yield* store.promoteIds(due.ids))
      yield* delayed.forget(due.ids)
    }
    return due.ids.length === batch ? 0 : due.nextMs === null ? Infinity : Math.max(0, due.nextMs - nowMs)
  })

  return { scan, indexed }
})

export const run = Effect.gen(function*() {
  const { indexed, scan } = yield* make
  const transport = yield* Transport
  const delayed = yield* DelayedJobs
  const config = yield* KeeperConfig
  const wakes = (yield* transport.subscribe({ worker: false })).wakes

  const nextDue = Effect.gen(function*() {
    while (true) {
      const wake = yield* Queue.take(wakes)
      if (wake._tag === "Due" || wake._tag === "Resumed") {
        return
      }
    }
  })
  const pollMs = Duration.toMillis(config.promotePoll)
  const pause = (inMs: number) =>
    inMs <= 0 ? Effect.yieldNow : Effect.raceFirst(
      Effect.sleep(Duration.millis(Math.min(pollMs, Math.max(inMs, 5)))),
      Effect.ignore(nextDue)
    )

  const scanning = Steady.run({ name: "promote", limit: "10 seconds", retry: "1 second", pause }, scan)
  if (delayed.horizonMs === null) {
    return yield* scanning
  }
  return yield* Effect.raceFirst(
    Steady.run({ name: "promote-index", limit: "10 seconds", retry: "1 second", pause }, indexed),
    Steady.run({
      name: "promote",
      limit: "20 seconds",
      retry: "1 second",
      pause: (inMs) => inMs <= 0 ? Effect.yieldNow : Effect.sleep("3 seconds")
    }, scan)
  )
})
