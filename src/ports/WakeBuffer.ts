/**
 * Wakes on their way to a subscriber: bounded, and never in anybody's way.
 *
 * A wake is a hint to look, so two of a kind that wait say no more than one.
 * What was cut off is named claim by claim; where there are too many to keep,
 * `Resumed` takes their place: anything may have happened, look at everything.
 */
import { Effect, Queue, type Scope } from "effect"
import type { JobType } from "../domain/Job.ts"
import type { Wake } from "./Transport.ts"

/** Claims that were cut off and wait to be told. */
export const revokedMax = 1_000

/** Awaited types that wait to be told; of more, the others are said again by those who wait. */
export const awaitedMax = 2_000

export interface WakeBuffer {
  /** Never waits and never fails. */
  readonly offer: (wake: Wake) => void
  readonly wakes: Queue.Dequeue<Wake>
}

export const make: Effect.Effect<WakeBuffer, never, Scope.Scope> = Effect.gen(function*() {
  let resumed = false
  let ready = false
  let due = false
  let published = false
  let queues = false
  let awaited = new Set<JobType>()
  let revoked: Array<Wake> = []
  const changed = yield* Queue.sliding<void>(1)
  const wakes = yield* Effect.acquireRelease(Queue.bounded<Wake>(1), Queue.shutdown)

  // What interrupts a handler first: it costs a run that nobody wants.
  const shift = (): Wake | undefined => {
    if (resumed) {
      resumed = false
      return { _tag: "Resumed" }
    }
    const cutOff = revoked.shift()
    if (cutOff !== undefined) {
      return cutOff
    }
    // Before what it may hold back.
    if (queues) {
      queues = false
      return { _tag: "Queues" }
    }
    if (ready) {
      ready = false
      return { _tag: "Ready" }
    }
    if (due) {
      due = false
      return { _tag: "Due" }
    }
    if (published) {
      published = false
      return { _tag: "Published" }
    }
    if (awaited.size > 0) {
      const types = Array.from(awaited)
      awaited = new Set()
      return { _tag: "Awaited", types }
    }
    return undefined
  }

  const offer = (wake: Wake) => {
    switch (wake._tag) {
      case "Resumed":
        resumed = true
        break
      case "Ready":
        ready = true
        break
      case "Due":
        due = true
        break
      case "Queues":
        queues = true
        break
      case "Published":
        published = true
        break
      case "Awaited":
        for (const type of wake.types) {
          if (awaited.size < awaitedMax) {
            awaited.add(type)
          }
        }
        break
      case "Revoked":
        if (revoked.length >= revokedMax) {
          revoked = []
          resumed = true
        } else {
          revoked.push(wake)
        }
    }
    Queue.offerUnsafe(changed, undefined)
  }

  yield* Effect.forkScoped(Effect.forever(Effect.gen(function*() {
    yield* Queue.take(changed)
    for (let wake = shift(); wake !== undefined; wake = shift()) {
      yield* Queue.offer(wakes, wake)
    }
  })))

  return { offer, wakes }
})
