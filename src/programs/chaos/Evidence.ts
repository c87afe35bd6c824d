/** What the witnesses saw: rows that a trigger keeps in Postgres, and lines that the workers wrote themselves. */
import type { FaultKind } from "./Plan.ts"

export type StateCode = 0 | 1 | 2 | 3 | 4

/** A change of a job's row, in the order of their commits. */
export interface Transition {
  readonly job: string
  readonly seq: number
  /** By the clock of Postgres, which is the machine's. */
  readonly atMs: number
  /** `null` for the insert. */
  readonly from: StateCode | null
  /** `null` for a delete. */
  readonly to: StateCode | null
  readonly epochBefore: number | null
  readonly epoch: number
  readonly leaseBefore: string | null
  readonly lease: string | null
  readonly worker: string | null
  readonly attempts: number
  readonly losses: number
  readonly stale: number
}

export type Ended = "ok" | "failed" | "interrupted" | "refused" | "again"

/** A line of a worker. Times are of the machine: neither a stepped clock nor a freeze moves them. */
export interface Line {
  /** `ask` comes before each `effect`. */
  readonly kind: "start" | "end" | "ask" | "effect"
  readonly job: string
  readonly epoch: number
  readonly lease: string
  readonly pid: number
  readonly worker: string
  readonly wallMs: number
  readonly monoMs: number
  /** Of an end: how. Of an effect: what the store answered. */
  readonly what: Ended | "fired" | "already" | "unknown" | null
}

/** A row of the side effects, as it was inserted. */
export interface EffectRow {
  readonly job: string
  readonly epoch: number
  readonly atMs: number
  /** What the job's row said in that moment. */
  readonly seenEpoch: number | null
  readonly seenState: StateCode | null
}

export interface JobRow {
  readonly id: string
  readonly type: string
  readonly key: string | null
  readonly state: StateCode
  readonly reason: string | null
  readonly attempts: number
  readonly maxAttempts: number
  readonly epoch: number
  readonly deliveries: number
  readonly losses: number
  readonly lossesCounted: number
  readonly stale: number
  /** Claims whose late writes were refused and shown, as the journal has them. */
  readonly staleEpochs: ReadonlyArray<number>
}

export interface JobHistory {
  readonly row: JobRow
  readonly transitions: ReadonlyArray<Transition>
  readonly lines: ReadonlyArray<Line>
  readonly effects: ReadonlyArray<EffectRow>
}

/** A fault as it happened. */
export interface Deed {
  readonly n: number
  readonly kind: FaultKind
  /** Its begin and its end, by the machine's clock. The end of a fault of a service is when it answered again. */
  readonly atMs: number
  readonly endMs: number
  /** The worker, for those that hit one. */
  readonly worker: string | null
  readonly pid: number | null
  /** Why it did not happen after all. */
  readonly skipped: string | null
}

/** When a worker took a lease's token along: as it renewed, by Postgres. */
export type Renewals = ReadonlyMap<string, ReadonlyArray<number>>

/** A worker that has loaded its handlers. */
export interface Boot {
  readonly pid: number
  readonly wallMs: number
}

/** A message on Kafka, and when the group's committed offset was seen behind it. */
export interface Passed {
  readonly job: string
  readonly sentMs: number
  readonly passedMs: number
  /** Since when the group had had the same members; `null` where it was not settled. */
  readonly settledSinceMs: number | null
}
