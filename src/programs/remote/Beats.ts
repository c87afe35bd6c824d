/**
 * Heartbeats of workers elsewhere: their leases are renewed as one's own are, in one call for all that ask at the time.
 *
 * The register is asked of leases that it knows; the record of those that it does not, of those about which it is
 * unsure, and of each once per length. Which process granted a lease makes no difference: its length is in its record,
 * and so is what runs under it. What those jobs are bound to is read behind the answer, which nobody waits for.
 *
 * An attempt past its timeout is ended here, as a failure, at a heartbeat: its worker was told the length with the claim
 * and gets a grace to end it by itself. Without a heartbeat the lease lapses, which ends it as well.
 */
import { Effect, Exit, Queue, type Scope } from "effect"
import type { Claim, LeaseId } from "../../domain/Claim.ts"
import type { JobId } from "../../domain/JobId.ts"
import type { Outcome } from "../../domain/Outcome.ts"
import { heartbeatMs } from "../../domain/Watch.ts"
import { JobStore, JobStoreUnavailable, type Verified } from "../../ports/JobStore.ts"
import { LeaseRegister, LeaseRegisterUnavailable } from "../../ports/LeaseRegister.ts"
import { type RemoteBeat, type RemoteOutcome, RemoteUnavailable } from "../../ports/RemoteWorkers.ts"
import * as Deadline from "../worker/Deadline.ts"
import * as Outage from "../worker/Outage.ts"
import * as Run from "../worker/Run.ts"
import * as Batches from "./Batches.ts"
import type { Grant, Grants } from "./Grants.ts"

/** Of one request, and of one call. */
export const leasesMax = 1_000
const askMs = 1_500
/** How much longer than its timeout an attempt may take: its worker ends it first. */
export const timeoutGraceMs = 1_000
const learnMax = 1_000
const readMax = 50

const store503 = new RemoteUnavailable({ reason: "store" })

type Fate = "held" | "lost" | "unknown"

export interface Beats {
  readonly heartbeat: (worker: string, leases: ReadonlyArray<LeaseId>) => Effect.Effect<RemoteBeat, RemoteUnavailable>
  /** The length on record; `null` where there is none, or nobody answers. */
  readonly lengthOf: (lease: LeaseId) => Effect.Effect<number | null>
  /** Reads what jobs of leases from elsewhere are bound to. Ends only by interruption. */
  readonly learn: Effect.Effect<never>
}

