/**
 * Makes jobs ready when they are due, and tells the workers.
 *
 * The scan of the store is what makes promotion certain. It sleeps until the
 * next job is due, at most one poll long, and is woken when something is due
 * sooner.
 *
 * Where there is an index of the near future outside the store, that one makes
 * promotion punctual, and the scan catches what it does not know. The index is
 * filled from the store up to its horizon, a page a round, whenever it says that
 * it was lost or is half way through; and each scan adds what will be due before
 * the next one, so that a job that was made to wait by whoever, a retry or a
 * reclaim or a user's SQL, is punctual too. While the index is away the scan
 * does all of it, as if there were none.
 */
import { Duration, Effect, Queue } from "effect"
import { DelayedJobs, type DelayedJobsUnavailable } from "../../ports/DelayedJobs.ts"
import { JobStore, type Promoted } from "../../ports/JobStore.ts"
import { Transport } from "../../ports/Transport.ts"
import * as Steady from "../process/Steady.ts"
import { KeeperConfig } from "./KeeperConfig.ts"

const batch = 1_000
/** A fill ends here: what is due first is in, and the scans bring the rest. */
const fillMax = 100_000
/** Whoever fills has so long; others fill meanwhile only if it was lost again. */
const fillingMs = 10_000
/** After a fill there is something new to look at, and one that is lost again at once is not repeated without a pause. */
const filledPauseMs = 100
/** Between two scans where an index makes promotion punctual, and how far ahead of itself a scan looks. */
const scanEveryMs = 2_000
const aheadMs = 5_000
/** The longest between two scans while the index is away. */
const awayScanMs = 1_000
/** However often it is woken. */
const scanGapMs = 50

export const make = Effect.gen(function*() {
  const store = yield* JobStore
  const transport = yield* Transport
  const delayed = yield* DelayedJobs
  const horizonMs = delayed.horizonMs ?? 0
  let away = false
  let filling: { fromMs: number | null; left: number } | null = null

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

  const lost = (error: DelayedJobsUnavailable) =>
    Effect.suspend(() => {
      filling = null
      if (away) {
        return Effect.void
      }
      away = true
      return Effect.logWarning(
        "promoter: the index of what is due next does not answer, scanning Postgres instead",
        error.cause
      )
    })

  const back = Effect.suspend(() => {
    if (!away) {
      return Effect.void
    }
    away = false
    return Effect.logInfo("promoter: the index of what is due next answers again")
  })

  /** One page. Answers whether there is another. */
  const fill = Effect.gen(function*() {
    const begins = filling === null
    const { fromMs, left } = filling ??= { fromMs: null, left: fillMax }
    const { jobs, nowMs } = yield* store.upcoming(horizonMs, fromMs, batch)
    if (begins) {
      yield* delayed.filled(nowMs + fillingMs)
    }
    yield* delayed.schedule(jobs)
    if (begins) {
      // After the page, so that nothing becomes due between the two: what was due by then is in no fill.
      yield* scan
    }
    const last = jobs.at(-1)?.runAtMs
    if (last === undefined || jobs.length < batch || left <= batch) {
      filling = null
      yield* delayed.filled(nowMs + horizonMs / 2)
      return false
    }
    // A page full of one instant is left behind: the scan has the rest of that one.
    filling = { fromMs: last > jobs[0]!.runAtMs ? last : last + 1, left: left - batch }
    return true
  })

  /** Promotes what the index says. Answers how long until something may be due. */
  const indexed = Effect.gen(function*() {
    const nowMs = yield* store.now
    const due = yield* delayed.due(nowMs, batch)
    if (due.ids.length > 0) {
      yield* publish(yield* store.promoteIds(due.ids))
      yield* delayed.forget(due.ids)
    }
    const fills = filling !== null || due.wantsFill
    const more = fills && (yield* fill)
    yield* back
    if (more || due.ids.length === batch) {
      return 0
    }
    return fills ? filledPauseMs : due.nextMs === null ? Infinity : Math.max(0, due.nextMs - nowMs)
  }).pipe(Effect.catchTag("DelayedJobsUnavailable", (error) => Effect.as(lost(error), Infinity)))

  /** The scan beside an index. Answers how long until the next one. */
  const beside = Effect.gen(function*() {
    // First what will be due, then what is: what becomes due in between is in both, the other way round in neither.
    const { jobs, nowMs } = yield* store.upcoming(aheadMs, null, batch)
    // While it is away nothing here waits for it: the other loop notices when it is back.
    if (!away) {
      yield* Effect.catch(delayed.schedule(jobs), lost)
    }
    const inMs = yield* scan
    const last = jobs.at(-1)?.runAtMs ?? Infinity
    return inMs <= 0 || away
      ? Math.min(inMs, awayScanMs)
      : Math.min(scanEveryMs, jobs.length === batch ? (last - nowMs) / 2 : Infinity)
  })

  return { scan, indexed, beside }
})

export const run = Effect.gen(function*() {
  const { beside, indexed, scan } = yield* make
  const transport = yield* Transport
  const delayed = yield* DelayedJobs
  const config = yield* KeeperConfig
  const wakes = (yield* transport.subscribe({ worker: false })).wakes
  const pollMs = Duration.toMillis(config.promotePoll)

  /** Until it is time, or something says that there is a reason to look now. */
  const pause = (woken: Effect.Effect<unknown>, mostMs = pollMs) => (inMs: number): Effect.Effect<void> =>
    inMs <= 0 ? Effect.yieldNow : Effect.asVoid(Effect.raceFirst(
      Effect.sleep(Duration.millis(Math.min(mostMs, Math.max(inMs, 5)))),
      woken
    ))

  const nextDue = Effect.gen(function*() {
    while (true) {
      const wake = yield* Queue.take(wakes)
      if (wake._tag === "Due" || wake._tag === "Resumed") {
        return
      }
    }
  })

  if (delayed.horizonMs === null) {
    return yield* Steady.run(
      { name: "promote", limit: "10 seconds", retry: "1 second", pause: pause(nextDue) },
      scan
    )
  }

  const scanned = yield* Queue.sliding<void>(1)
  const besideAgain = Effect.gen(function*() {
    const inMs = yield* beside
    yield* Queue.offer(scanned, undefined)
    return inMs
  })
  // While the index is away this loop is the punctual one, and comes at least as often as without any.
  const soon = pause(Effect.andThen(Effect.sleep(Duration.millis(scanGapMs)), nextDue), scanEveryMs)
  return yield* Effect.raceFirst(
    Steady.run(
      { name: "promote-index", limit: "10 seconds", retry: "1 second", pause: pause(Queue.take(scanned)) },
      indexed
    ),
    Steady.run({ name: "promote", limit: "20 seconds", retry: "1 second", pause: soon }, besideAgain)
  )
})
