/**
 * How much a worker may claim: its free slots, and what measured run times say will start soon after.
 *
 * What was claimed and does not start is held from others, so nothing is claimed ahead until runs were measured, and
 * the measure is quick to believe in slow runs and slow to believe in quick ones.
 */
import type { Queue } from "../../domain/Job.ts"
import type { HeldJob } from "./Leases.ts"

/** How long claimed jobs are expected to wait for a slot. */
const aheadMs = 200
/** Jobs that wait and run, at most: two claims, so that one is under way while the jobs of the other run. */
export const roomMax = 2_000
/** Jobs that one claim brings, at most. */
const claimMax = 1_000

export interface Room {
  /** Jobs that wait for the next free slot, before all others. */
  readonly urgent: number
  /** Slots that nobody runs in or waits for. */
  readonly free: number
  /** Jobs to be claimed now: for the free slots, and what is expected to start soon. */
  readonly want: number
  /** Jobs that wait and run where all of that is used. */
  readonly target: number
}

export interface Measure {
  /** A run has ended. */
  readonly took: (ms: number) => void
  /** What was measured was too good to be true. */
  readonly doubt: () => void
  /** The room beside `free` slots and what waits; `ranMs` is for how long what runs at present has run, each. */
  readonly room: (
    present: { readonly free: number; readonly waiting: number; readonly urgent: number },
    ranMs: () => ReadonlyArray<number>
  ) => Room
}

export const make = (slots: number): Measure => {
  /** How long a run takes, in ms. */
  let measuredMs: number | null = null

  const ahead = (ranMs: () => ReadonlyArray<number>): number => {
    if (measuredMs === null) {
      return 0
    }
    // What runs now and has not ended says as much as what has ended: a queue that turns slow shows there first.
    const ran = ranMs()
    const meanMs = ran.length === 0 ? 0 : ran.reduce((sum, ms) => sum + ms, 0) / ran.length
    const runMs = Math.max(measuredMs, meanMs, 0.01)
    const some = Math.floor(slots * aheadMs / runMs)
    // Long runs that began together end together: what was claimed for one of their slots would wait for all of a run.
    return runMs <= aheadMs ? some : Math.min(some, ran.filter((ms) => ms >= runMs - aheadMs).length)
  }

  return {
    took: (ms) => {
      measuredMs = measuredMs === null ? ms : measuredMs + (ms - measuredMs) * (ms > measuredMs ? 0.5 : 0.05)
    },
    doubt: () => {
      measuredMs = null
    },
    room: ({ free, urgent, waiting }, ranMs) => {
      const target = Math.min(Math.max(roomMax, slots), free + ahead(ranMs))
      return {
        urgent,
        free: Math.max(0, free - waiting),
        want: Math.min(claimMax, Math.max(0, target - waiting)),
        target
      }
    }
  }
}

/** Which of those that wait may not start within the limits of their queues, beside those that run. */
export const beyond = (
  limits: ReadonlyMap<Queue, number>,
  running: Iterable<HeldJob>,
  waiting: Iterable<HeldJob>
): ReadonlyArray<HeldJob> => {
  // How many more of each may start.
  const left = new Map(limits)
  const count = ({ job }: HeldJob): number => {
    const n = job === null ? undefined : left.get(job.queue)
    if (job === null || n === undefined) {
      return 1
    }
    left.set(job.queue, n - 1)
    return n
  }
  for (const held of running) {
    count(held)
  }
  return Array.from(waiting).filter((held) => count(held) <= 0)
}
