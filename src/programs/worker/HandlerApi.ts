/**
 * What a handler is, and what it may say besides returning and throwing.
 *
 * A handler is a function of the job: plain, `async`, or one that returns an
 * Effect. Returning ends the job well; throwing, rejecting or failing is a
 * failed attempt. `Rejected` ends the job without a further attempt, and
 * `again(ms)` runs it once more later without costing one: thrown, failed with
 * or yielded, `again` returned as well. Interruption is the signal (or the
 * fiber's interruption): the lease was lost, the job was cancelled, ran out of
 * time, or the process stops. Whatever an interrupted handler then returns is
 * not recorded.
 *
 * The marks are read by their shape, not by their class: a handler module may
 * have been bundled with another copy of this file.
 */
import { Data } from "effect"
import type { HandlerContext, HandlerJob } from "../../ports/CurrentJob.ts"

export type { HandlerContext, HandlerJob } from "../../ports/CurrentJob.ts"

export type Handler = (job: HandlerJob, context: HandlerContext) => unknown

/** Do not retry: the job is dead, with this as the reason shown. */
export class Rejected extends Data.Error<{ readonly message: string; readonly cause?: unknown }> {
  override readonly name = "Rejected"
  readonly retry = false

  constructor(message = "", options: { readonly cause?: unknown } = {}) {
    super({ message: message === "" ? "the handler gave no reason" : message, ...options })
  }
}

/** Run the job again in `delayMs`. */
export class Again extends Data.TaggedError("deadman/Again")<{ readonly delayMs: number }> {
  override get message(): string {
    return `run again in ${this.delayMs} ms`
  }
}

/** A year. What should wait longer is better a job of its own. */
export const againMaxMs = 31_536_000_000

export const again = (delayMs: number): Again => {
  if (!Number.isFinite(delayMs) || delayMs < 0 || delayMs > againMaxMs) {
    throw new RangeError(`again() takes 0 to ${againMaxMs} milliseconds, not ${delayMs}`)
  }
  return new Again({ delayMs: Math.ceil(delayMs) })
}

/** Reads the mark. Throws what a hostile value throws when it is looked at. */
export const asAgain = (value: unknown): Again | null => {
  if (typeof value !== "object" || value === null || (value as { _tag?: unknown })._tag !== "deadman/Again") {
    return null
  }
  return again((value as Again).delayMs)
}

export const isRejection = (error: unknown): boolean =>
  typeof error === "object" && error !== null && (error as { retry?: unknown }).retry === false
