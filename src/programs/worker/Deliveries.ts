/**
 * Ids that a transport delivered: kept until their jobs are settled or dropped, and then acknowledged.
 *
 * Taking none is how a full worker pauses. What is not acknowledged when the
 * process goes is delivered to somebody else.
 */
import { Clock, Effect, Queue } from "effect"
import type { JobId } from "../../domain/JobId.ts"
import type { Delivery, Subscription } from "../../ports/Transport.ts"
import * as Signal from "./Signal.ts"

type Acknowledge = Delivery["acknowledge"]

export interface Deliveries {
  /** Ids that wait to be claimed, the oldest first. */
  readonly next: (limit: number) => ReadonlyArray<JobId>
  readonly waiting: () => number
  /** These are ours now. */
  readonly claimed: (ids: Iterable<JobId>) => void
  /** Acknowledges ids that wait, since nothing of them is to be done here. */
  readonly drop: (ids: Iterable<JobId>) => void
  /** Acknowledges ids that were claimed, since their jobs are settled or not ours. */
  readonly done: (id: JobId) => void
  /** Monotonic, when something was last delivered; `null` before the first time. */
  readonly lastMs: () => number | null
  /** Takes deliveries while there is room for more. Ends only by interruption. */
  readonly take: (subscription: Subscription, wanted: () => number) => Effect.Effect<never>
  /** Acknowledges what is done. Ends only by interruption. */
  readonly acknowledge: Effect.Effect<never>
  readonly flush: Effect.Effect<void>
  /** Said when there may be room for more. */
  readonly room: Signal.Signal
}

export const make = (options: { readonly arrived: () => void }): Deliveries => {
  const waiting = new Map<JobId, Array<Acknowledge>>()
  const held = new Map<JobId, Array<Acknowledge>>()
  let finished = new Map<Acknowledge, Array<JobId>>()
  const room = Signal.make()
  const finish = Signal.make()
  let lastMs: number | null = null

  const acknowledgeLater = (id: JobId, acknowledges: ReadonlyArray<Acknowledge>) => {
    for (const acknowledge of acknowledges) {
      const ids = finished.get(acknowledge)
      if (ids === undefined) {
        finished.set(acknowledge, [id])
      } else {
        ids.push(id)
      }
    }
    finish.notify()
  }

  const move = (from: Map<JobId, Array<Acknowledge>>, id: JobId): Array<Acknowledge> => {
    const acknowledges = from.get(id) ?? []
    from.delete(id)
    return acknowledges
  }

  const flush = Effect.suspend(() => {
    const batch = finished
    finished = new Map()
    return Effect.forEach(batch, ([acknowledge, ids]) => acknowledge(ids), { discard: true })
  })

  return {
    next: (limit) => {
      const ids: Array<JobId> = []
      for (const id of waiting.keys()) {
        if (ids.length >= limit) {
          break
        }
        ids.push(id)
      }
      return ids
    },
    waiting: () => waiting.size,
    claimed: (ids) => {
      for (const id of ids) {
        const acknowledges = move(waiting, id)
        if (acknowledges.length > 0) {
          held.set(id, [...(held.get(id) ?? []), ...acknowledges])
        }
      }
      room.notify()
    },
    drop: (ids) => {
      for (const id of ids) {
        acknowledgeLater(id, move(waiting, id))
      }
      room.notify()
    },
    done: (id) => {
      // Empty where the transport only wakes, and then this costs nothing.
      if (held.size > 0) {
        const acknowledges = move(held, id)
        if (acknowledges.length > 0) {
          acknowledgeLater(id, acknowledges)
        }
      }
    },
    lastMs: () => lastMs,
    take: (subscription, wanted) =>
      Effect.gen(function*() {
        while (true) {
          if (waiting.size >= wanted()) {
            yield* room.wait(100)
            continue
          }
          const delivery = yield* Queue.take(subscription.deliveries)
          lastMs = Number(yield* Clock.monotonicTimeNanos) / 1e6
          for (const id of delivery.ids) {
            const before = waiting.get(id)
            if (before === undefined) {
              waiting.set(id, [delivery.acknowledge])
            } else {
              before.push(delivery.acknowledge)
            }
          }
          options.arrived()
        }
      }),
    acknowledge: Effect.gen(function*() {
      while (true) {
        yield* finish.wait(Number.POSITIVE_INFINITY)
        yield* flush
      }
    }),
    flush,
    room
  }
}
