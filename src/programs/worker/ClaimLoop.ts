/**
 * Claims jobs while there is room for them.
 *
 * One claim is under way at a time, under a lease drawn before it is asked. A
 * worker that was woken claims at once, in the store's order; one that got all
 * it asked for goes on as soon as a fraction of its room is free; a full one
 * asks for nothing. Delivered ids are claimed by id, but at least once a second
 * the next free slot goes to the oldest ready job, and a worker that nobody woke
 * looks by itself: hints may be lost, and then cost latency only. A message about
 * a job that must keep its place in the order, or whose queue has a limit, is a
 * wake and no more.
 *
 * Where a claim's answer is lost, what it took is asked for under the same
 * lease; what that cannot find is handed back by the heartbeat, since the claim
 * may still take effect.
 */
import { type Context, Duration, Effect, Exit, Random } from "effect"
import type { LeaseId } from "../../domain/Claim.ts"
import type { ClaimedJob, JobType } from "../../domain/Job.ts"
import type { JobId } from "../../domain/JobId.ts"
import type { DelayedJobs } from "../../ports/DelayedJobs.ts"
import type { ClaimRequest, JobStore, JobStoreUnavailable } from "../../ports/JobStore.ts"
import type { Rhythm } from "../../ports/Rhythm.ts"
import type { Loop } from "../process/Loops.ts"
import * as Meters from "../process/Meters.ts"
import type { Calm } from "./Calm.ts"
import type { Deliveries } from "./Deliveries.ts"
import type { Leases } from "./Leases.ts"
import type { Limits, Rooms } from "./Limits.ts"
import * as Outage from "./Outage.ts"
import type { Room } from "./Room.ts"
import * as Signal from "./Signal.ts"
import { isSuspect, type Slots } from "./Slots.ts"

/** Bytes of payload that one claim may bring; two of them may wait and run. */
export const claimBytesMax = 4 * 1_048_576
/** How long less than a fraction of the room may stay free while there is work. */
const trickleMs = 20
/** How often the next free slot goes to the oldest ready job. */
const oldestEveryMs = 1_000
/** Without a delivery for this long, what was ready for `readyForMs` is claimed from the store. */
const quietMs = 500
const readyForMs = 1_000
/** Delivered ids that one claim asks about, at most. */
const askMax = 1_000
/**
 * Jobs that a claim asks for where few are expected: a store answers that sooner. Whoever gets them all goes on at once,
 * with all there is room for.
 */
export const fewMax = 64
/** So many times as long between two looks while all is calm. */
const calmTimes = 5
/** A full worker looks up this often, to say that it is well, */
const lookUpMs = 1_000
/** and one that looks for work less often than this. */
const idleMs = 5_000

export interface ClaimLoop {
  /** Something became ready: claim in the next turn of the event loop. */
  readonly wake: () => void
  /** The same, at once: for a caller that is in the middle of nothing. */
  readonly wakeNow: () => void
  /** Something came to be claimed. */
  readonly look: () => void
  /** There may be more room. */
  readonly freed: () => void
  /** Wakes do not arrive: the next look is not as far away as if they did. */
  readonly unhinted: () => void
  /** No further claims. The one under way ends by itself. */
  readonly stop: () => void
  /** How many delivered ids the next claim would ask about where there is less room. */
  readonly reach: () => number
  /** The lease of a claim that is not answered yet. */
  readonly underWay: () => { readonly lease: LeaseId; readonly sentMs: number } | null
  readonly run: Effect.Effect<void>
}

type Claimed = ReadonlyArray<ClaimedJob>

