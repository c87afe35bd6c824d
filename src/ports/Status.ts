/**
 * Port: what a process says about itself. The driving side's view of the programs.
 *
 * Laws, which `test/programs/server` holds it to:
 *
 * 1. `stats` is at most five seconds behind and costs the store the same however many jobs there are.
 * 2. `readiness` judges progress, not connectivity: every loop, and whether the store answers.
 * 3. `isStopping` is true from the moment the process was told to stop, and asking costs nothing.
 */
import { Context, type Effect, Schema } from "effect"
import type { Counts } from "./JobStore.ts"
import type { ListedSession } from "./Sessions.ts"

/** Nothing recent is known. Perhaps later. */
export class StatusUnavailable extends Schema.TaggedError<StatusUnavailable>()("StatusUnavailable", {}) {}

export interface Stats {
  readonly version: string
  readonly profile: string
  /** Which adapter stands behind each port. */
  readonly adapters: Readonly<Record<string, string>>
  readonly counts: Counts
  readonly counters: Readonly<Record<string, number>>
  readonly workers: ReadonlyArray<ListedSession>
  /** Waiting jobs by type, of types that no process has a handler for; those with the most of them. */
  readonly unhandled: Readonly<Record<string, number>>
}

export interface Readiness {
  readonly ready: boolean
  readonly reasons: ReadonlyArray<string>
  /** What is slower than it should be, and no reason to send nobody here. */
  readonly degraded: ReadonlyArray<string>
  readonly loops: ReadonlyArray<{ readonly name: string; readonly lastOkMsAgo: number | null }>
  readonly services: Readonly<Record<string, "up" | "away">>
}

export class Status extends Context.Service<Status, {
  readonly stats: Effect.Effect<Stats, StatusUnavailable>
  readonly readiness: Effect.Effect<Readiness>
  readonly isStopping: () => boolean
}>()("deadman/ports/Status") {}