export const make = Effect.fnUntraced(function*(options: {
  readonly grants: Grants
  readonly now: () => number
  /** Ends attempts that are past their timeout. */
  readonly end: (outcomes: ReadonlyArray<RemoteOutcome>) => Effect.Effect<void>
}): Effect.fn.Return<Beats, never, JobStore | LeaseRegister | Scope.Scope> {
  const { grants, now } = options
  const store = yield* JobStore
  const register = yield* LeaseRegister
  const scope = yield* Effect.scope
  const unread = yield* Queue.dropping<LeaseId>(learnMax)
  const registerOutage = Outage.make("renewing leases of workers elsewhere in the register")
  const storeOutage = Outage.make("checking leases of workers elsewhere in the store")

  const lateStore = (operation: string) => () => new JobStoreUnavailable({ operation, cause: Deadline.noAnswer(askMs) })
  const lateRegister = (operation: "hold" | "renew") => () =>
    new LeaseRegisterUnavailable({ operation, cause: Deadline.noAnswer(askMs) })

  const looked = Deadline.within(store.look, askMs, lateStore("look"))

  const lengthOf: Beats["lengthOf"] = (lease) =>
    Effect.match(looked, {
      onFailure: () => null,
      onSuccess: ({ leases }) => leases.find((one) => one.lease === lease)?.leaseMs ?? null
    })

  /** Leases that the record knows and this process does not. */
  const adopt = Effect.fnUntraced(function*(standing: ReadonlyArray<LeaseId>, sentMs: number) {
    const strange = standing.filter((lease) => grants.get(lease) === undefined)
    if (strange.length === 0) {
      return
    }
    const exit = yield* Effect.exit(looked)
    const records = new Map(Exit.isSuccess(exit) ? exit.value.leases.map((one) => [one.lease, one] as const) : [])
    for (const lease of strange) {
      const record = records.get(lease)
      // Without its length it is asked about again, at the record.
      if (record !== undefined) {
        grants.add({ lease, leaseMs: record.leaseMs, worker: record.worker, verifiedMs: sentMs })
      }
    }
  })

  const follow = (grant: Grant, answer: Extract<Verified, { _tag: "Stands" }>, sentMs: number) => {
    grant.verifiedMs = sentMs
    const running = new Set<JobId>()
    let learns = false
    for (const { epoch, id } of answer.running) {
      running.add(id)
      if (grant.jobs.get(id)?.epoch !== epoch) {
        grant.jobs.set(id, { epoch, terms: null, queue: null, timeoutMs: null, deadlineMs: null })
        learns = true
      }
    }
    for (const id of Array.from(grant.jobs.keys())) {
      if (!running.has(id)) {
        grant.jobs.delete(id)
      }
    }
    for (const { epoch, id, reason } of answer.revoked) {
      grant.cutOff.set(id, { epoch, reason })
    }
    if (learns) {
      Queue.offerUnsafe(unread, grant.lease)
    }
  }

  const verify = Effect.fnUntraced(function*(asked: ReadonlyArray<LeaseId>, fates: Map<LeaseId, Fate>) {
    if (asked.length === 0) {
      return
    }
    const sentMs = now()
    const exit = yield* Effect.exit(Deadline.within(store.verify(asked), askMs, lateStore("verify")))
    if (Exit.isFailure(exit)) {
      return yield* storeOutage.failed(now(), exit.cause)
    }
    yield* storeOutage.worked
    const standing = exit.value.flatMap((answer) => answer._tag === "Stands" ? [answer] : [])
    for (const { _tag, lease } of exit.value) {
      if (_tag === "Gone") {
        fates.set(lease, "lost")
        grants.drop(lease)
      } else {
        fates.set(lease, "held")
      }
    }
    yield* adopt(standing.map(({ lease }) => lease), sentMs)
    const told: Array<Grant> = []
    for (const answer of standing) {
      const grant = grants.get(answer.lease)
      if (grant !== undefined) {
        follow(grant, answer, sentMs)
        if (!grant.registered) {
          told.push(grant)
        }
      }
    }
    if (told.length > 0) {
      const held = yield* Effect.exit(Deadline.within(register.hold(told), askMs, lateRegister("hold")))
      for (const grant of told) {
        grant.registered = Exit.isSuccess(held)
      }
    }
  })

  /** Renews, and answers the leases about which the record must be asked now. */
  const renew = Effect.fnUntraced(function*(known: ReadonlyArray<Grant>, fates: Map<LeaseId, Fate>) {
    if (known.length === 0) {
      return []
    }
    const exit = yield* Effect.exit(Deadline.within(register.renew(known), askMs, lateRegister("renew")))
    if (Exit.isFailure(exit)) {
      yield* registerOutage.failed(now(), exit.cause)
      return known
    }
    yield* registerOutage.worked
    const unsure: Array<Grant> = []
    for (const [index, grant] of known.entries()) {
      const answer = exit.value[index] ?? "lost"
      if (answer === "lost") {
        grant.registered = register.isRecord
      } else {
        fates.set(grant.lease, "held")
      }
      if (answer !== "held") {
        // Until the record was asked, whatever becomes of the first try.
        grant.verifiedMs = Number.NEGATIVE_INFINITY
        unsure.push(grant)
      }
    }
    return unsure
  })

  const beat = Effect.fnUntraced(function*(leases: ReadonlyArray<LeaseId>) {
    const fates = new Map<LeaseId, Fate>()
    const asked = Array.from(new Set(leases))
    const known: Array<Grant> = []
    const unsure = new Set<LeaseId>()
    for (const lease of asked) {
      const grant = grants.get(lease)
      if (grant?.registered === true) {
        known.push(grant)
        if (now() - grant.verifiedMs >= grant.leaseMs - heartbeatMs(grant.leaseMs) / 2) {
          unsure.add(lease)
        }
      } else {
        unsure.add(lease)
      }
    }
    for (const { lease } of yield* renew(known, fates)) {
      unsure.add(lease)
    }
    yield* verify(Array.from(unsure), fates)
    return leases.map((lease): Fate => fates.get(lease) ?? "unknown")
  })

  const shared = yield* Batches.make({
    call: (leases: ReadonlyArray<LeaseId>) => beat(leases),
    itemsMax: 2 * leasesMax,
    weightMax: Number.POSITIVE_INFINITY,
    weigh: () => 0,
    // One lease may be asked for twice.
    nameOf: (lease) => lease,
    waitingMax: 1_000,
    heldMax: Number.POSITIVE_INFINITY,
    full: () => new RemoteUnavailable({ reason: "full" })
  })

  /** Attempts of this lease that are past their timeout, from now on cut off. */
  const overdue = (grant: Grant): ReadonlyArray<RemoteOutcome> => {
    const atMs = now()
    const out: Array<RemoteOutcome> = []
    for (const [id, { deadlineMs, epoch, timeoutMs }] of grant.jobs) {
      if (deadlineMs !== null && atMs >= deadlineMs + timeoutGraceMs) {
        grant.cutOff.set(id, { epoch, reason: "timeout" })
        const outcome: Outcome = Run.timedOut(timeoutMs ?? 0)
        out.push({ claim: { id, epoch, lease: grant.lease } as Claim, outcome })
      }
    }
    return out
  }

  const heartbeat: Beats["heartbeat"] = Effect.fnUntraced(function*(worker, leases) {
    const fates = yield* shared(leases)
    if (leases.length > 0 && fates.every((fate) => fate === "unknown")) {
      return yield* store503
    }
    const of = (fate: Fate) => leases.filter((_, index) => fates[index] === fate)
    const revoked: Array<RemoteBeat["revoked"][number]> = []
    const late: Array<RemoteOutcome> = []
    for (const lease of of("held")) {
      const grant = grants.get(lease)
      if (grant !== undefined) {
        late.push(...overdue(grant))
        grant.cutOff.forEach(({ epoch, reason }, id) => revoked.push({ id, epoch, reason }))
        grants.heard(lease, worker, now())
      }
    }
    if (late.length > 0) {
      yield* Effect.forkIn(options.end(late), scope)
    }
    return { held: of("held"), lost: of("lost"), revoked }
  })

  const learnOf = Effect.fnUntraced(function*(lease: LeaseId) {
    const grant = grants.get(lease)
    const ids = grant === undefined ? [] : Array.from(grant.jobs).flatMap(([id, job]) => job.terms === null ? [id] : [])
    for (let at = 0; at < ids.length; at += readMax) {
      const jobs = yield* store.get(ids.slice(at, at + readMax))
      const nowMs = jobs.some(({ timeoutMs }) => timeoutMs !== null) ? yield* store.now : 0
      for (const { attempts, backoff, epoch, id, maxAttempts, queue, startedAtMs, timeoutMs } of jobs) {
        const known = grant?.jobs.get(id)
        if (known !== undefined && known.epoch === epoch) {
          known.terms = { attempts, maxAttempts, backoff }
          known.queue = queue
          known.timeoutMs = timeoutMs
          known.deadlineMs = timeoutMs === null || startedAtMs === null ? null : now() + startedAtMs + timeoutMs - nowMs
        }
      }
    }
  })

  return {
    heartbeat,
    lengthOf,
    learn: Effect.forever(Effect.flatMap(Queue.take(unread), (lease) => Effect.ignore(learnOf(lease))))
  }
})
