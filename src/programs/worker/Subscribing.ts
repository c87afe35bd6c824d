/**
 * Listens to the transport: takes what it delivers, heeds its wakes, and knows whether they arrive.
 *
 * All of it is a hint. Where it does not come, jobs are found by looking, revocations by the next heartbeat, and limits
 * by reading them every few seconds.
 */
import { Effect, Queue } from "effect"
import type { Rhythm } from "../../ports/Rhythm.ts"
import type { Subscription, Transport, Wake } from "../../ports/Transport.ts"
import type { Loops } from "../process/Loops.ts"
import type { ClaimLoop } from "./ClaimLoop.ts"
import type { Deliveries } from "./Deliveries.ts"
import type { Leases } from "./Leases.ts"
import type { Limits } from "./Limits.ts"
import * as Outage from "./Outage.ts"
import type { Slots } from "./Slots.ts"

const healthEveryMs = 5_000

export interface Subscribing {
  /** Whether wakes arrive, when that was last looked at. */
  readonly hinted: () => boolean
  /** Subscribes, and again whenever that ends. Ends only by interruption. */
  readonly run: Effect.Effect<never>
}

export const make = (options: {
  readonly transport: Transport["Service"]
  readonly loops: Loops["Service"]
  readonly leases: Leases
  readonly deliveries: Deliveries
  readonly limits: Limits
  readonly slots: Slots
  readonly claims: ClaimLoop
  /** How many ids may wait here to be claimed. */
  readonly wanted: () => number
  readonly now: () => number
  readonly rhythm: Rhythm
}): Subscribing => {
  const { claims, deliveries, leases, limits, loops, slots, rhythm, transport } = options
  const outage = Outage.make("subscribing to the transport")
  let hinted = false

  const heed = (wake: Wake) => {
    switch (wake._tag) {
      case "Due":
        // The keeper's affair.
        return
      case "Published":
      case "Awaited":
        // For those that are given no ids, and for those that publish.
        return
      case "Revoked": {
        const held = leases.byId.get(wake.lease)?.jobs.get(wake.id)
        if (held !== undefined && held.claim.epoch === wake.epoch) {
          slots.stop(held, "silent", "the job was taken away")
        }
        return
      }
      case "Resumed":
        // A revocation may have been missed: the next heartbeat asks the records.
        for (const lease of leases.byId.values()) {
          lease.verifiedMs = Number.NEGATIVE_INFINITY
        }
        limits.look()
        return claims.wake()
      case "Queues":
        return limits.look()
      case "Ready":
        return claims.wakeNow()
    }
  }

  const listen = Effect.fnUntraced(function*({ wakes }: Subscription) {
    while (true) {
      const taken = yield* Queue.takeAll(wakes)
      taken.forEach(heed)
    }
  })

  const hint = (well: boolean) => {
    if (hinted && !well) {
      claims.unhinted()
      limits.look()
    }
    hinted = well
  }

  const watchHealth = Effect.fnUntraced(function*({ healthy, wakesForAll }: Subscription) {
    while (true) {
      const well = yield* healthy
      hint(well && wakesForAll)
      yield* loops.setDegraded(
        "transport",
        well ? null : "hints do not arrive at present: jobs are found by looking, which is slower"
      )
      yield* Effect.sleep(well ? rhythm.within(healthEveryMs) : healthEveryMs / 10)
    }
  })

  const subscribed = Effect.gen(function*() {
    const subscription = yield* transport.subscribe({ worker: true })
    yield* outage.worked
    claims.wake()
    yield* Effect.all([
      listen(subscription),
      watchHealth(subscription),
      deliveries.take(subscription, options.wanted)
    ], { concurrency: "unbounded", discard: true })
  }).pipe(Effect.ensuring(Effect.sync(() => hint(false))), Effect.scoped)

  return {
    hinted: () => hinted,
    run: Outage.keep(outage, options.now, subscribed)
  }
}
