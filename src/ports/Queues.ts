/**
 * Port: what is said about queues, and how many jobs each has.
 *
 * Laws, which `test/contracts/QueuesContract.ts` holds every adapter to:
 *
 * 1. A queue exists once it has a job or was put. `put` changes what it names and leaves the rest as it was.
 * 2. From the answer of a put that pauses on, no claim takes a job of the queue, by order or by id, also none of a type
 *    that the queue sees for the first time. What runs goes on and settles.
 * 3. After it is resumed, what became ready meanwhile is claimed in its order; nothing was lost.
 * 4. `limits` names the queues that have a `concurrency`, all of them and no others. The store does not count for them:
 *    a claim is told by its `rooms` how many more of a queue its process may hold. Only where a claim says
 *    `limitsByName` the store counts itself.
 * 5. What becomes ready after a put is ranked by the queue's step. What was ready before is ranked anew by `rerank`, so
 *    many rows at a time, once it answers that nothing is left.
 * 6. `list` walks by name: no queue twice, and none missed that was there before the first page.
 * 7. Counts are those of `JobStore.counts`, by state.
 * 8. At most `limitedMax` queues have a `concurrency`: a further one is refused, and changes nothing.
 *
 * As in `JobStore`, no method hangs: each has a deadline of the adapter's, and a put may be repeated.
 */
import { Context, type Effect, Schema } from "effect"
import { because } from "../domain/Because.ts"
import type { Queue } from "../domain/Job.ts"
import type { JobState } from "../domain/JobState.ts"
import type { QueueSettings } from "../domain/QueueSettings.ts"

/** The store did not answer, or not in time. A put may still take effect, and may be repeated. */
export class QueuesUnavailable extends Schema.TaggedError<QueuesUnavailable>()("QueuesUnavailable", {
  operation: Schema.Literals(["list", "get", "put", "limits", "rerank"]),
  cause: Schema.Defect()
}) {
  override get message(): string {
    return `the settings of queues did not answer (${this.operation}): ${because(this.cause)}`
  }
}

/** So many queues have a limit that no other may. Take it from one that does not need it. */
export class TooManyLimits extends Schema.TaggedError<TooManyLimits>()("TooManyLimits", { most: Schema.Int }) {
  override get message(): string {
    return `at most ${this.most} queues may have a concurrency: take it from one that does not need it (null)`
  }
}

export interface QueueView extends QueueSettings {
  readonly name: Queue
  /** When it was first put; `null` where only jobs name it. */
  readonly createdAtMs: number | null
  readonly byState: Readonly<Record<JobState, number>>
}

export interface QueuePage {
  readonly queues: ReadonlyArray<QueueView>
  /** Whether there are further ones. */
  readonly more: boolean
}

export interface QueuePut {
  readonly queue: QueueView
  /** Whether the store has woken the workers itself. */
  readonly announced: boolean
}

export interface QueueLimit {
  readonly queue: Queue
  readonly concurrency: number
}

export interface Reranked {
  /** Jobs that have another place now. */
  readonly jobs: number
  /** When to go on; `null` where nothing is left to do. */
  readonly againInMs: number | null
}

type Answer<A> = Effect.Effect<A, QueuesUnavailable>

export class Queues extends Context.Service<Queues, {
  readonly list: (request: { readonly limit: number; readonly after: Queue | null }) => Answer<QueuePage>
  readonly get: (name: Queue) => Answer<QueueView | null>
  readonly put: (
    name: Queue,
    change: Partial<QueueSettings>
  ) => Effect.Effect<QueuePut, QueuesUnavailable | TooManyLimits>
  readonly limits: Answer<ReadonlyArray<QueueLimit>>
  /** Ranks ready jobs anew whose queue has got another step, at most `limit` of them. */
  readonly rerank: (limit: number) => Answer<Reranked>
}>()("deadman/ports/Queues") {}
