/**
 * How many more jobs of each limited queue a worker elsewhere may hold.
 *
 * A process here counts what it holds; a worker elsewhere is counted by the store, by what runs under leases of its name.
 * That question is asked only while there is a limit at all, which is looked at every few seconds and when somebody
 * says that a queue has changed.
 *
 * Between the count and the claim nothing else may be taken under that name, so here its claims go one after the other.
 * Processes do not wait for each other: a name that claims at several at once may exceed a limit, once for each of them.
 */
import { Effect, Semaphore } from "effect"
import type { ClaimRequest } from "../../ports/JobStore.ts"
import type { Queues, QueuesUnavailable } from "../../ports/Queues.ts"

const everyMs = 5_000

export interface Rooms {
  /** Whether any queue has a limit, as far as is known. */
  readonly some: () => boolean
  readonly of: (worker: string) => Effect.Effect<Pick<ClaimRequest, "rooms">, QueuesUnavailable>
  /** Runs a claim; where there is a limit, when those of the same worker that came before it have landed. */
  readonly inTurn: <A, E, R>(
    worker: string,
    claim: Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E | QueuesUnavailable, R>
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

  const turns = new Map<string, { readonly turn: Semaphore.Semaphore; waiting: number }>()

  const inTurn: Rooms["inTurn"] = (worker, claim) =>
    Effect.flatMap(read, () =>
      some !== true ? claim : Effect.acquireUseRelease(
        Effect.sync(() => {
          const known = turns.get(worker) ?? { turn: Semaphore.makeUnsafe(1), waiting: 0 }
          known.waiting += 1
          turns.set(worker, known)
          return known
        }),
        ({ turn }) => turn.withPermits(1)(claim),
        (known) =>
          Effect.sync(() => {
            known.waiting -= 1
            if (known.waiting === 0) {
              turns.delete(worker)
            }
          })
      ))

  return {
    some: () => some === true,
    inTurn,
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
