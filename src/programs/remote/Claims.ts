/**
 * Claims of workers elsewhere.
 *
 * Whoever asks is looked for at once, and waits then in a row with all that wait for the same (`Rows.ts`).
 *
 * A claim runs apart from the request that asked for it. Where the asker has gone when it lands, what it took is handed
 * back; where the same lease was asked for again meanwhile, the new asker gets it. Where its answer was lost, the asker
 * is told to repeat it under the same lease, and a lease that was drawn here is abandoned until that has worked, for one
 * length of it: then it lapses by itself.
 */
import { Deferred, Effect, Exit, Random, type Scope, Semaphore } from "effect"
import type { LeaseId } from "../../domain/Claim.ts"
import type { ClaimedJob } from "../../domain/Job.ts"
import { claimedToken, type JobStore } from "../../ports/JobStore.ts"
import { type RemoteClaims, type RemoteRequest, RemoteUnavailable } from "../../ports/RemoteWorkers.ts"
import * as Outage from "../worker/Outage.ts"
import type { Awaiting } from "./Awaiting.ts"
import type { Rooms } from "./Rooms.ts"
import * as Rows from "./Rows.ts"

/** Those that ask and wait, at most. */
export const askersMax = 2_000
/** Bytes of payload of one claim. */
const claimBytesMax = 4 * 1_048_576
/** Claims under way at once: the connections are everybody's. */
const claimsMax = 4
/** Leases in doubt, at most: what is dropped lapses by itself. */
const doubtfulMax = 10_000
/** How long a claim that is under way is waited for past the asker's own time. */
const landingMs = 4_000

type Answer = Deferred.Deferred<RemoteClaims, RemoteUnavailable>

interface Asker {
  readonly lease: LeaseId
  /** Its lease was drawn here: whoever asks again asks under another. */
  readonly drawn: boolean
  request: RemoteRequest
  /** `null`: gone. */
  answer: Answer | null
  /** A claim of it is under way. */
  asking: boolean
  /** Something may have been taken under its lease that it does not know of. */
  doubt: boolean
  /** Its time is over: the claim that is under way is its last. */
  over: boolean
}

export interface Claims {
  readonly claim: (request: RemoteRequest) => Effect.Effect<RemoteClaims, RemoteUnavailable>
  /** Something became ready. */
  readonly wake: () => void
  /** Ends every wait. */
  readonly stop: () => void
  /** Looks without being woken, and hands back what is in doubt. Ends only by interruption. */
  readonly run: Effect.Effect<never>
  /** Hands back, at no cost, whatever runs under a lease whose asker does not know of it. */
  readonly giveBack: (claims: RemoteClaims, drawn: boolean) => Effect.Effect<void>
  readonly abandon: Effect.Effect<void>
}

const store503 = new RemoteUnavailable({ reason: "store" })
const stopping = new RemoteUnavailable({ reason: "stopping" })
const full = new RemoteUnavailable({ reason: "full" })

