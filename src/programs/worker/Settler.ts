/**
 * Brings outcomes to the store, and keeps them until it answers.
 *
 * While one statement is under way the next outcomes gather, so the batches are
 * as large as the store is slow, and no timer delays a single one. What could
 * not be written stays, bounded, and is tried again until it is settled or
 * refused as stale, also past its lease's end: the fence decides, not our clock.
 * A row that somebody locks is tried again alone, so that it holds up no other.
 */
import { Cause, Context, Effect, Exit, Random } from "effect"
import type { JobId } from "../../domain/JobId.ts"
import { type Outcome, type Settlement, settlement } from "../../domain/Outcome.ts"
import type { JobStore } from "../../ports/JobStore.ts"
import type { Rhythm } from "../../ports/Rhythm.ts"
import type { Loop } from "../process/Loops.ts"
import * as Meters from "../process/Meters.ts"
import type { HeldJob } from "./Leases.ts"
import * as Outage from "./Outage.ts"
import * as Signal from "./Signal.ts"

interface Entry {
  readonly held: HeldJob
  readonly settlement: Settlement
  readonly bytes: number
  tries: number
  notBeforeMs: number
}

export interface Settler {
  readonly put: (held: HeldJob, outcome: Outcome) => void
  /** Whether so much is kept that nothing further may be claimed. */
  readonly full: () => boolean
  readonly pending: () => number
  /** Until nothing is pending, or for `ms` at most. Whether nothing is. */
  readonly flush: (ms: number) => Effect.Effect<boolean>
  /** Ends only by interruption. */
  readonly run: Effect.Effect<never>
}

export const batchMax = 1_000
export const keptMax = 10_000
export const keptBytesMax = 64 * 1_048_576
const flightsMax = 2
/** A second statement is worth its while from here. */
const secondFlightFrom = 500
const lookUpMs = 1_000
/** With nothing to write it only says that it is well. */
const idleMs = 5_000

/** Looked up where no outcome counts retries: what it means does not depend on the job. */
const nobody = { attempts: 0, maxAttempts: 1, backoff: { kind: "fixed", delay_ms: 0 } } as const

