/**
 * The slots: what waits for one, what runs in one, and how runs are stopped.
 *
 * Jobs start in slices of a few milliseconds with a turn of the event loop in
 * between, so that handlers that never wait cannot starve the heartbeat. No
 * job has a timer but those with a timeout, and those that were interrupted: a
 * handler that does not end within a second of its interruption is a runaway.
 * Its slot is replaced, up to as many as there are slots, and what it answers
 * later is not heard.
 */
import { type Context, Duration, Effect, type Fiber } from "effect"
import { suspectLosses } from "../../domain/Claim.ts"
import type { Queue } from "../../domain/Job.ts"
import type { Outcome } from "../../domain/Outcome.ts"
import * as Meters from "../process/Meters.ts"
import type { Handlers } from "./Handlers.ts"
import { type HeldJob, type HeldLease, isHeld, type Leases } from "./Leases.ts"
import type { Notes } from "./Notes.ts"
import * as Room from "./Room.ts"
import * as Run from "./Run.ts"
import * as Signal from "./Signal.ts"

/**
 * `release`: hand it back, at no cost. `timeout`: a failed attempt. `silent`:
 * the claim is not current any more, record nothing.
 */
export type Stop = "release" | "timeout" | "silent"

/** A handler that was interrupted ends within this, or is a runaway. */
export const graceMs = 1_000
/** A claim that was not started within this is somebody else's chance. */
export const unstartedMs = 1_000
const sliceMs = 5

interface Active {
  readonly held: HeldJob
  readonly startedMs: number
  readonly timeoutMs: number | null
  interrupt: ((reason: string) => void) | null
  timer: Fiber.Fiber<void> | null
  stop: Stop | null
  runaway: boolean
  over: boolean
}

export interface Slots {
  /** `first`: into the next slot that is free, before what waits. */
  readonly offer: (lease: HeldLease, first: boolean) => void
  readonly room: () => Room.Room
  readonly stop: (held: HeldJob, stop: Stop, reason: string) => void
  readonly stopLease: (lease: HeldLease, stop: Stop, reason: string) => void
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
  /** Said after a slice, when there may be room. */
  readonly freed: Signal.Signal
  /** Said when nothing waits or runs any more. */
  readonly idle: Signal.Signal
  /** Starts what waits. Ends only by interruption. */
  readonly pump: Effect.Effect<never>
}

const released = (started: boolean): Outcome => ({ _tag: "Released", started })

