/**
 * `Transport` within one process: for tests and simulation.
 *
 * `layer` only wakes, as a Postgres without a broker does. `layerDelivering`
 * hands out ids, as a broker does: what its receiver did not acknowledge goes to
 * another one when the receiver has gone.
 */
import { Effect, Layer, Queue } from "effect"
import type { JobType } from "../../domain/Job.ts"
import type { JobId } from "../../domain/JobId.ts"
import { type Delivery, type Subscription, Transport, type Wake } from "../../ports/Transport.ts"
import * as WakeBuffer from "../../ports/WakeBuffer.ts"

/** Ids that wait for a receiver. The oldest go first where there are more: their jobs are in the store. */
const waitingMax = 100_000

const deliveryMax = 50

const make = Effect.fnUntraced(function*(delivering: boolean) {
  const buffers = new Set<WakeBuffer.WakeBuffer>()
  const waiting = yield* Queue.sliding<JobId>(waitingMax)
  const awaited = new Set<JobType>()

  const tell = (wakes: ReadonlyArray<Wake>) => {
    for (const buffer of buffers) {
      for (const wake of wakes) {
        buffer.offer(wake)
      }
    }
  }

  const publish: Transport["Service"]["publish"] = (jobs) =>
    Effect.sync(() => {
      const told = delivering ? jobs.filter(({ ordered }) => ordered === true) : jobs
      if (told.length > 0) {
        tell([{ _tag: "Ready" }])
      }
      if (jobs.some(({ type }) => awaited.has(type))) {
        tell([{ _tag: "Published" }])
      }
      if (delivering) {
        Queue.offerAllUnsafe(waiting, jobs.flatMap(({ id, ordered }) => ordered === true ? [] : [id]))
      }
    })

  const receive = Effect.fnUntraced(function*(deliveries: Queue.Queue<Delivery>) {
    const open = new Set<JobId>()
    yield* Effect.addFinalizer(() => Effect.sync(() => Queue.offerAllUnsafe(waiting, open)))
    const acknowledge: Delivery["acknowledge"] = (ids) =>
      Effect.sync(() => {
        for (const id of ids) {
          open.delete(id)
        }
      })
    // Between taking ids and writing them down as open nothing may interrupt, or they would be nobody's.
    yield* Effect.forkScoped(Effect.forever(Effect.uninterruptibleMask((restore) =>
      Effect.gen(function*() {
        const ids = yield* restore(Queue.takeBetween(waiting, 1, deliveryMax))
        for (const id of ids) {
          open.add(id)
        }
        yield* restore(Queue.offer(deliveries, { ids, acknowledge }))
      })
    )))
  })

  const subscribe: Transport["Service"]["subscribe"] = Effect.fnUntraced(function*({ worker }) {
    const buffer = yield* WakeBuffer.make
    yield* Effect.acquireRelease(
      Effect.sync(() => buffers.add(buffer)),
      () => Effect.sync(() => buffers.delete(buffer))
    )
    const deliveries = yield* Effect.acquireRelease(Queue.bounded<Delivery>(1), Queue.shutdown)
    if (delivering && worker) {
      yield* receive(deliveries)
    }
    const subscription: Subscription = {
      wakes: buffer.wakes,
      deliveries,
      wakesForAll: !delivering,
      healthy: Effect.succeed(true)
    }
    return subscription
  })

  return Transport.of({
    publish,
    wake: (wakes) => Effect.sync(() => tell(wakes)),
    subscribe,
    awaits: (types) =>
      Effect.sync(() => {
        // Without deliveries everybody is told of everything.
        for (const type of delivering ? types : []) {
          awaited.add(type)
        }
      }),
    // Nobody outside of the process could listen.
    announceDead: () => Effect.void
  })
})

export const layer: Layer.Layer<Transport> = Layer.effect(Transport, make(false))

export const layerDelivering: Layer.Layer<Transport> = Layer.effect(Transport, make(true))
