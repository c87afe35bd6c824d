/**
 * What runs in the slots: started, stopped, and given up on.
 *
 * No run has a timer but one with a timeout, and one that was interrupted: a handler that does not end within a second
 * of its interruption is a runaway. What becomes of its job is said at once then, and what it answers later is not
 * heard.
 */
import { type Context, Duration, Effect, type Fiber } from "effect"
import type { ClaimedJob } from "../../domain/Job.ts"
import * as Meters from "../process/Meters.ts"
import * as Failures from "./Failures.ts"
import type { Handler } from "./HandlerApi.ts"
import { type HeldJob, isHeld } from "./Leases.ts"
import type { Notes } from "./Notes.ts"
import * as Run from "./Run.ts"

/**
 * `release`: hand it back, at no cost. `timeout`: a failed attempt. `silent`:
 * the claim is not current any more, record nothing.
 */
export type Stop = "release" | "timeout" | "silent"

/** A handler that was interrupted ends within this, or is a runaway. */
export const graceMs = 1_000

interface Active {
  readonly held: HeldJob
  readonly job: ClaimedJob
  readonly startedMs: number
  readonly timeoutMs: number | null
  interrupt: ((reason: string) => void) | null
  timer: Fiber.Fiber<void> | null
  stop: Stop | null
  runaway: boolean
  over: boolean
}

export interface Runs {
  readonly start: (handler: Handler, held: HeldJob, job: ClaimedJob, atMs: number) => void
  /** Interrupts one, unless its ending is said already. */
  readonly stop: (held: HeldJob, stop: Stop, reason: string) => void
  /** Interrupts everything that runs. */
  readonly stopAll: (reason: string) => void
  /** Hands back what runs on in spite of its interruption. */
  readonly abandonAll: () => void
  /** Runaways included. */
  readonly size: () => number
  readonly runaways: () => number
  /** What runs, runaways included. */
  readonly held: () => Iterable<HeldJob>
  /** For how long each has run; a runaway counts as nothing. */
  readonly ranMs: () => ReadonlyArray<number>
}

export const make = (options: {
  readonly worker: string
  readonly notes: Notes
  readonly context: Context.Context<never>
  readonly now: () => number
  /** What becomes of a job; said once for each. */
  readonly record: (held: HeldJob, ending: Run.Ending) => void
  /** Its claim is not current: nothing more is to be said about it. */
  readonly forget: (held: HeldJob) => void
  /** How long a run took that was heard to its end. */
  readonly took: (ms: number) => void
  /** A handler has ended that was not held any more. */
  readonly onLeft: (held: HeldJob) => void
  readonly onRunaways: (count: number, held: HeldJob | null) => void
  /** A handler has ended, and does not count any more. */
  readonly ended: () => void
}): Runs => {
  const { context, forget, now, record } = options
  const starter = Run.starter(options.worker, context, options.notes)
  const failures = Failures.make(context, now)
  const runFork = Effect.runForkWith(context)
  const actives = new Map<HeldJob, Active>()
  let runaways = 0

  const after = (ms: number, then: () => void) =>
    runFork(Effect.andThen(Effect.sleep(Duration.millis(ms)), Effect.sync(then)))

  const clearTimer = (active: Active) => {
    const timer = active.timer
    active.timer = null
    timer?.interruptUnsafe()
  }

  const outcomeOfStop = (active: Active, stop: Stop): Run.Ending =>
    stop === "silent"
      ? null
      : stop === "release"
      ? { _tag: "Released", started: true }
      : Run.timedOut(active.timeoutMs ?? 0)

  /** Recorded first: what is said of it in the log must not hold it up. */
  const finish = (active: Active, ending: Run.Ending, thrown?: unknown) => {
    record(active.held, ending)
    if (ending !== null) {
      failures.tell(active.job, ending, thrown)
    }
  }

  const end = (active: Active, ending: () => Run.Ending, thrown?: unknown) => {
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
      options.took(tookMs)
      Meters.runMs.updateUnsafe(tookMs, context)
      // What an interrupted handler says is not heard: one that returns early on its signal has not done its work.
      const stop = active.stop ?? (active.timeoutMs !== null && tookMs >= active.timeoutMs ? "timeout" : null)
      finish(active, stop === null ? ending() : outcomeOfStop(active, stop), stop === null ? thrown : undefined)
    }
    if (!isHeld(active.held)) {
      options.onLeft(active.held)
    }
    options.ended()
  }

  const runAway = (active: Active) => {
    if (active.over || active.runaway) {
      return
    }
    active.runaway = true
    runaways += 1
    finish(active, outcomeOfStop(active, active.stop ?? "release"))
    options.onRunaways(runaways, active.held)
  }

  const stop: Runs["stop"] = (held, kind, reason) => {
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

  return {
    start: (handler, held, job, atMs) => {
      held.phase = "running"
      const { timeoutMs } = job
      const active: Active = {
        held,
        job,
        startedMs: atMs,
        timeoutMs,
        interrupt: null,
        timer: null,
        stop: null,
        runaway: false,
        over: false
      }
      actives.set(held, active)
      active.interrupt = starter.start(handler, held.claim, job, (ending, thrown) => end(active, ending, thrown))
      if (timeoutMs !== null && !active.over) {
        active.timer = after(timeoutMs, () => stop(held, "timeout", `the run did not end within its ${timeoutMs} ms`))
      }
    },
    stop,
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
    size: () => actives.size,
    runaways: () => runaways,
    held: () => actives.keys(),
    ranMs: () => {
      const atMs = now()
      return Array.from(actives.values(), ({ runaway, startedMs }) => runaway ? 0 : atMs - startedMs)
    }
  }
}
