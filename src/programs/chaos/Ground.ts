/**
 * What a siege does things to: processes, services, the network between them. And what it asks afterwards.
 *
 * The entry point says what stands behind it; here nobody knows a driver.
 */
import { Context, type Effect, Schema } from "effect"
import type { Boot, EffectRow, JobRow, Line, Passed, Renewals, Transition } from "./Evidence.ts"

/** A part of the ground does not do what it should: the run cannot be judged. */
export class GroundFailed extends Schema.TaggedError<GroundFailed>()("GroundFailed", { message: Schema.String }) {}

export type SignalName = "SIGKILL" | "SIGSTOP" | "SIGCONT" | "SIGTERM" | "SIGUSR2"

export interface Child {
  readonly name: string
  readonly pid: number
  readonly alive: () => boolean
  /** A worker that has loaded its handlers. */
  readonly ready: () => boolean
  /** It has begun a job. */
  readonly working: () => boolean
  readonly signal: (name: SignalName) => Effect.Effect<void>
  readonly exited: Effect.Effect<unknown>
}

export interface Service {
  /** As in a crash, and up again. */
  readonly crash: Effect.Effect<void, GroundFailed>
  readonly start: Effect.Effect<void, GroundFailed>
  readonly freeze: Effect.Effect<void, GroundFailed>
  readonly thaw: Effect.Effect<void, GroundFailed>
  /** Loses all it has, at once. Not of Postgres. */
  readonly lose: Effect.Effect<void, GroundFailed>
}

export interface Submitted {
  readonly type: string
  readonly payload: unknown
  readonly idempotency_key: string
  readonly max_attempts: number
  readonly backoff: { readonly kind: "fixed"; readonly delay_ms: number }
}

export class Ground extends Context.Service<Ground, {
  readonly servers: number
  /** Processes that want to run, for each core, over the last minute. */
  readonly load: Effect.Effect<number>
  readonly hire: (role: "server" | "worker", n: number) => Effect.Effect<Child, GroundFailed>
  /** The ids, each `null` or missing where no answer says that the job was taken. */
  readonly submit: (server: number, jobs: ReadonlyArray<Submitted>) => Effect.Effect<ReadonlyArray<string | null>>
  readonly answers: (server: number) => Effect.Effect<boolean>
  readonly services: Readonly<Partial<Record<"postgres" | "redis" | "kafka", Service>>>
  readonly network: {
    readonly cut: (share: number) => Effect.Effect<number>
    readonly halfOpen: (share: number) => Effect.Effect<number>
    readonly mend: Effect.Effect<void>
  }
}>()("deadman/programs/chaos/Ground") {}

export interface Counts {
  readonly submitted: number
  readonly outstanding: number
  readonly running: number
  readonly completed: number
}

export class Witness extends Context.Service<Witness, {
  readonly install: Effect.Effect<void, GroundFailed>
  readonly counts: Effect.Effect<Counts, GroundFailed>
  /** Once nothing happens any more. */
  readonly close: Effect.Effect<void, GroundFailed>
  readonly renewals: Effect.Effect<Renewals, GroundFailed>
  readonly jobs: (after: string | null, limit: number) => Effect.Effect<ReadonlyArray<JobRow>, GroundFailed>
  readonly transitions: (first: string, last: string) => Effect.Effect<ReadonlyArray<Transition>, GroundFailed>
  readonly effects: (first: string, last: string) => Effect.Effect<ReadonlyArray<EffectRow>, GroundFailed>
  /** Of the scale profile: what Kafka's group has committed. */
  readonly passed: Effect.Effect<ReadonlyArray<Passed>>
  readonly vanished: Effect.Effect<ReadonlyArray<string>, GroundFailed>
  /** What the workers wrote, by job. */
  readonly lines: Effect.Effect<{
    readonly lines: ReadonlyMap<string, ReadonlyArray<Line>>
    readonly boots: ReadonlyArray<Boot>
  }, GroundFailed>
}>()("deadman/programs/chaos/Ground/Witness") {}