export const make = (options: {
  readonly store: JobStore["Service"]
  readonly context: Context.Context<never>
  readonly now: () => number
  readonly rhythm: Rhythm
  readonly loop: Loop
  /** Their ending is on record, or refused for good. */
  readonly settled: (held: ReadonlyArray<HeldJob>) => void
}): Settler => {
  const { context, loop, now, store, rhythm } = options
  const random = Context.get(context, Random.Random)
  const more = Signal.make()
  const emptied = Signal.make()
  const outage = Outage.make("settling")
  let queue: Array<Entry> = []
  let alone: Array<Entry> = []
  /** A job may come twice, under two claims, and one statement must not see both. */
  const inFlight = new Set<JobId>()
  let flights = 0
  let aloneFlights = 0
  let kept = 0
  let keptBytes = 0
  let pausedUntilMs = 0

  const put: Settler["put"] = (held, outcome) => {
    const written = settlement(held.claim, held.job ?? nobody, outcome, random.nextDoubleUnsafe())
    const bytes = (written.result?.length ?? 0) + (written.failure === null ? 0 : written.failure.message.length) + 200
    held.phase = "ended"
    kept += 1
    keptBytes += bytes
    queue.push({ held, settlement: written, bytes, tries: 0, notBeforeMs: 0 })
    more.notify()
  }

  const take = (): Array<Entry> => {
    const batch: Array<Entry> = []
    const left: Array<Entry> = []
    let at = 0
    for (; at < queue.length && batch.length < batchMax; at++) {
      const entry = queue[at]!
      if (inFlight.has(entry.held.claim.id)) {
        left.push(entry)
      } else {
        inFlight.add(entry.held.claim.id)
        batch.push(entry)
      }
    }
    queue = left.length === 0 ? queue.slice(at) : [...left, ...queue.slice(at)]
    return batch
  }

  const takeAlone = (): Entry | undefined => {
    const atMs = now()
    const at = alone.findIndex((entry) => entry.notBeforeMs <= atMs && !inFlight.has(entry.held.claim.id))
    const [entry] = at < 0 ? [] : alone.splice(at, 1)
    if (entry !== undefined) {
      inFlight.add(entry.held.claim.id)
    }
    return entry
  }

  const isolate = (entry: Entry) => {
    entry.tries += 1
    entry.notBeforeMs = now() + Math.min(1_000, 25 * 2 ** Math.min(entry.tries, 8))
    alone.push(entry)
  }

  const counts = (entries: ReadonlyArray<Entry>) => {
    let completed = 0
    let failed = 0
    let dead = 0
    let released = 0
    for (const { settlement: { step } } of entries) {
      completed += step === "complete" ? 1 : 0
      failed += step === "fail" || step === "die" ? 1 : 0
      dead += step === "die" ? 1 : 0
      released += step === "release" ? 1 : 0
    }
    return Effect.all([
      Meters.add("completed", completed),
      Meters.add("failed", failed),
      Meters.add("dead", dead),
      Meters.add("released", released)
    ], { discard: true })
  }

  const flight = Effect.fnUntraced(function*(batch: ReadonlyArray<Entry>) {
    const exit = yield* Effect.exit(store.settle(batch.map((entry) => entry.settlement)))
    for (const entry of batch) {
      inFlight.delete(entry.held.claim.id)
    }
    if (Exit.isFailure(exit)) {
      yield* outage.failed(now(), exit.cause)
      pausedUntilMs = now() + Outage.pauseMs(outage.count(), random.nextDoubleUnsafe())
      // A defect is not an outage: something in the batch breaks the store, and must not break it for the others too.
      if (Cause.hasDies(exit.cause)) {
        batch.forEach(isolate)
      } else {
        queue = [...batch, ...queue]
      }
      return
    }
    yield* outage.worked
    const done: Array<Entry> = []
    const written: Array<Entry> = []
    for (const [index, entry] of batch.entries()) {
      const answer = exit.value[index]
      if (answer === undefined || answer._tag === "Undecided") {
        isolate(entry)
        continue
      }
      done.push(entry)
      kept -= 1
      keptBytes -= entry.bytes
      if (answer._tag === "Settled") {
        written.push(entry)
      } else {
        const { epoch, id } = entry.held.claim
        yield* Effect.logWarning("an outcome was refused as stale: the job is another worker's, or cancelled").pipe(
          Effect.annotateLogs({ job: id, epoch, current: answer.currentEpoch, outcome: entry.settlement.step })
        )
      }
    }
    options.settled(done.map((entry) => entry.held))
    yield* counts(written)
    yield* Meters.add("stale_writes", done.length - written.length)
    yield* loop.beat
    if (kept === 0) {
      emptied.notify()
    }
  })

  const fly = (batch: ReadonlyArray<Entry>, landed: () => void) =>
    Effect.forkChild(
      flight(batch).pipe(
        Effect.ensuring(Effect.sync(() => {
          landed()
          more.notify()
        }))
      ),
      { startImmediately: true }
    )

  /** Whether a statement may be sent: asked before each, since a store that is away may answer on the spot. */
  const mayFly = () =>
    pausedUntilMs <= now() && queue.length > 0 &&
    (flights === 0 || (flights < flightsMax && queue.length >= secondFlightFrom))

  const launch = Effect.gen(function*() {
    while (mayFly()) {
      const batch = take()
      if (batch.length === 0) {
        break
      }
      flights += 1
      yield* fly(batch, () => {
        flights -= 1
      })
    }
    const pauseMs = pausedUntilMs - now()
    if (pauseMs > 0) {
      return pauseMs
    }
    if (aloneFlights === 0) {
      const entry = takeAlone()
      if (entry !== undefined) {
        aloneFlights += 1
        yield* fly([entry], () => {
          aloneFlights -= 1
        })
      }
    }
    let nextMs = kept === 0 ? rhythm.within(idleMs) : lookUpMs
    for (const entry of alone) {
      nextMs = Math.min(nextMs, Math.max(1, entry.notBeforeMs - now()))
    }
    return nextMs
  })

  return {
    put,
    full: () => kept >= keptMax || keptBytes >= keptBytesMax,
    pending: () => kept,
    flush: Effect.fnUntraced(function*(ms: number) {
      const untilMs = now() + ms
      while (kept > 0 && now() < untilMs) {
        yield* emptied.wait(untilMs - now())
      }
      return kept === 0
    }),
    run: Effect.gen(function*() {
      while (true) {
        const waitMs = yield* launch
        if (kept === 0) {
          yield* loop.beat
        }
        yield* more.wait(waitMs)
      }
    })
  }
}