export const make = (options: {
  readonly store: JobStore["Service"]
  readonly delayed: DelayedJobs["Service"]
  readonly leases: Leases
  readonly slots: Slots
  readonly deliveries: Deliveries
  readonly limits: Limits
  readonly types: ReadonlyArray<JobType>
  readonly worker: string
  readonly leaseMs: number
  readonly trialLosses: number
  readonly poll: Duration.Duration
  readonly calm: Calm
  readonly now: () => number
  readonly rhythm: Rhythm
  readonly drawLease: () => LeaseId
  /** Whether outcomes pile up. */
  readonly full: () => boolean
  readonly loop: Loop
  readonly context: Context.Context<never>
}): ClaimLoop => {
  const { calm, deliveries, leases, limits, now, slots, store } = options
  const look = Signal.make()
  const outage = Outage.make("claiming")
  const pollMs = Duration.toMillis(options.poll)
  let stopped = false
  let underWay: ReturnType<ClaimLoop["underWay"]> = null
  /** Woken since the last claim was sent. */
  let woken = true
  /** The last claim took all that it asked for: there is probably more. */
  let hungry = false
  /** What keeps it from claiming is want of room. */
  let cramped = false
  /** The last one in order brought so many that the next may bring more than a few. */
  let many = false
  /** How many claims in order, since one brought something, were told that there may be more. */
  let toldMore = 0
  let lastClaimMs = Number.NEGATIVE_INFINITY
  let lastOrderedMs = Number.NEGATIVE_INFINITY
  /** When a claim in order last asked for a job that starts at once. */
  let lastOldestMs = Number.NEGATIVE_INFINITY
  let nextPollMs = Number.NEGATIVE_INFINITY
  /** When a job last came that had lost a lease: others may have lost theirs with it. */
  let lossSeenMs = Number.NEGATIVE_INFINITY
  /**
   * Old messages, of jobs that are over, come in long rows where a group goes back: as long as nothing of what was
   * asked about is to be run, the next claim asks about twice as many, whatever room there is.
   */
  let reach = 0

  const request = (lease: LeaseId, room: Room, limit: number, rooms: Rooms): ClaimRequest => ({
    lease,
    leaseMs: options.leaseMs,
    worker: options.worker,
    types: options.types,
    limit,
    freeSlots: room.free,
    bytes: claimBytesMax,
    ...(rooms.length > 0 ? { rooms } : {}),
    ...(slots.onTrial() ? { lossesBelow: options.trialLosses } : {})
  })

  const adopt = (lease: LeaseId, sentMs: number, jobs: Claimed, first: boolean) => {
    if (jobs.length === 0) {
      return Effect.void
    }
    slots.offer(leases.adopt({ id: lease, leaseMs: options.leaseMs, sentMs }, jobs, now()), first)
    for (const job of jobs) {
      Meters.waitMs.updateUnsafe(job.waitedMs, options.context)
    }
    return Meters.add("claimed", jobs.length)
  }

  /** What a claim took whose answer was lost. */
  const recall = Effect.fnUntraced(function*(lease: LeaseId, lostMs: number) {
    while (!stopped && now() - lostMs < options.leaseMs) {
      yield* Effect.sleep(Outage.pauseMs(outage.count(), yield* Random.next))
      const sentMs = now()
      const exit = yield* Effect.exit(store.recall(lease))
      if (Exit.isFailure(exit)) {
        yield* outage.failed(now(), exit.cause)
        continue
      }
      yield* outage.worked
      const { jobs } = exit.value
      if (jobs.length > 0) {
        yield* adopt(lease, sentMs, jobs, false)
        return jobs
      }
      break
    }
    leases.doubt(lease, lostMs, options.leaseMs)
    return []
  })

  const ask = Effect.fnUntraced(function*<A>(
    claim: (lease: LeaseId) => Effect.Effect<A, JobStoreUnavailable>,
    jobs: (answer: A) => Claimed,
    first: boolean
  ) {
    const lease = options.drawLease()
    const sentMs = now()
    lastClaimMs = sentMs
    underWay = { lease, sentMs }
    const exit = yield* Effect.exit(claim(lease))
    if (Exit.isSuccess(exit)) {
      yield* outage.worked
      yield* adopt(lease, sentMs, jobs(exit.value), first)
      underWay = null
      yield* options.loop.beat
      return { answer: exit.value, jobs: jobs(exit.value) }
    }
    yield* outage.failed(now(), exit.cause)
    const recalled = yield* recall(lease, sentMs)
    underWay = null
    return { answer: null, jobs: recalled }
  })

  /** Whether a claim that brought fewer jobs than asked for was cut short by their size. */
  const isLarge = (jobs: Claimed): boolean => {
    let bytes = 0
    for (const job of jobs) {
      bytes += JSON.stringify(job.payload)?.length ?? 0
      if (bytes > claimBytesMax / 2) {
        return true
      }
    }
    return false
  }

  const claimOrdered = Effect.fnUntraced(function*(room: Room, onlyReadyForMs: number | null) {
    const glance = !woken && !hungry
    if (!glance) {
      calm.stir()
    }
    const limit = hungry || many ? room.want : Math.min(room.want, fewMax)
    woken = false
    lastOrderedMs = now()
    if (room.free > 0) {
      lastOldestMs = lastOrderedMs
    }
    const rooms = limits.rooms()
    let more = false
    const { answer, jobs } = yield* ask(
      (lease) =>
        store.claim({
          ...request(lease, room, limit, rooms),
          ...(glance ? { glance } : {}),
          ...(onlyReadyForMs === null ? {} : { readyForMs: onlyReadyForMs }),
          onMore: () => {
            more = true
          }
        }),
      (answer) => answer,
      false
    )
    toldMore = !more ? 0 : jobs.length > 0 ? 1 : toldMore + 1
    if (jobs.some(({ leaseLosses }) => leaseLosses > 0)) {
      lossSeenMs = now()
    }
    // A suspect is left behind by a claim that begins with another job, and nobody is woken for it a second time.
    const someLeft = jobs.length > 0 && now() - lossSeenMs < 2 * options.leaseMs
    many = jobs.length >= fewMax / 2
    hungry = answer === null || jobs.length >= limit || someLeft || (jobs.length > 1 && isLarge(jobs))
    limits.claimed(rooms, answer === null ? null : jobs, !hungry && !more && onlyReadyForMs === null)
    if (jobs.length > 0) {
      calm.stir()
    }
    const lookMs = calm.holds() ? options.rhythm.within(pollMs * calmTimes) : pollMs * (0.75 + (yield* Random.next) / 2)
    // At once, and where that did not help, a little later each time: whoever is in the way is done soon.
    woken ||= toldMore === 1
    nextPollMs = now() + (toldMore > 1 ? Math.min(lookMs, 2 ** toldMore) : lookMs)
  })

  /** The next free slot for the oldest ready job, whatever was delivered or claimed ahead. */
  const claimOldest = Effect.fnUntraced(function*(room: Room) {
    lastOldestMs = now()
    const rooms = limits.rooms()
    const { answer, jobs } = yield* ask(
      (lease) => store.claim(request(lease, { ...room, free: 1 }, 1, rooms)),
      (answer) => answer,
      true
    )
    limits.claimed(rooms, answer === null ? null : jobs, false)
    // Where one had lost leases others may have too, and only here do they get in while there is no slot to spare.
    if (jobs.some(isSuspect)) {
      lastOldestMs = Number.NEGATIVE_INFINITY
    }
  })

  const claimDelivered = Effect.fnUntraced(function*(room: Room) {
    const ids = deliveries.next(Math.max(room.want, reach))
    const { answer, jobs } = yield* ask(
      (lease) =>
        store.claimIds({ ...request(lease, room, room.want, limits.rooms()), ids }).pipe(
          // Before they start: one may end on the spot.
          Effect.tap(({ claimed }) => Effect.sync(() => deliveries.claimed(claimed.map(({ id }) => id))))
        ),
      ({ claimed }) => claimed,
      false
    )
    const taken = new Set<JobId>(jobs.map((job) => job.id))
    deliveries.claimed(taken)
    if (answer === null) {
      // The others are asked for again.
      return
    }
    if (answer.notYetDue.length > 0) {
      // Without it the scan of the store finds them, later.
      yield* Effect.ignore(options.delayed.schedule(answer.notYetDue))
    }
    const left = new Set(answer.left)
    deliveries.drop(ids.filter((id) => !taken.has(id) && !left.has(id)))
    if (jobs.length === 0) {
      reach = Math.min(askMax, Math.max(reach, 2 * ids.length))
    } else if (jobs.length >= room.want) {
      reach = 0
    }
    if (limits.someRoom(answer.inOrder)) {
      woken = true
    }
  })

  /** How long to wait before looking again. */
  const round = Effect.gen(function*() {
    const room = slots.room()
    const atMs = now()
    cramped = false
    if (!limits.known()) {
      // Nobody could say how much of a queue is too much.
      return lookUpMs
    }
    if (room.want === 0 || options.full()) {
      cramped = true
      yield* options.loop.beat
      return lookUpMs
    }
    const enough = room.want >= Math.max(1, Math.floor(room.target / 4)) || atMs - lastClaimMs >= trickleMs
    const lastMs = deliveries.lastMs()
    const busy = woken || hungry || deliveries.waiting() > 0
    // Where all that is free is spoken for, the oldest job, or one that must start alone, would never have its turn.
    if (
      busy && room.urgent === 0 && atMs - lastOldestMs >= oldestEveryMs &&
      (room.free === 0 || deliveries.waiting() > 0)
    ) {
      yield* claimOldest(room)
      return 0
    }
    if (busy && !enough) {
      cramped = true
      return trickleMs
    }
    if (woken || hungry) {
      yield* claimOrdered(room, null)
      return 0
    }
    if (deliveries.waiting() > 0) {
      yield* claimDelivered(room)
      return 0
    }
    if (atMs >= nextPollMs || (lastMs !== null && atMs - Math.max(lastMs, lastOrderedMs) >= quietMs)) {
      // Who was told that there is more asks the same again, and does not look for what others overlooked.
      yield* claimOrdered(room, lastMs === null || toldMore > 1 ? null : readyForMs)
      return 0
    }
    return Math.max(1, Math.min(idleMs, nextPollMs - atMs, lastMs === null ? idleMs : quietMs))
  })

  return {
    wake: () => {
      woken = true
      look.notify()
    },
    wakeNow: () => {
      woken = true
      look.notifyNow()
    },
    look: look.notify,
    freed: () => {
      if (cramped) {
        look.notify()
      }
    },
    unhinted: () => {
      nextPollMs = Math.min(nextPollMs, now() + pollMs)
      look.notify()
    },
    underWay: () => underWay,
    reach: () => reach,
    stop: () => {
      stopped = true
      look.notify()
    },
    run: Effect.gen(function*() {
      while (!stopped) {
        const exit = yield* Effect.exit(round)
        const waitMs = Exit.isSuccess(exit)
          ? (outage.count() === 0 ? exit.value : Outage.pauseMs(outage.count(), yield* Random.next))
          : lookUpMs
        if (Exit.isFailure(exit)) {
          yield* Effect.logError("the claim loop broke and goes on", exit.cause)
        }
        if (waitMs > 0 && !stopped) {
          yield* (outage.count() === 0 ? look.wait(waitMs) : Effect.sleep(waitMs))
        }
      }
    })
  }
}
