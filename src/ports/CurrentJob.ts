/**
 * Port: the job that a handler runs at the moment, and what it may say about it while it runs.
 *
 * Laws, which `test/programs/worker` holds the pool to:
 *
 * 1. What is reported is kept with the attempt, bounded, and is written only while the claim is the handler's own.
 * 2. Reporting never fails, never waits, and never changes how the run ends.
 */
import { Context, type Effect } from "effect"
import type { Claim } from "../domain/Claim.ts"

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

/** What a handler that is a plain function gets beside its job. Each member may be taken out by destructuring. */
export interface HandlerContext {
  /** Aborted when the run is interrupted. */
  readonly signal: AbortSignal
  /** What fences this run: it is the same for no other delivery. */
  readonly claim: Claim
  /** Shows how far the run is: any JSON value, the last one wins. Written about once a second. */
  readonly progress: (value: unknown) => void
  /** Keeps a line with the attempt: the newest fifty, of 500 characters each. */
  readonly log: (line: string) => void
  /** A value as it would be kept as the result: JSON text, or `null` for nothing. */
  readonly toResult: (value: unknown) => string | null
  /** `false` in `deadman/testing`, where the job is in memory: `Effects` have nothing to commit with. */
  readonly inPostgres?: boolean | undefined
}

export class CurrentJob extends Context.Service<CurrentJob, {
  readonly job: HandlerJob
  readonly claim: Claim
  /** Aborted when the run is interrupted: for what takes a signal rather than a fiber's interruption. */
  readonly signal: AbortSignal
  /** Shows how far the run is: any JSON value, the last one wins. Written about once a second. */
  readonly progress: (value: unknown) => Effect.Effect<void>
  /** Keeps a line with the attempt: the newest fifty, of 500 characters each. */
  readonly log: (line: string) => Effect.Effect<void>
  /** A value as it would be kept as the result: JSON text, or `null` for nothing. */
  readonly toResult: (value: unknown) => string | null
  /** `false` in `deadman/testing`, where the job is in memory: `Effects` have nothing to commit with. */
  readonly inPostgres?: boolean | undefined
}>()("deadman/ports/CurrentJob") {}
