/**
 * Port: who should look now.
 *
 * A transport carries hints. Losing one costs latency and never a job, because
 * workers also claim from the store by themselves.
 *
 * Laws, which `test/contracts/TransportContract.ts` holds every adapter to:
 *
 * 1. Each published job reaches some subscriber, either as a delivery that names it or as a wake `Ready`.
 * 2. `wake` reaches every subscriber of every process.
 * 3. A delivery that was not acknowledged is delivered again to somebody after its receiver has gone.
 * 4. Acknowledging in any order is allowed; what is not yet acknowledged holds back nothing else.
 * 5. A subscription outlives the loss of its connection: it comes back by itself and then says `Resumed` once, since
 *    wakes may have been missed.
 * 6. Undecodable messages are counted and skipped.
 * 7. A job that is `ordered` is told by a wake `Ready`.
 * 8. Dead letters handed to `announceDead` are on their way out when it succeeds.
 * 9. After `awaits`, and for `awaitedMs` from then on, a published job of one of those types is told to every subscriber
 *    by a wake `Ready` or `Published`, whoever publishes it and whatever else carries its id.
 *
 * Buffers are bounded: a subscriber that does not take its wakes is told fewer of them, never none.
 */
import { Context, type Effect, type Queue, Schema, type Scope } from "effect"
import { because } from "../domain/Because.ts"
import type { LeaseId } from "../domain/Claim.ts"
import type { JobType, Queue as QueueName } from "../domain/Job.ts"
import type { JobId } from "../domain/JobId.ts"
import type { DeadLetter } from "./JobStore.ts"

/** The transport did not take it in time. The jobs are in the store and will be found there. */
export class TransportUnavailable extends Schema.TaggedError<TransportUnavailable>()("TransportUnavailable", {
  operation: Schema.Literals(["publish", "wake", "subscribe", "awaits", "announceDead"]),
  cause: Schema.Defect()
}) {
  override get message(): string {
    return `the transport did not answer (${this.operation}): ${because(this.cause)}`
  }
}

export type Wake =
  /** Something became ready that did not queue, or may have: claim from the store, in order. */
  | { readonly _tag: "Ready" }
  /** Ids of an awaited type are on their way to workers: whoever is given none may find the jobs in the store. */
  | { readonly _tag: "Published" }
  /** Somebody waits for jobs of these types and is given no ids: for whoever publishes. */
  | { readonly _tag: "Awaited"; readonly types: ReadonlyArray<JobType> }
  /** Something is due soon: look at what waits. */
  | { readonly _tag: "Due" }
  /** Something else was said about a queue: read the limits anew. */
  | { readonly _tag: "Queues" }
  /** A claim was cut off: interrupt its handler. */
  | { readonly _tag: "Revoked"; readonly lease: LeaseId; readonly id: JobId; readonly epoch: number }
  /** The subscription was away; anything may have happened. */
  | { readonly _tag: "Resumed" }

/** How long it is remembered that somebody waits: whoever waits for longer says it again, some times within this. */
export const awaitedMs = 15_000

/** Ids of jobs that became ready, to be claimed by id. */
export interface Delivery {
  readonly ids: ReadonlyArray<JobId>
  /** These are settled or dropped. Never fails and never waits: positions are committed behind it. */
  readonly acknowledge: (ids: ReadonlyArray<JobId>) => Effect.Effect<void>
}

export interface ReadyJob {
  readonly id: JobId
  readonly type: JobType
  readonly queue: QueueName
  /** Its place is in the store's order, not behind what was published: it has a priority, or was taken back. */
  readonly ordered?: boolean
}

export interface Subscription {
  readonly wakes: Queue.Dequeue<Wake>
  /** Never filled by transports that only wake. Taking nothing is how a full worker pauses. */
  readonly deliveries: Queue.Dequeue<Delivery>
  /** Whether every job that becomes ready is told by a wake. Where deliveries spread them, one that is lost is not. */
  readonly wakesForAll: boolean
  /** Whether hints arrive at present. */
  readonly healthy: Effect.Effect<boolean>
}

export class Transport extends Context.Service<Transport, {
  readonly publish: (jobs: ReadonlyArray<ReadyJob>) => Effect.Effect<void, TransportUnavailable>
  readonly wake: (wakes: ReadonlyArray<Exclude<Wake, { _tag: "Resumed" }>>) => Effect.Effect<void, TransportUnavailable>
  readonly subscribe: (options: {
    /** Whether this process runs jobs, so that it takes part in deliveries. */
    readonly worker: boolean
  }) => Effect.Effect<Subscription, TransportUnavailable, Scope.Scope>
  /** Says that here somebody waits for jobs of these types who takes no part in deliveries. */
  readonly awaits: (types: ReadonlyArray<JobType>) => Effect.Effect<void, TransportUnavailable>
  readonly announceDead: (letters: ReadonlyArray<DeadLetter>) => Effect.Effect<void, TransportUnavailable>
}>()("deadman/ports/Transport") {}
