/**
 * The slots: what waits for one, and when it starts.
 *
 * Jobs start in slices of a few milliseconds with a turn of the event loop in
 * between, so that handlers that never wait cannot starve the heartbeat. A slot
 * whose handler ran away is replaced, up to as many as there are slots.
 */
import { type Context, Effect } from "effect"
import { suspectLosses } from "../../domain/Claim.ts"
import type { Queue } from "../../domain/Job.ts"
import type { Outcome } from "../../domain/Outcome.ts"
import type { Handlers } from "./Handlers.ts"
import type { HeldJob, HeldLease } from "./Leases.ts"
import type { Notes } from "./Notes.ts"
import * as Room from "./Room.ts"
import type { Ending } from "./Run.ts"
import * as Runs from "./Runs.ts"
import * as Signal from "./Signal.ts"

/** A claim that was not started within this is somebody else's chance. */
const unstartedMs = 1_000
const sliceMs = 5

export interface Slots {
  /** `first`: into the next slot that is free, before what waits. */
  readonly offer: (lease: HeldLease, first: boolean) => void
  readonly room: () => Room.Room
  readonly stop: (held: HeldJob, stop: Runs.Stop, reason: string) => void
  readonly stopLease: (lease: HeldLease, stop: Runs.Stop, reason: string) => void
  /** Hands back what waits for longer than this. */
  readonly handBack: (olderThanMs: number) => number
  /** Hands back what waits, and what is still offered: nothing starts any more. */
  readonly close: () => void
  /** Hands back what waits for too long. Ends only by interruption. */
  readonly sweep: Effect.Effect<never>
  /** Interrupts everything that runs. */
  readonly stopAll: (reason: string) => void
  /** Hands back what runs on in spite of its interruption. */
  readonly abandonAll: () => void
  readonly waiting: () => number
  /**
   * Whether a job has begun here only lately for which one more loss is the last. Two of them do not run side by side:
   * one that blocks the process, or ends it, would take the other's lease with it until both are dead of it. One that
   * has run for two lengths of its lease has kept up its heartbeat, and is no danger to the next.
   */
  readonly onTrial: () => boolean
  /** Runs that are not runaways. */
  readonly running: () => number
  readonly runaways: () => number
  /** Types of what runs, runaways included: for who looks for a culprit. */
  readonly runningTypes: () => ReadonlyArray<string>
  /** What runs, runaways included. */
  readonly active: () => Iterable<HeldJob>
  /** Hands back what waits and may not start within the limit of its queue. */
  readonly trim: () => void
  /** Said when nothing waits or runs any more. */
  readonly idle: Signal.Signal
  /** Starts what waits. Ends only by interruption. */
  readonly pump: Effect.Effect<never>
}

const unstarted: Outcome = { _tag: "Released", started: false }

