/**
 * The dead man's switch: a worker's jobs run only while their leases are known to be its own.
 *
 * Every fifth of the lease all of them are renewed in one call. A lease's age
 * counts from when its last confirmed request was **sent**, by the monotonic
 * clock, and is looked at before anything is sent about it: past its length it
 * is never renewed, its handlers are interrupted and its jobs handed back. A
 * fiber of its own watches for that moment, so that a request that hangs cannot
 * hide it.
 *
 * The register only says who is alive. Where it does not answer, or does not
 * know a lease, the record in the store decides at once, and otherwise once per
 * length of the lease: where it stands the handlers go on, where it is gone they
 * are interrupted and record nothing.
 */
import { Effect, Exit } from "effect"
import type { JobId } from "../../domain/JobId.ts"
import { heartbeatMs } from "../../domain/Watch.ts"
import { type JobStore, JobStoreUnavailable, type Verified } from "../../ports/JobStore.ts"
import { type LeaseRegister, LeaseRegisterUnavailable } from "../../ports/LeaseRegister.ts"
import type { Rhythm } from "../../ports/Rhythm.ts"
import type { Loop } from "../process/Loops.ts"
import * as Meters from "../process/Meters.ts"
import * as Deadline from "./Deadline.ts"
import type { HeldJob, HeldLease, Leases } from "./Leases.ts"
import * as Outage from "./Outage.ts"
import type { Slots } from "./Slots.ts"

/** Without anything to renew a heartbeat only says that it is well. */
const idleMs = 5_000

export interface Heartbeat {
  /** A lease past its length: interrupts what runs under it. */
  readonly expire: (lease: HeldLease) => void
  /** One round. */
  readonly beat: Effect.Effect<void>
  readonly run: Effect.Effect<never>
  /** Watches for leases that come past their length. */
  readonly watch: Effect.Effect<never>
  /** Hands back once more what lost claims may have taken. */
  readonly abandon: Effect.Effect<void>
}

