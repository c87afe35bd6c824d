/**
 * Workers in any language, as the HTTP server sees them: claims, heartbeats and outcomes over the same ports that the
 * workers here use.
 *
 * Their leases are leases like all others: reapers take them alike, and the fence is the same. What is remembered about
 * them is only a memory, so a worker may go from one server to another between any two requests.
 *
 * Shutdown is the scope closing: every wait ends as soon as the process is told to stop. Heartbeats and outcomes are
 * served until the listener above has closed; then what is to be handed back is, and ended leases are let go.
 */
import { Clock, Effect, Layer, Queue } from "effect"
import type { LeaseId } from "../../domain/Claim.ts"
import { JobStore } from "../../ports/JobStore.ts"
import { LeaseRegister } from "../../ports/LeaseRegister.ts"
import { Queues } from "../../ports/Queues.ts"
import { type RemoteClaims, RemoteWorkers } from "../../ports/RemoteWorkers.ts"
import { Sessions } from "../../ports/Sessions.ts"
import { Transport } from "../../ports/Transport.ts"
import * as Meters from "../process/Meters.ts"
import { Stopping } from "../process/Stopping.ts"
import * as LeaseEnds from "../worker/LeaseEnds.ts"
import { LeaseIds } from "../worker/LeaseIds.ts"
import * as Outage from "../worker/Outage.ts"
import * as Signal from "../worker/Signal.ts"
import * as Awaiting from "./Awaiting.ts"
import * as Beats from "./Beats.ts"
import * as Claims from "./Claims.ts"
import * as Grants from "./Grants.ts"
import * as Guests from "./Guests.ts"
import * as Outcomes from "./Outcomes.ts"
import * as Rooms from "./Rooms.ts"

/** Leases that ended gather for this long, so that many of them are let go by one statement. */
const gatherMs = 250
/** What is not let go here is reaped without a loss. */
const endedMax = 10_000
const endMs = 2_000
const lastCallMs = 500

const make = Effect.gen(function*() {
  const store = yield* JobStore
  const register = yield* LeaseRegister
  const transport = yield* Transport
  const sessions = yield* Sessions
  const stopping = yield* Stopping
  const drawLease = yield* LeaseIds
  const clock = yield* Clock.Clock
  const context = yield* Effect.context<never>()
  const now = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6

  const grants = Grants.make()
  const guests = Guests.make({ sessions, grants, now })
  const awaiting = Awaiting.make({ transport, now })
  const rooms = Rooms.make({ queues: yield* Queues, now })
  const someEnded = Signal.make()
  /** `true`: nothing is known to run under it, so the register may forget it. */
  let ended = new Map<LeaseId, boolean>()

  const endLeases = Effect.fnUntraced(function*(ms: number) {
    const taken = ended
    ended = new Map()
    if (taken.size === 0) {
      return
    }
    const leases = Array.from(taken.keys())
    const exit = yield* Effect.exit(LeaseEnds.inStore(store, leases, ms))
    if (exit._tag === "Failure") {
      ended = new Map([...taken, ...ended].slice(0, endedMax))
    }
    yield* LeaseEnds.inRegister(register, register.isRecord ? [] : leases.filter((lease) => taken.get(lease)), ms)
  })

  const outcomes = yield* Outcomes.make({
    grants,
    now,
    ended: (lease, last) => {
      if (last) {
        grants.drop(lease)
      }
      if (ended.size < endedMax) {
        ended.set(lease, last || ended.get(lease) === true)
        someEnded.notify()
      }
      if (rooms.some()) {
        claims.wake()
      }
    }
  })

  const beats = yield* Beats.make({
    grants,
    now,
    end: (late) => Effect.ignore(outcomes.settle(late))
  })

  const granted = (claims: RemoteClaims, worker: string, sentMs: number, fresh: boolean) => {
    const atMs = now()
    const { jobs, lease, leaseMs } = claims
    grants.add({
      lease,
      leaseMs,
      worker,
      verifiedMs: sentMs,
      seenMs: atMs,
      unheard: claims,
      jobs: new Map(jobs.map((job) => [job.id, {
        epoch: job.epoch,
        terms: { attempts: job.attempts, maxAttempts: job.maxAttempts, backoff: job.backoff },
        queue: job.queue,
        timeoutMs: job.timeoutMs,
        deadlineMs: job.timeoutMs === null ? null : atMs + job.timeoutMs
      }]))
    })
    if (!fresh) {
      return Effect.void
    }
    for (const job of jobs) {
      Meters.waitMs.updateUnsafe(job.waitedMs, context)
    }
    return Meters.add("claimed", jobs.length)
  }

  const claims = yield* Claims.make({
    store,
    now,
    drawLease,
    rooms,
    awaiting,
    lengthOf: beats.lengthOf,
    granted: (answer, { worker }, sentMs, fresh) => granted(answer, worker, sentMs, fresh),
    waits: guests.waits
  })

  const outage = Outage.make("subscribing for workers elsewhere")
  const subscribed = Effect.gen(function*() {
    const { wakes } = yield* transport.subscribe({ worker: false })
    yield* outage.worked
    claims.wake()
    while (true) {
      const taken = yield* Queue.takeAll(wakes)
      if (taken.some(({ _tag }) => _tag === "Queues" || _tag === "Resumed")) {
        rooms.changed()
      }
      if (taken.some(({ _tag }) => _tag !== "Due" && _tag !== "Revoked" && _tag !== "Awaited")) {
        claims.wake()
      }
    }
  }).pipe(Effect.scoped)

  yield* Effect.addFinalizer(() =>
    Effect.all([endLeases(lastCallMs), Effect.timeoutOption(claims.abandon, lastCallMs)], {
      concurrency: 2,
      discard: true
    })
  )
  yield* Effect.forkScoped(Effect.forever(
    Effect.andThen(
      someEnded.wait(Number.POSITIVE_INFINITY),
      Effect.andThen(Effect.sleep(gatherMs), Effect.suspend(() => endLeases(endMs)))
    )
  ))
  yield* Effect.forkScoped(claims.run)
  yield* Effect.forkScoped(beats.learn)
  yield* Effect.forkScoped(guests.run)
  yield* Effect.forkScoped(awaiting.run)
  yield* Effect.forkScoped(Effect.forever(Effect.andThen(
    Effect.sleep("10 seconds"),
    Effect.sync(() => grants.sweep(now()))
  )))
  yield* Effect.forkScoped(Outage.keep(outage, now, subscribed))
  yield* Effect.forkScoped(Effect.andThen(stopping.begun, Effect.sync(claims.stop)))

  return RemoteWorkers.of({
    claim: (request) =>
      Effect.suspend(() => {
        guests.seen(request.worker, request)
        return claims.claim(request)
      }),
    unread: (answer) =>
      Effect.suspend(() => {
        const grant = grants.get(answer.lease)
        // Asked for again, or heard of: somebody has it.
        if (answer.jobs.length === 0 || grant?.unheard !== answer) {
          return Effect.void
        }
        grants.drop(answer.lease)
        return claims.giveBack(answer, false)
      }),
    heartbeat: (worker, leases) =>
      Effect.suspend(() => {
        guests.seen(worker)
        return beats.heartbeat(worker, leases)
      }),
    settle: (given) =>
      Effect.suspend(() => {
        for (const { claim } of given) {
          grants.heard(claim.lease, null, now())
        }
        return outcomes.settle(given)
      })
  })
})

export const layer: Layer.Layer<
  RemoteWorkers,
  never,
  JobStore | LeaseRegister | Queues | Transport | Sessions | Stopping
> = Layer.effect(RemoteWorkers, make)