export const make = Effect.fnUntraced(function*(options: {
  readonly store: JobStore["Service"]
  readonly now: () => number
  readonly drawLease: () => LeaseId
  readonly rooms: Rooms
  readonly awaiting: Awaiting
  /** The length that is on record for it; `null` where nothing is. */
  readonly lengthOf: (lease: LeaseId) => Effect.Effect<number | null>
  /** Said before the answer is given. */
  readonly granted: (
    claims: RemoteClaims,
    request: RemoteRequest,
    sentMs: number,
    fresh: boolean
  ) => Effect.Effect<void>
  readonly waits: (worker: string, more: 1 | -1) => void
}): Effect.fn.Return<Claims, never, Scope.Scope> {
  const { now, store } = options
  const scope = yield* Effect.scope
  const claiming = yield* Semaphore.make(claimsMax)
  const outage = Outage.make("claiming for workers elsewhere")
  const askers = new Map<LeaseId, Asker>()
  /** Leases drawn here that may have taken something; `landed`: that is certain, so handing back once is enough. */
  const doubtful = new Map<LeaseId, { readonly sinceMs: number; readonly leaseMs: number; readonly landed: boolean }>()
  let stopped = false

  // Where queues have limits, what one worker may not take another may.
  const keyOf = ({ queues, types, worker }: RemoteRequest) =>
    `${[...types].sort().join(" ")}|${queues === null ? "*" : [...queues].sort().join(" ")}` +
    (options.rooms.some() ? `|${worker}` : "")

  const finish = (asker: Asker, exit: Exit.Exit<RemoteClaims, RemoteUnavailable>) => {
    rows.leave(asker)
    if (askers.get(asker.lease) === asker) {
      askers.delete(asker.lease)
    }
    if (asker.answer !== null) {
      Deferred.doneUnsafe(asker.answer, exit)
    }
  }

  const answerOf = (
    asker: Asker,
    jobs: ReadonlyArray<ClaimedJob>,
    { leaseMs, token }: Pick<RemoteClaims, "leaseMs" | "token"> = {
      leaseMs: asker.request.leaseMs,
      token: claimedToken
    }
  ): RemoteClaims => ({
    lease: asker.lease,
    leaseMs,
    jobs,
    token
  })

  const doubt = (lease: LeaseId, leaseMs: number, landed: boolean) => {
    if (doubtful.size < doubtfulMax) {
      doubtful.set(lease, { sinceMs: now(), leaseMs, landed })
    }
  }

  const abandon: Claims["abandon"] = Effect.gen(function*() {
    for (const [lease, { leaseMs, sinceMs }] of doubtful) {
      if (now() - sinceMs >= leaseMs) {
        doubtful.delete(lease)
      }
    }
    const leases = Array.from(doubtful)
    if (leases.length === 0) {
      return
    }
    const exit = yield* Effect.exit(store.abandon(leases.map(([lease]) => lease)))
    for (const [lease, { landed }] of Exit.isSuccess(exit) ? leases : []) {
      if (landed) {
        doubtful.delete(lease)
      }
    }
  })

  const giveBack: Claims["giveBack"] = ({ lease, leaseMs, token }, drawn) =>
    // Its asker may have been quicker, and have got all of it at another process: what that runs is not to be taken.
    Effect.flatMap(Effect.exit(store.handBack(lease, token)), (exit) =>
      Effect.sync(() => {
        // One that its asker drew may be asked for again, at any process, at any time from now: it lapses by itself.
        if (Exit.isFailure(exit) && drawn) {
          doubt(lease, leaseMs, true)
        }
      }))

  interface Taken {
    readonly jobs: ReadonlyArray<ClaimedJob>
    readonly leaseMs: number
    readonly token: string
    readonly sentMs: number
    readonly fresh: boolean
  }

  const attempt = Effect.fnUntraced(function*(asker: Asker, recalls: boolean) {
    const { leaseMs, limit, queues, types, worker } = asker.request
    const sentMs = now()
    const jobs = yield* store.claim({
      lease: asker.lease,
      leaseMs,
      worker,
      types,
      ...(queues === null ? {} : { queues }),
      limit,
      freeSlots: limit,
      bytes: claimBytesMax,
      limitsByName: options.rooms.some(),
      // To be counted costs more than to be told that there is nothing.
      glance: options.rooms.some()
    })
    if (jobs.length > 0 || !recalls) {
      return { jobs, leaseMs, token: claimedToken, sentMs, fresh: true } satisfies Taken
    }
    const recalled = yield* store.recall(asker.lease)
    return {
      jobs: recalled.jobs,
      token: recalled.token,
      leaseMs: recalled.jobs.length === 0 ? leaseMs : (yield* options.lengthOf(asker.lease)) ?? leaseMs,
      sentMs,
      fresh: false
    } satisfies Taken
  })

  /** One claim for it, and what becomes of that. Whether it took something. */
  const ask: (asker: Asker, recalls: boolean) => Effect.Effect<Rows.Became> = Effect.fnUntraced(
    function*(asker, recalls) {
      rows.leave(asker)
      asker.asking = true
      const before = rows.wakes()
      const request = asker.request
      // Its turn first: who waits for that must not keep the others waiting.
      const exit = yield* Effect.exit(
        options.rooms.inTurn(request.worker, claiming.withPermits(1)(attempt(asker, recalls || asker.doubt)))
      )
      if (Exit.isFailure(exit)) {
        yield* outage.failed(now(), exit.cause)
        asker.asking = false
        asker.doubt = true
        // Nobody will ever ask for it again.
        if (asker.drawn) {
          doubt(asker.lease, request.leaseMs, false)
        }
        finish(asker, Exit.fail(store503))
        return "failed"
      }
      yield* outage.worked
      asker.doubt = false
      const { fresh, jobs, sentMs } = exit.value
      if (jobs.length === 0) {
        asker.asking = false
        if (asker.answer === null || asker.over) {
          finish(asker, Exit.succeed(answerOf(asker, [])))
        } else if (stopped) {
          finish(asker, Exit.fail(stopping))
        } else {
          rows.join(keyOf(asker.request), asker, before !== rows.wakes())
        }
        return "nothing"
      }
      if (asker.answer === null) {
        yield* giveBack(answerOf(asker, jobs, exit.value), asker.drawn)
        if (asker.answer !== null) {
          // Asked for again while it was handed back.
          return yield* ask(asker, false)
        }
        asker.asking = false
        finish(asker, Exit.fail(stopping))
        return "took"
      }
      const claims = answerOf(asker, jobs, exit.value)
      yield* options.granted(claims, request, sentMs, fresh)
      asker.asking = false
      finish(asker, Exit.succeed(claims))
      return "took"
    }
  )

  const rows: Rows.Rows<Asker> = yield* Rows.make<Asker>({
    look: (asker) => ask(asker, false),
    waits: ({ request }) => options.awaiting.waits(request.types),
    pauseMs: Effect.map(Random.next, (draw) => Outage.pauseMs(outage.count(), draw)),
    beside: abandon,
    now
  })

  const leave = (asker: Asker, answer: Answer) => {
    if (asker.answer !== answer) {
      return
    }
    asker.answer = null
    if (!asker.asking) {
      finish(asker, Exit.fail(stopping))
    }
  }

  const enter = (request: RemoteRequest, answer: Answer): Asker => {
    const known = request.lease === null ? undefined : askers.get(request.lease)
    if (known !== undefined) {
      rows.leave(known)
      if (known.answer !== null) {
        Deferred.doneUnsafe(known.answer, Effect.succeed(answerOf(known, [])))
      }
      known.request = request
      known.answer = answer
      known.over = request.waitMs === 0
      return known
    }
    const asker: Asker = {
      lease: request.lease ?? options.drawLease(),
      drawn: request.lease === null,
      request,
      answer,
      asking: false,
      doubt: false,
      over: request.waitMs === 0
    }
    askers.set(asker.lease, asker)
    // What was in doubt is asked for again, so it is not handed back.
    doubtful.delete(asker.lease)
    return asker
  }

  const awaitAnswer = Effect.fnUntraced(function*(asker: Asker, answer: Answer) {
    const inTime = yield* Effect.timeoutOption(Deferred.await(answer), asker.request.waitMs)
    if (inTime._tag === "Some") {
      return inTime.value
    }
    asker.over = true
    if (!asker.asking) {
      if (asker.drawn) {
        finish(asker, Exit.succeed(answerOf(asker, [])))
      } else {
        // What an earlier asker's claim took meanwhile, at another process, is this one's.
        asker.asking = true
        yield* Effect.forkIn(ask(asker, true), scope)
      }
    }
    const landed = yield* Effect.timeoutOption(Deferred.await(answer), landingMs)
    return landed._tag === "Some" ? landed.value : yield* store503
  })

  const claim: Claims["claim"] = (request) =>
    Effect.suspend(() => {
      if (stopped) {
        return Effect.fail(stopping)
      }
      if (askers.size >= askersMax && (request.lease === null || !askers.has(request.lease))) {
        return Effect.fail(full)
      }
      const answer: Answer = Deferred.makeUnsafe()
      const asker = enter(request, answer)
      options.waits(request.worker, 1)
      if (request.waitMs > 0) {
        // Before its first look, so that what becomes ready behind that is told.
        options.awaiting.waits(request.types)
      }
      const first = asker.asking ? Effect.void : Effect.asVoid(Effect.forkIn(ask(asker, !asker.drawn), scope))
      asker.asking = true
      return Effect.andThen(first, awaitAnswer(asker, answer)).pipe(
        Effect.onExit((exit) =>
          Effect.suspend(() => {
            options.waits(request.worker, -1)
            if (Exit.isSuccess(exit)) {
              return Effect.void
            }
            leave(asker, answer)
            // It may have been answered in the very moment in which the asker went.
            return Deferred.isDoneUnsafe(answer)
              ? Effect.asVoid(Effect.forkIn(
                Effect.ignore(Effect.flatMap(
                  Deferred.await(answer),
                  (claims) => claims.jobs.length > 0 ? giveBack(claims, asker.drawn) : Effect.void
                )),
                scope
              ))
              : Effect.void
          })
        )
      )
    })

  return {
    claim,
    wake: rows.wake,
    stop: () => {
      stopped = true
      rows.stop()
      for (const asker of Array.from(askers.values())) {
        if (!asker.asking) {
          finish(asker, Exit.fail(stopping))
        }
      }
    },
    run: rows.run,
    giveBack,
    abandon
  }
})
