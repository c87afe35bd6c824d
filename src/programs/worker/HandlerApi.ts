/**
 * What a handler is, and what it may say besides returning and throwing.
 *
 * A handler is a function of the job: plain, `async`, or one that returns an
 * Effect. Returning ends the job well; throwing, rejecting or failing is a
 * failed attempt. `throw new Rejected(...)` ends the job without a further
 * attempt, and `again(ms)`, returned or thrown, runs it once more later without
 * costing one. Interruption is the signal (or the fiber's interruption): the
 * lease was lost, the job was cancelled, ran out of time, or the process stops.
 * Whatever an interrupted handler then returns is not recorded.
 *
 * The marks are read by their shape, not by their class: a handler module may
 * have been bundled with another copy of this file.
 */
import type { Claim } from "../../domain/Claim.ts"

export interface HandlerJob {
  readonly id: string
  readonly type: string
  readonly payload: unknown
  /** Which attempt this is: 1 until a run has failed. */
  readonly attempt: number
  /** How often the job was handed to a worker, this time included. */
  readonly delivery: number
  /** The same for every delivery of the job: give it to a provider as the idempotency key. */
  readonly key: string
  /** Who runs it. */
  readonly worker: string
}

export interface HandlerContext {
  /** Aborted when the run is interrupted. */
  readonly signal: AbortSignal
  /** What fences this run: it is the same for no other delivery. */
  readonly claim: Claim
}

export type Handler = (job: HandlerJob, context: HandlerContext) => unknown

/** Do not retry: the job is dead, with this as the reason shown. */
export class Rejected extends Error {
  override readonly name = "Rejected"
  readonly retry = false
}

/** Run the job again in `delayMs`. */
export interface Again {
  readonly _tag: "deadman/Again"
  readonly delayMs: number
}

/** A year. What should wait longer is better a job of its own. */
export const againMaxMs = 31_536_000_000

export const again = (delayMs: number): Again => {
  if (!Number.isFinite(delayMs) || delayMs < 0 || delayMs > againMaxMs) {
    throw new RangeError(`again() takes 0 to ${againMaxMs} milliseconds, not ${delayMs}`)
  }
  return { _tag: "deadman/Again", delayMs: Math.ceil(delayMs) }
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
