/**
 * What can be said about a queue: whether it hands out jobs, how many of them a process may hold, and what a step of
 * priority is worth.
 */
import * as Rank from "./Rank.ts"

export interface QueueSettings {
  /** A paused queue takes jobs in and hands none out. What runs goes on. */
  readonly paused: boolean
  /** Jobs of this queue that one process holds at once, at most; `null`: as many as it has room for. */
  readonly concurrency: number | null
  /** The ageing bound: `Rank.stepMaxMs` is strict priority, 0 none at all. */
  readonly stepMs: number
}

/** A queue of which nothing was said. */
export const defaults: QueueSettings = { paused: false, concurrency: null, stepMs: Rank.stepDefaultMs }

/** More jobs than this a process never holds. */
export const concurrencyMax = 10_000

/** Queues that may have a limit: each claim of each worker names all of them. */
export const limitedMax = 500

/** Why these are no settings, by the field that is wrong; `null` where nothing is. */
export const wrongField = (change: Partial<QueueSettings>): keyof QueueSettings | null => {
  const { concurrency, stepMs } = change
  if (concurrency !== undefined && concurrency !== null && !isWhole(concurrency, 1, concurrencyMax)) {
    return "concurrency"
  }
  return stepMs !== undefined && !isWhole(stepMs, 0, Rank.stepMaxMs) ? "stepMs" : null
}

const isWhole = (value: number, minimum: number, maximum: number): boolean =>
  Number.isInteger(value) && value >= minimum && value <= maximum