export const make = (options: {
  readonly slots: number
  readonly worker: string
  readonly handlers: Handlers["Service"]
  readonly leases: Leases
  readonly notes: Notes
  readonly context: Context.Context<never>
  readonly now: () => number
  readonly settle: (held: HeldJob, outcome: Outcome) => void
  readonly forget: (held: HeldJob) => void
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
  const { context, forget, handlers, now, settle } = options
  const starter = Run.starter(options.worker, context, options.notes)
  const runFork = Effect.runForkWith(context)
  const waiting = new Set<HeldJob>()
  const actives = new Map<HeldJob, Active>()
  const accused = new Set<HeldJob>()
  const urgent = new Set<HeldJob>()
  const work = Signal.make()
  const freed = Signal.make()
  const idle = Signal.make()
  const offered = Signal.make()
  let closed = false
  /** When the present slice began, and whether jobs are being started at the moment. */
  let begunMs = Number.NEGATIVE_INFINITY
  let filling = false
  let runaways = 0
  const measure = Room.make(options.slots)

  const occupied = () => actives.size - Math.min(runaways, options.slots)

  const trim = () => {
    if (waiting.size === 0 || options.limits().size === 0) {
      return
    }
    for (const held of Room.beyond(options.limits(), actives.keys(), waiting)) {
      stop(held, "release", "its queue has no room")
    }
  }

  const after = (ms: number, then: () => void) =>
    runFork(Effect.andThen(Effect.sleep(Duration.millis(ms)), Effect.sync(then)))

  const clearTimer = (active: Active) => {
    const timer = active.timer
    active.timer = null
    timer?.interruptUnsafe()
  }

  const record = (held: HeldJob, outcome: Run.Ending) => {
    held.phase = "ended"
    if (accused.delete(held)) {
      options.onTrialEnded()
    }
    if (outcome === null) {
      forget(held)
    } else {
      settle(held, outcome)
    }
  }

  const outcomeOfStop = (active: Active, stop: Stop): Run.Ending =>
    stop === "silent" ? null : stop === "release" ? released(true) : Run.timedOut(active.timeoutMs ?? 0)

  const end = (active: Active, ending: () => Run.Ending) => {
    if (active.over) {
      return
    }
    active.over = true
    clearTimer(active)
    actives.delete(active.held)
    const tookMs = now() - active.startedMs
    if (active.runaway) {
      runaways -= 1
      options.onRunaways(runaways, null)
    } else {
      measure.took(tookMs)
      Meters.runMs.updateUnsafe(tookMs, context)
      // What an interrupted handler says is not heard: one that returns early on its signal has not done its work.
      const stop = active.stop ?? (active.timeoutMs !== null && tookMs >= active.timeoutMs ? "timeout" : null)
      record(active.held, stop === null ? ending() : outcomeOfStop(active, stop))
    }
    if (!isHeld(active.held)) {
      options.onLeft(active.held)
    }
    refill()
    if (actives.size === 0 && waiting.size === 0) {
      idle.notify()
    }
  }

  const runAway = (active: Active) => {
    if (active.over || active.runaway) {
      return
    }
    active.runaway = true
    runaways += 1
    record(active.held, outcomeOfStop(active, active.stop ?? "release"))
    options.onRunaways(runaways, active.held)
    work.notify()
    idle.notify()
  }

  const start = (held: HeldJob, atMs: number) => {
    const job = held.job
    const handler = job === null ? undefined : handlers.get(job.type)
    waiting.delete(held)
    if (job === null || handler === undefined) {
      return record(held, released(false))
    }
    held.phase = "running"
    const { timeoutMs } = job
    const active: Active = {
      held,
      startedMs: atMs,
      timeoutMs,
      interrupt: null,
      timer: null,
      stop: null,
      runaway: false,
      over: false
    }
    actives.set(held, active)
    active.interrupt = starter.start(handler, held.claim, job, (ending) => end(active, ending))
    if (timeoutMs !== null && !active.over) {
      active.timer = after(timeoutMs, () => stop(held, "timeout", `the run did not end within its ${timeoutMs} ms`))
    }
  }

  const stop: Slots["stop"] = (held, kind, reason) => {
    if (held.phase === "waiting") {
      waiting.delete(held)
      record(held, kind === "silent" ? null : released(false))
      return
    }
    const active = actives.get(held)
    if (active === undefined || held.phase !== "running" || active.stop === "silent") {
      return
    }
    const first = active.stop === null
    if (first || kind === "silent") {
      active.stop = kind
    }
    if (kind === "silent") {
      // At once, not when the handler has ended: the lease must not be kept alive for the sake of it.
      forget(held)
    }
    if (!first) {
      return
    }
    clearTimer(active)
    active.timer = after(graceMs, () => runAway(active))
    active.interrupt?.(reason)
  }

  /** Whether there is more to start when the slice is over. */
  const fill = (): boolean => {
    filling = true
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
        filling = false
        return true
      }
    }
    filling = false
    return false
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
    if (waiting.size === 0 || now() - begunMs >= sliceMs || fill()) {
      work.notify()
    } else {
      freed.notify()
    }
  }

  const room: Slots["room"] = () => {
    const free = Math.max(0, options.slots - occupied())
    for (const held of urgent) {
      if (!waiting.has(held)) {
        urgent.delete(held)
      }
    }
    return measure.room({ free, waiting: waiting.size, urgent: urgent.size }, () => {
      const atMs = now()
      return Array.from(actives.values(), ({ runaway, startedMs }) => runaway ? 0 : atMs - startedMs)
    })
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
      }
      if (first) {
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
      work.notify()
      offered.notify()
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
    stopAll: (reason) => {
      for (const active of Array.from(actives.values())) {
        stop(active.held, "release", reason)
      }
    },
    abandonAll: () => {
      for (const active of Array.from(actives.values())) {
        runAway(active)
      }
    },
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
    running: () => actives.size - runaways,
    runaways: () => runaways,
    runningTypes: () => Array.from(new Set(Array.from(actives.keys(), (held) => held.job?.type ?? "unknown"))),
    active: () => actives.keys(),
    trim,
    freed,
    idle,
    pump: Effect.gen(function*() {
      while (true) {
        yield* work.wait(Number.POSITIVE_INFINITY)
        while (slice()) {
          freed.notify()
          yield* Effect.yieldNow
        }
        freed.notify()
        if (actives.size === 0 && waiting.size === 0) {
          idle.notify()
        }
      }
    })
  }
}

export const isSuspect = (job: { readonly leaseLosses: number }): boolean => job.leaseLosses >= suspectLosses
