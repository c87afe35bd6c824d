/**
 * How many more jobs of each limited queue this process may hold.
 *
 * Counted is what is there: jobs under its leases, until their ending is on
 * record, and handlers that run on although their job is gone. So no count can
 * drift, and neither the rows nor the handlers of a queue are ever more than its
 * limit allows.
 *
 * Limits are read at the start, before anything is claimed, when somebody says
 * that one has changed, and every few seconds, since that may get lost, or less
 * often while all is calm. While they cannot be read the last ones hold. Pausing
 * is not here: each claim looks at it itself.
 */
import { Effect, Exit, Random } from "effect"
import type { ClaimedJob, Queue } from "../../domain/Job.ts"
import type { ClaimRequest } from "../../ports/JobStore.ts"
import type { Queues } from "../../ports/Queues.ts"
import type { Rhythm } from "../../ports/Rhythm.ts"
import type { Calm } from "./Calm.ts"
import { type HeldJob, isHeld, type Leases } from "./Leases.ts"
import * as Outage from "./Outage.ts"
import * as Signal from "./Signal.ts"

const everyMs = 5_000
/** So many times as long between two reads while all is calm. */
const calmTimes = 4

export type Rooms = NonNullable<ClaimRequest["rooms"]>

export interface Limits {
  /** Whether they were read at least once: before that nothing may be claimed. */
  readonly known: () => boolean
  /** By queue; what is not in it has none. */
  readonly all: () => ReadonlyMap<Queue, number>
  readonly rooms: () => Rooms
  /**
   * What a claim in order with these rooms has brought, `null` where its answer was lost. `complete`: nothing but the
   * rooms has cut it short.
   */
  readonly claimed: (rooms: Rooms, jobs: ReadonlyArray<ClaimedJob> | null, complete: boolean) => void
  /** Whether of one of these queues something may be claimed. */
  readonly someRoom: (queues: ReadonlyArray<Queue>) => boolean
  /** Neither held nor running any more. */
  readonly left: (held: HeldJob) => void
  /** Something was said about a queue. */
  readonly look: () => void
  /** Reads them. Ends only by interruption. */
  readonly run: Effect.Effect<never>
}

export const make = (options: {
  readonly queues: Queues["Service"]
  readonly leases: Leases
  /** Jobs whose handlers run. */
  readonly running: () => Iterable<HeldJob>
  readonly calm: Calm
  readonly now: () => number
  readonly rhythm: Rhythm
  /** They are others than before. */
  readonly changed: () => void
  /** There is room in a queue that has more. */
  readonly room: () => void
}): Limits => {
  const { leases, now } = options
  const look = Signal.make()
  const outage = Outage.make("reading the limits of queues")
  let known = false
  let all: ReadonlyMap<Queue, number> = new Map()
  /** Queues of which the last claim took all there was room for: there may be more. */
  let cut = new Set<Queue>()
  /** Queues of which something has gone since the rooms were last counted, and nobody was told. */
  let gone = new Set<Queue>()

  const counts = () => {
    const held = new Map<Queue, number>()
    const count = ({ job }: HeldJob) => {
      if (job !== null && all.has(job.queue)) {
        held.set(job.queue, (held.get(job.queue) ?? 0) + 1)
      }
    }
    for (const lease of leases.byId.values()) {
      lease.jobs.forEach(count)
    }
    for (const running of options.running()) {
      if (!isHeld(running)) {
        count(running)
      }
    }
    return held
  }

  const rooms: Limits["rooms"] = () => {
    if (all.size === 0) {
      return []
    }
    gone = new Set()
    const held = counts()
    return Array.from(all, ([queue, limit]) => ({ queue, room: Math.max(0, limit - (held.get(queue) ?? 0)) }))
  }

  const take = (next: ReadonlyMap<Queue, number>) => {
    const same = known && next.size === all.size && [...next].every(([queue, limit]) => all.get(queue) === limit)
    known = true
    if (!same) {
      all = next
      cut = new Set(all.keys())
      options.changed()
    }
  }

  return {
    known: () => known,
    all: () => all,
    rooms,
    claimed: (asked, jobs, complete) => {
      let roomier = false
      for (const { queue, room } of asked) {
        const taken = jobs?.reduce((n, job) => n + (job.queue === queue ? 1 : 0), 0) ?? room
        if (taken >= room) {
          cut.add(queue)
          roomier ||= gone.has(queue)
        } else if (complete) {
          cut.delete(queue)
        }
      }
      // While the claim was under way, or of what it has brought.
      if (roomier) {
        options.room()
      }
    },
    someRoom: (queues) => {
      const full = new Set(rooms().flatMap(({ queue, room }) => room === 0 ? [queue] : []))
      for (const queue of queues) {
        if (full.has(queue)) {
          cut.add(queue)
        }
      }
      return queues.some((queue) => !full.has(queue))
    },
    left: ({ job }) => {
      if (job === null || !all.has(job.queue)) {
        return
      }
      if (cut.has(job.queue)) {
        options.room()
      } else {
        gone.add(job.queue)
      }
    },
    look: look.notify,
    run: Effect.gen(function*() {
      while (true) {
        const exit = yield* Effect.exit(options.queues.limits)
        if (Exit.isSuccess(exit)) {
          yield* outage.worked
          take(new Map(exit.value.map(({ concurrency, queue }) => [queue, concurrency])))
          yield* look.wait(options.rhythm.within(everyMs * (options.calm.holds() ? calmTimes : 1)))
        } else {
          yield* outage.failed(now(), exit.cause)
          yield* Effect.sleep(Outage.pauseMs(outage.count(), yield* Random.next))
        }
      }
    })
  }
}