export const make = (options: {
  readonly slots: number
  readonly worker: string
  readonly handlers: Handlers["Service"]
  readonly notes: Notes
  readonly context: Context.Context<never>
  readonly now: () => number
  readonly settle: (held: HeldJob, outcome: Outcome) => void
  readonly forget: (held: HeldJob) => void
  /** There may be more room. */
  readonly freed: () => void
  /** A lease was found past its length. */
  readonly expire: (lease: HeldLease) => void
  /** From how many losses on a job is on trial. */
  readonly trialLosses: number
  /** A job on trial has ended. */
  readonly onTrialEnded: () => void
  /** Jobs of a queue that may run at once, of queues that have a limit. */
  readonly limits: () => ReadonlyMap<Queue, number>
  /** A handler has ended that was not held any more. */
  readonly onLeft: (held: HeldJob) => void
  readonly onRunaways: (count: number, held: HeldJob | null) => void
}): Slots => {
  const { forget, freed, handlers, now, settle } = options
  const waiting = new Set<HeldJob>()
  const accused = new Set<HeldJob>()
  const urgent = new Set<HeldJob>()
  const work = Signal.make()
  const idle = Signal.make()
  const offered = Signal.make()
  let closed = false
  /** When the present slice began, and whether jobs are being started at the moment. */
  let begunMs = Number.NEGATIVE_INFINITY
  let filling = false
  const measure = Room.make(options.slots)

  const record = (held: HeldJob, ending: Ending) => {
    held.phase = "ended"
    if (accused.delete(held)) {
      options.onTrialEnded()
    }
    if (ending === null) {
      forget(held)
    } else {
      settle(held, ending)
    }
  }

  const idleIfEmpty = () => {
    if (runs.size() === 0 && waiting.size === 0) {
      idle.notify()
    }
  }

  const runs: Runs.Runs = Runs.make({
    worker: options.worker,
    notes: options.notes,
    context: options.context,
    now,
    record,
    forget,
    took: measure.took,
    onLeft: options.onLeft,
    onRunaways: (count, held) => {
      options.onRunaways(count, held)
      if (held !== null) {
        work.notify()
        idle.notify()
      }
    },
    ended: () => {
      refill()
      idleIfEmpty()
    }
  })

  const occupied = () => runs.size() - Math.min(runs.runaways(), options.slots)

  const trim = () => {
    if (waiting.size === 0 || options.limits().size === 0) {
      return
    }
    for (const held of Room.beyond(options.limits(), runs.held(), waiting)) {
      stop(held, "release", "its queue has no room")
    }
  }

  const start = (held: HeldJob, atMs: number) => {
    const job = held.job
    const handler = job === null ? undefined : handlers.get(job.type)
    waiting.delete(held)
    if (job === null || handler === undefined) {
      record(held, unstarted)
    } else {
      runs.start(handler, held, job, atMs)
    }
  }

  const stop: Slots["stop"] = (held, kind, reason) => {
    if (held.phase === "waiting") {
      waiting.delete(held)
      record(held, kind === "silent" ? null : unstarted)
    } else {
      runs.stop(held, kind, reason)
    }
  }

  /** Whether there is more to start when the slice is over. */
  const fill = (): boolean => {
    filling = true
    try {
      let atMs = now()
      while (waiting.size > 0 && occupied() < options.slots) {
        const [held] = waiting
        const { lease } = held!
        if (atMs - lease.confirmedMs >= lease.leaseMs) {
          options.expire(lease)
        } else {
          start(held!, atMs)
        }
        atMs = now()
        if (atMs - begunMs >= sliceMs) {
          return true
        }
      }
      return false
    } finally {
      filling = false
    }
  }

  const slice = (): boolean => {
    begunMs = now()
    return fill()
  }

  /** A run has ended. Within the slice the next one starts on the spot: a turn of its own would cost more than it. */
  const refill = () => {
    if (filling) {
      return
    }
    if (waiting.size > 0 && (now() - begunMs >= sliceMs || fill())) {
      work.notify()
    } else {
      freed()
    }
  }

  const room: Slots["room"] = () => {
    const free = Math.max(0, options.slots - occupied())
    for (const held of urgent) {
      if (!waiting.has(held)) {
        urgent.delete(held)
      }
    }
    return measure.room({ free, waiting: waiting.size, urgent: urgent.size }, runs.ranMs)
  }

  const handBack: Slots["handBack"] = (olderThanMs) => {
    const atMs = now()
    let handed = 0
    for (const held of waiting) {
      if (atMs - held.atMs >= olderThanMs) {
        stop(held, "release", "not started in time")
        handed += 1
      }
    }
    if (handed > 0) {
      measure.doubt()
      work.notify()
    }
    return handed
  }

  return {
    offer: (lease, first) => {
      const later = first ? Array.from(waiting) : []
      if (first) {
        waiting.clear()
        for (const held of lease.jobs.values()) {
          urgent.add(held)
        }
      }
      for (const held of [...lease.jobs.values(), ...later]) {
        waiting.add(held)
        if (held.job !== null && held.job.leaseLosses >= options.trialLosses) {
          accused.add(held)
        }
      }
      if (closed) {
        handBack(0)
      }
      // Where a limit has changed while the claim was under way.
      trim()
      // At once where nothing is being started: for one job that somebody waits for, a turn of its own is long.
      if (filling || slice()) {
        work.notify()
      } else {
        freed()
        idleIfEmpty()
      }
      if (waiting.size > 0) {
        offered.notify()
      }
    },
    close: () => {
      closed = true
      handBack(0)
    },
    sweep: Effect.gen(function*() {
      while (true) {
        yield* waiting.size === 0 ? offered.wait(Number.POSITIVE_INFINITY) : Effect.sleep(unstartedMs / 4)
        handBack(unstartedMs)
      }
    }),
    room,
    stop,
    stopLease: (lease, kind, reason) => {
      for (const held of Array.from(lease.jobs.values())) {
        stop(held, kind, reason)
      }
    },
    handBack,
    stopAll: runs.stopAll,
    abandonAll: runs.abandonAll,
    waiting: () => waiting.size,
    onTrial: () => {
      const atMs = now()
      for (const held of accused) {
        if (atMs - held.atMs < 2 * held.lease.leaseMs) {
          return true
        }
      }
      return false
    },
    running: () => runs.size() - runs.runaways(),
    runaways: runs.runaways,
    runningTypes: () => Array.from(new Set(Array.from(runs.held(), (held) => held.job?.type ?? "unknown"))),
    active: runs.held,
    trim,
    idle,
    pump: Effect.gen(function*() {
      while (true) {
        yield* work.wait(Number.POSITIVE_INFINITY)
        while (slice()) {
          freed()
          yield* Effect.yieldNow
        }
        freed()
        idleIfEmpty()
      }
    })
  }
}

export const isSuspect = (job: { readonly leaseLosses: number }): boolean => job.leaseLosses >= suspectLosses
