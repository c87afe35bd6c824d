/**
 * Claims of workers elsewhere, and the waiting for them.
 *
 * Whoever asks is looked for at once. Whoever waits stands in a row with all that wait for the same types and queues:
 * when something became ready, or a second has passed, one claim is tried for the first of the row, and the next only
 * if that one got something. So a thousand that wait cost what one costs. A row that is woken in vain looks less often.
 *
 * A claim runs apart from the request that asked for it. Where the asker has gone when it lands, what it took is handed
 * back; where the same lease was asked for again meanwhile, the new asker gets it. Where its answer was lost, the asker
 * is told to repeat it under the same lease, and a lease that was drawn here is abandoned until that has worked, for one
 * length of it: then it lapses by itself.
 */
import { Deferred, Effect, Exit, Random, type Scope, Semaphore } from "effect"
import type { LeaseId } from "../../domain/Claim.ts"
import type { ClaimedJob } from "../../domain/Job.ts"
import type { ClaimRequest, JobStore } from "../../ports/JobStore.ts"
import { type RemoteClaims, type RemoteRequest, RemoteUnavailable } from "../../ports/RemoteWorkers.ts"
import * as Outage from "../worker/Outage.ts"
import * as Signal from "../worker/Signal.ts"

/** Those that ask and wait, at most. */
export const askersMax = 2_000
/** Bytes of payload of one claim. */
const claimBytesMax = 4 * 1_048_576
/** Claims under way at once: the connections are everybody's. */
const claimsMax = 4
/** Without a wake, a row looks this often; jittered. */
const lookEveryMs = 1_000
/** Rows that look without a wake in one round; the others come with the next ones. */
const rowsPerRound = 100
/** Between two looks of a row that is woken in vain all the time: doubles from the one to the other. */
const vainMinMs = 10
const vainMaxMs = 100
/** How long a claim that is under way is waited for past the asker's own time. */
const landingMs = 4_000

type Answer = Deferred.Deferred<RemoteClaims, RemoteUnavailable>

