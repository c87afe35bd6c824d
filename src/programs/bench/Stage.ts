/**
 * What a suite of the bench plays on: a fresh database, the ports of the product over it, worker processes of the built
 * program, and readings of what all of it has used. The entry point builds it; the suites know no adapter.
 */
import { Context, type Effect, Schema, type Scope } from "effect"
import type { JobType } from "../../domain/Job.ts"
import type { JobStore } from "../../ports/JobStore.ts"
import type { Submitter } from "../../ports/Submitter.ts"

export class BenchFailed extends Schema.TaggedError<BenchFailed>()("BenchFailed", { message: Schema.String }) {}

/** Counters that only grow. */
export interface Reading {
  /** CPU of this process, in ms. */
  readonly clientMs: number
  /** CPU of the whole Postgres, in ms; `null` where its processes cannot be seen. */
  readonly serverMs: number | null
  readonly walBytes: number
  /** Transactions that wrote. */
  readonly commits: number
}

/** What the handlers of a worker process do. */
export type Work = "noop" | "1ms"

export interface Worker {
  readonly handled: Effect.Effect<number>
  /** By `nowMs`, when its handler was last called. */
  readonly lastMs: Effect.Effect<number>
  /** From before the submit to the start of the handler, of the jobs that say when they were submitted. */
  readonly takeLatencies: Effect.Effect<ReadonlyArray<number>>
  readonly cpuMs: Effect.Effect<number>
  readonly rssMb: Effect.Effect<number>
  readonly kill: Effect.Effect<void>
  /** SIGTERM, and waits for the end. */
  readonly stop: Effect.Effect<void>
}

/** One answered request after another, on each of `clients` keep-alive connections. */
export interface HttpLoad {
  readonly clients: number
  readonly requests: number
  readonly port: number
  readonly method: "GET" | "POST"
  readonly path: string
  readonly body: string
}

/** A database of one's own, and the product over it. */
export interface Site {
  readonly store: JobStore["Service"]
  readonly submitter: Submitter["Service"]
  /** The type that the workers have a handler for. */
  readonly type: JobType
  readonly reading: Effect.Effect<Reading, BenchFailed>
  /** All transactions so far; right once the processes that made them have ended. */
  readonly transactions: Effect.Effect<number, BenchFailed>
  /** A `worker.js` that is up and has run a job. It is killed with the scope. */
  readonly worker: (
    work: Work,
    env?: Readonly<Record<string, string>>
  ) => Effect.Effect<Worker, BenchFailed, Scope.Scope>
  /** A `server.js` that runs no jobs itself; answers its port and its CPU so far. */
  readonly server: Effect.Effect<
    { readonly port: number; readonly cpuMs: Effect.Effect<number> },
    BenchFailed,
    Scope.Scope
  >
  /** While paused, workers take nothing of `type`. */
  readonly pause: Effect.Effect<void, BenchFailed>
  readonly resume: Effect.Effect<void, BenchFailed>
  /** Jobs that are not at their end, but for those that are due in a year. */
  readonly outstanding: Effect.Effect<number, BenchFailed>
  /** Jobs that must not matter. */
  readonly seed: (kind: "future" | "finished", count: number) => Effect.Effect<void, BenchFailed>
  /** A checkpoint and a moment of quiet, so that each case begins alike. */
  readonly settle: Effect.Effect<void, BenchFailed>
  /** A transaction that keeps its old snapshot until the scope ends. */
  readonly pinned: Effect.Effect<void, BenchFailed, Scope.Scope>
  readonly http: (load: HttpLoad) => Effect.Effect<void, BenchFailed>
}

export class Stage extends Context.Service<Stage, {
  /** Fails nothing but the case that asked for it. */
  readonly site: Effect.Effect<Site, BenchFailed, Scope.Scope>
  /** A bare `node:http` server that answers each request at once; answers its port. */
  readonly hello: Effect.Effect<number, BenchFailed, Scope.Scope>
  /** Monotonic, and the same for every process of this machine. */
  readonly nowMs: Effect.Effect<number>
}>()("deadman/programs/bench/Stage") {}
