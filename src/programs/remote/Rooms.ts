/**
 * How many more jobs of each limited queue a worker elsewhere may hold.
 *
 * A process here counts what it holds; a worker elsewhere is counted by the store, by what runs under leases of its name.
 * That question is asked only while there is a limit at all, which is looked at every few seconds and when somebody
 * says that a queue has changed.
 */
import { Effect } from "effect"
import type { ClaimRequest } from "../../ports/JobStore.ts"
import type { Queues, QueuesUnavailable } from "../../ports/Queues.ts"

const everyMs = 5_000

export interface Rooms {
  /** Whether any queue has a limit, as far as is known. */
  readonly some: () => boolean
  readonly of: (worker: string) => Effect.Effect<Pick<ClaimRequest, "rooms">, QueuesUnavailable>
  /** Something was said about a queue. */
  readonly changed: () => void
}

export const make = (options: { readonly queues: Queues["Service"]; readonly now: () => number }): Rooms => {
  const { now, queues } = options
  let some: boolean | null = null
  let readMs = Number.NEGATIVE_INFINITY

  const read = Effect.suspend(() => {
    if (some !== null && now() - readMs < everyMs) {
      return Effect.void
    }
    readMs = now()
    const before = some
    return Effect.matchEffect(queues.limits, {
      onSuccess: (limits) =>
        Effect.sync(() => {
          some = limits.length > 0
        }),
      // While they cannot be read the last ones hold.
      onFailure: (error) => before === null ? Effect.fail(error) : Effect.void
    })
  })

  return {
    some: () => some === true,
    of: (worker) =>
      Effect.flatMap(
        read,
        () => some === true ? Effect.map(queues.roomsOf(worker), (rooms) => ({ rooms })) : Effect.succeed({})
      ),
    changed: () => {
      readMs = Number.NEGATIVE_INFINITY
    }
  }
}
