/**
 * Whether claims for workers elsewhere must be counted, since some queue has a limit.
 *
 * A process here counts what it holds; a worker elsewhere is counted by the store, in its claim, by what runs under
 * leases of its name. That is asked for only while there is a limit at all, which is looked at every few seconds and when
 * somebody says that a queue has changed.
 *
 * Claims of one name come one after the other in the store, whichever process sends them. Here they wait for their turn
 * before they are sent, so that none of them holds a connection meanwhile.
 */
import { Effect, Semaphore } from "effect"
import type { Queues, QueuesUnavailable } from "../../ports/Queues.ts"

const everyMs = 5_000

export interface Rooms {
  /** Whether any queue has a limit, as far as is known. */
  readonly some: () => boolean
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
    changed: () => {
      readMs = Number.NEGATIVE_INFINITY
    }
  }
}
