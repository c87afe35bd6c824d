/**
 * What the process says about itself: counts, counters, workers, readiness.
 *
 * Nobody who asks waits for a count: a loop reads them, often while somebody asks and seldom otherwise, so a hundred
 * open dashboards cost the store what one costs. A scrape reads gauges and runs nothing at all.
 */
import { Clock, Context, Deferred, Effect, Layer, Metric } from "effect"
import type { JobState } from "../../domain/JobState.ts"
import { jobStates } from "../../domain/JobState.ts"
import { type Counts, JobStore } from "../../ports/JobStore.ts"
import { guestPrefix, type ListedSession, Sessions } from "../../ports/Sessions.ts"
import { type Stats, Status, StatusUnavailable } from "../../ports/Status.ts"
import type { Loops } from "../process/Loops.ts"
import * as Meters from "../process/Meters.ts"
import * as Readiness from "../process/Readiness.ts"
import { Stopping } from "../process/Stopping.ts"
import * as Unhandled from "./Unhandled.ts"

/** Which program this is; said by the entry point. */
export class Identity extends Context.Service<Identity, {
  readonly version: string
  readonly profile: string
  readonly adapters: Readonly<Record<string, string>>
}>()("deadman/programs/server/StatusView/Identity") {}

const refreshMs = 1_500
const refreshIdleMs = 15_000
/** How long somebody who asked counts as asking. */
const interestMs = 30_000
/** What is older than this is not served any more. */
const staleMs = 5_000
/** A process that has not reported for this long is not listed. */
const sessionStaleMs = 15_000

const jobsGauge = Metric.gauge("deadman_jobs", { description: "Jobs in the store by state, some seconds behind" })
const stateGauges = new Map(jobStates.map((state) => [state, Metric.withAttributes(jobsGauge, { state })]))
const oldestGauge = Metric.gauge("deadman_oldest_ready_ms", {
  description: "How long the oldest job that may start has been due; 0 where none waits; some seconds behind"
})
const workersGauge = Metric.gauge("deadman_workers", { description: "Processes that run jobs and report" })

interface Reading {
  readonly counts: Counts
  readonly totals: Readonly<Record<string, number>>
  readonly sessions: ReadonlyArray<ListedSession>
  readonly unhandled: Unhandled.Look
  readonly atMs: number
}

const monotonicMs = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos / 1_000_000n))

const make = Effect.gen(function*() {
  const store = yield* JobStore
  const sessions = yield* Sessions
  const stopping = yield* Stopping
  const readiness = yield* Readiness.make
  const identity = yield* Identity
  const unhandledTypes = Unhandled.make()
  let reading: Reading | null = null
  let underWay: Deferred.Deferred<void> | null = null
  let askedMs = Number.NEGATIVE_INFINITY

  const read = Effect.gen(function*() {
    const atMs = yield* monotonicMs
    const counts = yield* store.counts
    const totals = yield* sessions.totals
    const listed = yield* sessions.list(sessionStaleMs)
    const unhandled = unhandledTypes.look(counts.pendingByType, listed, atMs)
    reading = { counts, totals, sessions: listed, unhandled, atMs }
    for (const line of unhandled.lines) {
      yield* Effect.logWarning(line)
    }
    for (const [state, gauge] of stateGauges) {
      yield* Metric.update(gauge, counts.byState[state as JobState] ?? 0)
    }
    yield* Metric.update(oldestGauge, counts.oldestReadyMs ?? 0)
    yield* Metric.update(workersGauge, listed.filter(({ slots }) => slots > 0).length)
  }).pipe(Effect.catch((error) => Effect.logDebug(`counts could not be read: ${error._tag}`)))

  /** One reading at a time, shared by all who wait for it; not waited for longer than the store may take. */
  const refresh = Effect.gen(function*() {
    if (underWay === null) {
      const done = yield* Deferred.make<void>()
      underWay = done
      yield* Effect.forkDetach(read.pipe(Effect.ensuring(Effect.sync(() => {
        underWay = null
        Deferred.doneUnsafe(done, Effect.void)
      }))))
    }
    yield* Effect.timeoutOption(underWay === null ? Effect.void : Deferred.await(underWay), staleMs)
  })

  yield* Effect.forkScoped(Effect.gen(function*() {
    let lastMs = Number.NEGATIVE_INFINITY
    while (true) {
      const now = yield* monotonicMs
      const soon = now - askedMs < interestMs || reading?.unhandled.unsure === true
      const everyMs = soon ? refreshMs : refreshIdleMs
      if (now - lastMs >= everyMs) {
        lastMs = now
        yield* refresh
      }
      yield* Effect.sleep("500 millis")
    }
  }))

  const stats: Status["Service"]["stats"] = Effect.gen(function*() {
    const now = yield* monotonicMs
    askedMs = now
    if (reading === null || now - reading.atMs > staleMs - refreshMs) {
      yield* refresh
    }
    const latest: Reading | null = reading
    if (latest === null || (yield* monotonicMs) - latest.atMs > staleMs) {
      return yield* new StatusUnavailable()
    }
    const own = yield* Meters.read
    // The totals hold what this process last reported, which is never more than what it has counted.
    const counters = Object.fromEntries(
      Object.entries(own).map(([name, value]) => [name, Math.max(latest.totals[name] ?? 0, value)])
    )
    const answer: Stats = {
      ...identity,
      counts: latest.counts,
      counters,
      workers: latest.sessions.map((session) =>
        session.role === "http" ? { ...session, name: session.name.slice(guestPrefix.length) } : session
      ),
      unhandled: latest.unhandled.unhandled
    }
    return answer
  })

  return Status.of({ stats, readiness, isStopping: stopping.isStopping })
})

export const layer: Layer.Layer<Status, never, JobStore | Sessions | Loops | Stopping | Identity> = Layer.effect(
  Status,
  make
)