interface Row {
  readonly key: string
  readonly waiting: Set<Asker>
  looking: boolean
  /** Woken since its look began. */
  again: boolean
  /** When it last looked in vain, and how long it waits after that. */
  vainAtMs: number
  vainMs: number
}

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
  row: Row | null
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
  /** What else a claim is bound to. */
  readonly bounds: (request: RemoteRequest) => Partial<ClaimRequest>
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
  const rows = new Map<string, Row>()
  /** Leases drawn here that may have taken something; `landed`: that is certain, so handing back once is enough. */
  const doubtful = new Map<LeaseId, { readonly sinceMs: number; readonly leaseMs: number; readonly landed: boolean }>()
  /** Rows for `run` to look at. */
  const pending = new Set<Row>()
  const woken = Signal.make()
  let wakes = 0
  let stopped = false

  const notify = (row: Row) => {
    pending.add(row)
    woken.notify()
  }

  const keyOf = ({ queues, types }: RemoteRequest) =>
    `${[...types].sort().join(" ")}|${queues === null ? "*" : [...queues].sort().join(" ")}`

  const leaveRow = (asker: Asker) => {
    const row = asker.row
    if (row !== null) {
      asker.row = null
      row.waiting.delete(asker)
      if (row.waiting.size === 0 && !row.looking) {
        rows.delete(row.key)
      }
    }
  }

  const finish = (asker: Asker, exit: Exit.Exit<RemoteClaims, RemoteUnavailable>) => {
    leaveRow(asker)
    if (askers.get(asker.lease) === asker) {
      askers.delete(asker.lease)
    }
    if (asker.answer !== null) {
      Deferred.doneUnsafe(asker.answer, exit)
    }
  }

  const answerOf = (asker: Asker, jobs: ReadonlyArray<ClaimedJob>, leaseMs = asker.request.leaseMs): RemoteClaims => ({
    lease: asker.lease,
    leaseMs,
    jobs
  })

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

  const giveBack: Claims["giveBack"] = ({ lease, leaseMs }, drawn) =>
    Effect.flatMap(Effect.exit(store.abandon([lease])), (exit) =>
      Effect.sync(() => {
        // One that its asker drew may be asked for again, at any process, at any time from now: it lapses by itself.
        if (Exit.isFailure(exit) && drawn) {
          doubtful.set(lease, { sinceMs: now(), leaseMs, landed: true })
        }
      }))

  interface Taken {
    readonly jobs: ReadonlyArray<ClaimedJob>
    readonly leaseMs: number
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
      ...options.bounds(asker.request)
    })
    if (jobs.length > 0 || !recalls) {
      return { jobs, leaseMs, sentMs, fresh: true } satisfies Taken
    }
    const recalled = yield* store.recall(asker.lease)
    return {
      jobs: recalled,
      leaseMs: recalled.length === 0 ? leaseMs : (yield* options.lengthOf(asker.lease)) ?? leaseMs,
      sentMs,
      fresh: false
    } satisfies Taken
  })

  /** One claim for it, and what becomes of that. Whether it took something. */
  const ask: (asker: Asker, recalls: boolean) => Effect.Effect<"took" | "nothing" | "failed"> = Effect.fnUntraced(
    function*(asker, recalls) {
      leaveRow(asker)
      asker.asking = true
      const before = wakes
      const request = asker.request
      const exit = yield* Effect.exit(claiming.withPermits(1)(attempt(asker, recalls || asker.doubt)))
      if (Exit.isFailure(exit)) {
        yield* outage.failed(now(), exit.cause)
        asker.asking = false
        asker.doubt = true
        // Nobody will ever ask for it again.
        if (asker.drawn) {
          doubtful.set(asker.lease, { sinceMs: now(), leaseMs: request.leaseMs, landed: false })
        }
        finish(asker, Exit.fail(store503))
        return "failed"
      }
      yield* outage.worked
      asker.doubt = false
      const { fresh, jobs, leaseMs, sentMs } = exit.value
      if (jobs.length === 0) {
        asker.asking = false
        if (asker.answer === null || asker.over) {
          finish(asker, Exit.succeed(answerOf(asker, [])))
        } else if (stopped) {
          finish(asker, Exit.fail(stopping))
        } else {
          join(asker, before !== wakes)
        }
        return "nothing"
      }
      if (asker.answer === null) {
        yield* giveBack(answerOf(asker, jobs, leaseMs), asker.drawn)
        if (asker.answer !== null) {
          // Asked for again while it was handed back.
          return yield* ask(asker, false)
        }
        asker.asking = false
        finish(asker, Exit.fail(stopping))
        return "took"
      }
      const claims = answerOf(asker, jobs, leaseMs)
      yield* options.granted(claims, request, sentMs, fresh)
      asker.asking = false
      finish(asker, Exit.succeed(claims))
      return "took"
    }
  )

  const look = Effect.fnUntraced(function*(row: Row) {
    while (!stopped) {
      // A busy system wakes all the time, and mostly for others.
      const soonMs = row.vainAtMs + row.vainMs - now()
      if (soonMs > 0) {
        yield* Effect.sleep(Math.ceil(soonMs))
      }
      row.again = false
      const [first] = row.waiting
      if (first === undefined) {
        return
      }
      const became = yield* ask(first, false)
      if (became === "failed") {
        return yield* Effect.sleep(Outage.pauseMs(outage.count(), yield* Random.next))
      }
      if (became === "took") {
        row.vainMs = 0
        continue
      }
      const atMs = now()
      row.vainMs = atMs - row.vainAtMs > lookEveryMs / 2 ? vainMinMs : Math.min(vainMaxMs, row.vainMs * 2 || vainMinMs)
      row.vainAtMs = atMs
      if (!row.again) {
        return
      }
    }
  })

  const kick = (row: Row): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (row.looking) {
        row.again = true
        return Effect.void
      }
      row.looking = true
      const looked = Effect.ensuring(
        look(row),
        Effect.sync(() => {
          row.looking = false
          if (row.waiting.size === 0) {
            rows.delete(row.key)
          } else if (row.again) {
            notify(row)
          }
        })
      )
      return Effect.asVoid(Effect.forkIn(looked, scope))
    })

  const join = (asker: Asker, again: boolean) => {
    const key = keyOf(asker.request)
    const row: Row = rows.get(key) ??
      { key, waiting: new Set(), looking: false, again: false, vainAtMs: Number.NEGATIVE_INFINITY, vainMs: 0 }
    rows.set(key, row)
    row.waiting.add(asker)
    asker.row = row
    if (again) {
      notify(row)
    }
  }

  const wake: Claims["wake"] = () => {
    wakes += 1
    for (const row of rows.values()) {
      notify(row)
    }
  }

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
      leaveRow(known)
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
      over: request.waitMs === 0,
      row: null
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

  const run = Effect.gen(function*() {
    let nextMs = now() + lookEveryMs
    while (true) {
      yield* woken.wait(Math.max(1, nextMs - now()))
      const told = Array.from(pending)
      pending.clear()
      for (const row of told) {
        yield* kick(row)
      }
      if (now() >= nextMs) {
        nextMs = now() + lookEveryMs * (0.75 + (yield* Random.next) / 2)
        for (const row of Array.from(rows.values()).slice(0, rowsPerRound)) {
          // To the end of the order, so that each has its turn.
          rows.delete(row.key)
          rows.set(row.key, row)
          yield* kick(row)
        }
        yield* abandon
      }
    }
  })

  return {
    claim,
    wake,
    stop: () => {
      stopped = true
      for (const asker of Array.from(askers.values())) {
        if (!asker.asking) {
          finish(asker, Exit.fail(stopping))
        }
      }
    },
    run,
    giveBack,
    abandon
  }
})