export const make = (options: {
  readonly store: JobStore["Service"]
  readonly register: LeaseRegister["Service"]
  readonly leases: Leases
  readonly slots: () => Slots
  readonly leaseMs: number
  readonly now: () => number
  readonly rhythm: Rhythm
  readonly loop: Loop
  readonly log: (effect: Effect.Effect<void>) => void
  /** Hands back a running job of ours that nothing here knows of. */
  readonly handBack: (held: HeldJob) => void
}): Heartbeat => {
  const { leases, loop, now, register, slots, store, rhythm } = options
  const everyMs = heartbeatMs(options.leaseMs)
  const registerOutage = Outage.make("renewing leases in the register")
  const storeOutage = Outage.make("checking leases in the store")

  const late = (operation: "hold" | "renew") => () =>
    new LeaseRegisterUnavailable({ operation, cause: Deadline.noAnswer(everyMs) })

  /** How many jobs are cut short with it. */
  const cutShort = (lease: HeldLease): number =>
    Array.from(lease.jobs.values()).filter(({ phase }) => phase !== "ended").length

  const expire: Heartbeat["expire"] = (lease) => {
    if (lease.state === "held") {
      lease.state = "over"
      options.log(Effect.andThen(
        Meters.add("lease_losses", cutShort(lease) === 0 ? 0 : 1),
        Effect.logWarning("a lease could not be renewed for its whole length: its jobs are interrupted and handed back")
          .pipe(Effect.annotateLogs({ lease: lease.id, jobs: lease.jobs.size }))
      ))
    }
    slots().stopLease(lease, "release", "the lease could not be renewed in time")
  }

  /** What may still be renewed. */
  const living = (): Array<HeldLease> => {
    const atMs = now()
    const out: Array<HeldLease> = []
    for (const lease of Array.from(leases.byId.values())) {
      if (lease.state !== "held") {
        continue
      }
      if (atMs - lease.confirmedMs >= lease.leaseMs) {
        expire(lease)
      } else {
        out.push(lease)
      }
    }
    return out
  }

  const confirm = (lease: HeldLease, sentMs: number) => {
    lease.confirmedMs = Math.max(lease.confirmedMs, sentMs)
  }

  const ask = ({ id, leaseMs }: HeldLease) => ({ lease: id, leaseMs })

  /** Tells the register about leases it does not know. Whether it took them. */
  const hold = Effect.fnUntraced(function*(held: ReadonlyArray<HeldLease>) {
    const alive = held.filter((lease) => lease.state === "held" && now() - lease.confirmedMs < lease.leaseMs)
    if (alive.length === 0) {
      return true
    }
    const exit = yield* Effect.exit(Deadline.within(register.hold(alive.map(ask)), everyMs, late("hold")))
    for (const lease of alive) {
      lease.registration = Exit.isSuccess(exit) ? "held" : "lost"
    }
    return Exit.isSuccess(exit)
  })

  /** Renews, and answers the leases about which the store must be asked now. */
  const renew = Effect.fnUntraced(function*(held: ReadonlyArray<HeldLease>) {
    const sentMs = now()
    const exit = yield* Effect.exit(Deadline.within(register.renew(held.map(ask)), everyMs, late("renew")))
    if (Exit.isFailure(exit)) {
      yield* registerOutage.failed(now(), exit.cause)
      return held
    }
    yield* registerOutage.worked
    const unsure: Array<HeldLease> = []
    for (const [index, lease] of held.entries()) {
      const answer = exit.value[index] ?? "lost"
      if (answer === "lost") {
        lease.registration = register.isRecord ? "held" : "lost"
      } else {
        confirm(lease, sentMs)
      }
      if (answer !== "held") {
        unsure.push(lease)
      }
    }
    return unsure
  })

  const gone = (lease: HeldLease) => {
    const cut = cutShort(lease)
    // One that is over was counted then.
    const lost = lease.state === "held" ? 1 : 0
    lease.state = "gone"
    slots().stopLease(lease, "silent", "the lease was lost")
    return cut === 0 ? Effect.void : Effect.andThen(
      Meters.add("lease_losses", lost),
      Effect.logWarning("a lease was lost: its handlers are interrupted and record nothing").pipe(
        Effect.annotateLogs({ lease: lease.id, jobs: cut })
      )
    )
  }

  const stands = (
    lease: HeldLease,
    answer: Extract<Verified, { _tag: "Stands" }>,
    before: ReadonlySet<JobId>,
    sentMs: number
  ) => {
    lease.verifiedMs = sentMs
    if (lease.state === "held") {
      confirm(lease, sentMs)
    }
    for (const { epoch, id } of answer.revoked) {
      const held = lease.jobs.get(id)
      if (held !== undefined && held.claim.epoch === epoch) {
        slots().stop(held, "silent", "the job was taken away")
      }
    }
    const running = new Set<JobId>()
    for (const { epoch, id } of answer.running) {
      running.add(id)
      // Neither held when the question was sent nor now: a failover has forgotten its settlement, or a claim's answer
      // was cut short. Nobody runs it, and while the lease is renewed nobody else would.
      if (!before.has(id) && !lease.jobs.has(id)) {
        const held: HeldJob = {
          claim: { id, epoch, lease: lease.id } as HeldJob["claim"],
          lease,
          job: null,
          atMs: now(),
          phase: "ended"
        }
        lease.jobs.set(id, held)
        options.handBack(held)
      }
    }
    for (const held of Array.from(lease.jobs.values())) {
      if (held.phase !== "ended" && before.has(held.claim.id) && !running.has(held.claim.id)) {
        slots().stop(held, "silent", "the job is not ours any more")
      }
    }
  }

  const verify = Effect.fnUntraced(function*(asked: ReadonlyArray<HeldLease>) {
    // Asking moves the record's token, so it is a renewal too: not past the lease's length.
    const held = asked.filter((lease) => lease.state === "held" && now() - lease.confirmedMs < lease.leaseMs)
    if (held.length === 0) {
      return
    }
    const sentMs = now()
    const before = new Map(held.map((lease) => [lease.id, new Set(lease.jobs.keys())] as const))
    const exit = yield* Effect.exit(Deadline.within(
      store.verify(held.map((lease) => lease.id)),
      everyMs,
      () => new JobStoreUnavailable({ operation: "verify", cause: Deadline.noAnswer(everyMs) })
    ))
    if (Exit.isFailure(exit)) {
      return yield* storeOutage.failed(now(), exit.cause)
    }
    yield* storeOutage.worked
    for (const answer of exit.value) {
      const lease = leases.byId.get(answer.lease)
      if (lease === undefined) {
        continue
      }
      if (answer._tag === "Gone") {
        yield* gone(lease)
      } else {
        stands(lease, answer, before.get(answer.lease) ?? new Set(), sentMs)
      }
    }
    yield* hold(held.filter((lease) => lease.registration === "lost" && leases.byId.has(lease.id)))
  })

  const abandon = Effect.suspend(() => {
    const atMs = now()
    for (const [lease, { leaseMs, sinceMs }] of leases.doubtful) {
      // Forgotten from here on: it lapses by itself.
      if (atMs - sinceMs >= leaseMs) {
        leases.doubtful.delete(lease)
      }
    }
    return leases.doubtful.size === 0 ? Effect.void : Deadline.within(
      store.abandon(Array.from(leases.doubtful.keys())),
      everyMs,
      () => new JobStoreUnavailable({ operation: "abandon", cause: Deadline.noAnswer(everyMs) })
    ).pipe(Effect.exit, Effect.asVoid)
  })

  const renewAll = Effect.gen(function*() {
    const held = living()
    if (held.length === 0) {
      return true
    }
    const known = held.filter((lease) => lease.registration === "held")
    const fresh = held.filter((lease) => lease.registration === "fresh")
    const lost = held.filter((lease) => lease.registration === "lost")
    const [unsure, took] = yield* Effect.all(
      [known.length === 0 ? Effect.succeed([]) : renew(known), hold(fresh)],
      { concurrency: 2 }
    )
    const atMs = now()
    const due = held.filter((lease) => atMs - lease.verifiedMs >= lease.leaseMs - everyMs / 2)
    yield* verify(Array.from(new Set([...lost, ...unsure, ...(took ? [] : fresh), ...due])))
    // A round is a good one if every lease is younger than when it began.
    return held.every((lease) => lease.state !== "held" || now() - lease.confirmedMs <= 3 * everyMs)
  })

  const beat = Effect.gen(function*() {
    const [ok] = yield* Effect.all([renewAll, abandon], { concurrency: 2 })
    if (ok) {
      yield* loop.beat
    }
  })

  return {
    expire,
    beat,
    abandon,
    run: Effect.gen(function*() {
      let nextMs = now()
      while (true) {
        yield* Effect.catchCause(beat, (cause) => Effect.logError("a heartbeat broke", cause))
        // At a fixed rate, but never catching up on beats that a frozen process missed.
        nextMs = Math.max(nextMs + everyMs, now())
        if (!leases.tended()) {
          yield* leases.toTend.wait(rhythm.within(Math.max(everyMs, idleMs)))
          // From when they were sent for, which may be most of a lease ago.
          nextMs = leases.tended()
            ? Math.min(now(), ...living().map(({ confirmedMs }) => confirmedMs)) + everyMs
            : now()
        }
        yield* Effect.sleep(Math.max(1, Math.ceil(nextMs - now())))
      }
    }),
    watch: Effect.gen(function*() {
      while (true) {
        let nearestMs = Number.POSITIVE_INFINITY
        for (const lease of living()) {
          nearestMs = Math.min(nearestMs, lease.confirmedMs + lease.leaseMs)
        }
        // No lease that is adopted later can end sooner than one length from now, less what its claim took: that one
        // is looked at when it is adopted.
        yield* leases.adopted.wait(
          nearestMs === Number.POSITIVE_INFINITY ? nearestMs : Math.max(1, Math.ceil(nearestMs - now()))
        )
      }
    })
  }
}
