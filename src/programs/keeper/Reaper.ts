/**
 * Takes jobs back from workers that went quiet.
 *
 * Each round looks at all leases and adds what it saw to a `Watch`; what has
 * certainly lapsed is taken. The deed is conditional on the token that was
 * watched, so a reaper that froze between look and deed takes nothing that was
 * renewed meanwhile, and any number of reapers may run.
 *
 * Losses near an outage do not count towards the crash-loop limit: the outage
 * took the worker's lease, not the job. A server that refuses a reclaim, since it is
 * read-only or has no disk left, is one. Before this process has watched for two
 * lengths it cannot know what happened earlier, so its first losses do not count.
 *
 * A lapse is certain for good, so one whose reclaim failed is tried again, in the
 * next round, by itself and after all others: what is wrong with one lease holds up
 * no other. Where others could be taken meanwhile, it says nothing about the store.
 */
import { Clock, Duration, Effect, Ref } from "effect"
import type { LeaseId } from "../../domain/Claim.ts"
import * as Watch from "../../domain/Watch.ts"
import { JobStore, type JobStoreUnavailable, type LeaseLook, type LeaseRecord } from "../../ports/JobStore.ts"
import { LeaseRegister } from "../../ports/LeaseRegister.ts"
import * as Meters from "../process/Meters.ts"
import * as Steady from "../process/Steady.ts"
import { KeeperConfig } from "./KeeperConfig.ts"

const millis = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos / 1_000n) / 1_000)

/** A lapse whose reclaim failed. Times are monotonic, in ms. */
interface Refused {
  readonly lapse: Watch.Lapsed
  readonly failures: number
  readonly failedMs: number
  readonly againMs: number
  /** Others were taken since it failed first: it is at fault itself. */
  readonly stuck: boolean
  readonly error: JobStoreUnavailable
}

/** The watch and the memory of trouble that goes with it. Times are monotonic, in ms. */
interface Memory {
  readonly watch: Watch.Watch
  /** The last sign of an outage. */
  readonly troubleMs: number
  readonly registerAnswers: boolean
  readonly refused: ReadonlyMap<LeaseId, Refused>
  /** When a lease was taken last: the store took writes. */
  readonly takenMs: number
}

/**
 * What failed slowly is left alone for so many times as long, from the second time on. A round that takes long is a gap
 * in the watch of short leases; between two of these gaps there is time to be certain of any other lease.
 */
const pauses = 10

/** Those of which nothing has moved since. The register forgets by itself what nobody renews. */
const still = (
  refused: ReadonlyMap<LeaseId, Refused>,
  records: ReadonlyMap<LeaseId, LeaseRecord>,
  seen: Watch.Look["register"]
): ReadonlyMap<LeaseId, Refused> => {
  const out = new Map<LeaseId, Refused>()
  for (const [lease, one] of refused) {
    const registerToken = seen === null || seen === "row" ? null : seen.tokens.get(lease) ?? null
    const renewed = registerToken !== null && registerToken !== one.lapse.registerToken
    if (records.get(lease)?.token === one.lapse.rowToken && !renewed) {
      out.set(lease, { ...one, lapse: { ...one.lapse, registerToken } })
    }
  }
  return out
}

export const make = Effect.gen(function*() {
  const store = yield* JobStore
  const register = yield* LeaseRegister
  const config = yield* KeeperConfig
  const memory = yield* Ref.make<Memory>({
    watch: Watch.empty,
    troubleMs: yield* millis,
    registerAnswers: true,
    refused: new Map(),
    takenMs: -Infinity
  })

  const lookAtRegister = Effect.fnUntraced(function*(look: LeaseLook): Effect.fn.Return<Watch.Look["register"]> {
    if (register.isRecord) {
      return "row"
    }
    // With nothing to ask about there is still the incarnation to follow.
    return yield* register.look(look.leases.map(({ lease }) => lease)).pipe(
      Effect.catchTag("LeaseRegisterUnavailable", () => Effect.succeed(null))
    )
  })

  /** Which of these the register lets go: all that were not renewed after the look. */
  const mark = (lapsed: ReadonlyArray<Watch.Lapsed>) =>
    Effect.filter(lapsed, (one) =>
      one.markFirst
        ? register.markLapsed(one.lease, one.registerToken).pipe(
          Effect.catchTag("LeaseRegisterUnavailable", () => Effect.succeed(false))
        )
        : Effect.succeed(true), { concurrency: 16 })

  /** Answers whether any was taken. */
  const reclaim = Effect.fnUntraced(function*(lapsed: ReadonlyArray<Watch.Lapsed>, counted: boolean) {
    const answers = yield* store.reclaim(lapsed.map(({ lease, rowToken }) => ({ lease, token: rowToken })), {
      counted,
      lossesMax: config.lossesMax
    })
    for (const answer of answers) {
      if (answer._tag !== "Reclaimed" || answer.jobs.length === 0) {
        continue
      }
      const dead = answer.jobs.filter(({ state }) => state === "dead").length
      yield* Meters.add("reclaimed", answer.jobs.length - dead)
      yield* Meters.add("dead", dead)
      const others = answer.jobs.length - dead
      yield* Effect.logWarning(
        `worker ${answer.worker} went quiet: ${others} of its jobs ${others === 1 ? "goes" : "go"} to others` +
          (dead > 0 ? `, ${dead} ${dead === 1 ? "is dead as a crash loop" : "are dead as crash loops"}` : "")
      ).pipe(Effect.annotateLogs({
        lease: answer.lease,
        worker: answer.worker,
        jobs: answer.jobs.slice(0, 5).map(({ id }) => id).join(" "),
        counted
      }))
    }
    return answers.some(({ _tag }) => _tag === "Reclaimed")
  })

  /** Takes what has lapsed, up to the first that fails. Answers what to remember of it. */
  const take = Effect.fnUntraced(function*(
    memory: Memory,
    lapsed: ReadonlyArray<Watch.Lapsed>,
    records: ReadonlyMap<LeaseId, LeaseRecord>,
    atMs: number
  ) {
    const refused = new Map(memory.refused)
    let { takenMs, troubleMs } = memory
    const fresh = lapsed.filter(({ lease }) => !refused.has(lease))
    const counts = (one: Watch.Lapsed) => atMs - troubleMs > 2 * (records.get(one.lease)?.leaseMs ?? Infinity)
    const calls = [
      { some: fresh.filter(counts), counted: true },
      { some: fresh.filter((one) => !counts(one)), counted: false },
      // The fewest failures first, and those last that are known to fail: each has its turn.
      ...Array.from(refused.values())
        .filter(({ againMs }) => againMs <= atMs)
        .sort((one, other) => Number(one.stuck) - Number(other.stuck) || one.failures - other.failures)
        .map(({ lapse }) => ({ some: [lapse], counted: false }))
    ]
    for (const { counted, some } of calls) {
      const marked = yield* mark(some)
      if (marked.length === 0) {
        // One that the register does not let go is watched like any other again.
        some.forEach(({ lease }) => refused.delete(lease))
        continue
      }
      const sentMs = yield* millis
      const answer = yield* Effect.result(reclaim(marked, counted))
      const answeredMs = yield* millis
      if (answer._tag === "Success") {
        takenMs = answer.success ? answeredMs : takenMs
        marked.forEach(({ lease }) => refused.delete(lease))
        continue
      }
      for (const lapse of marked) {
        const before = refused.get(lapse.lease)
        const stuck = before !== undefined && (before.stuck || before.failedMs < takenMs)
        if (!stuck) {
          troubleMs = answeredMs
        } else if (!before.stuck) {
          const worker = records.get(lapse.lease)?.worker
          yield* Effect.logWarning(
            `the jobs of worker ${worker}, which went quiet, cannot be taken back, while those of others can`,
            answer.failure
          ).pipe(Effect.annotateLogs({ lease: lapse.lease, worker }))
        }
        refused.set(lapse.lease, {
          lapse,
          failures: (before?.failures ?? 0) + 1,
          failedMs: answeredMs,
          againMs: before === undefined ? answeredMs : answeredMs + pauses * (answeredMs - sentMs),
          stuck,
          error: answer.failure
        })
      }
      break
    }
    return { ...memory, refused, takenMs, troubleMs }
  })

  /** One look and what follows from it. Answers how many leases there are. */
  const round = Effect.gen(function*() {
    const before = yield* Ref.get(memory)
    const sentMs = yield* millis
    const look = yield* store.look.pipe(
      Effect.tapError(() => Effect.flatMap(millis, (troubleMs) => Ref.set(memory, { ...before, troubleMs })))
    )
    const seen = yield* lookAtRegister(look)
    const atMs = yield* millis
    const { lapsed, watch } = Watch.observe(before.watch, {
      sentMs,
      atMs,
      rowIncarnation: look.incarnation,
      rows: look.leases,
      register: seen
    })
    const gap = before.watch.lastMs !== null && atMs - before.watch.lastMs > 2_000
    const elsewhere = watch.rowIncarnation !== before.watch.rowIncarnation ||
      watch.registerIncarnation !== before.watch.registerIncarnation
    const troubleMs = seen === null || gap || elsewhere ? atMs : before.troubleMs
    if ((seen !== null) !== before.registerAnswers) {
      yield* seen === null
        ? Effect.logWarning("reaper: the lease register does not answer, watching Postgres instead")
        : Effect.logInfo("reaper: the lease register answers again")
    }
    const records = new Map(look.leases.map((record) => [record.lease, record]))
    const refused = elsewhere ? new Map<LeaseId, Refused>() : still(before.refused, records, seen)
    const seenNow: Memory = { ...before, watch, troubleMs, registerAnswers: seen !== null, refused }
    yield* Ref.set(memory, seenNow)
    const taken = yield* take(seenNow, lapsed, records, atMs)
    yield* Ref.set(memory, taken)
    const failed = Array.from(taken.refused.values()).find(({ stuck }) => !stuck)
    if (failed !== undefined) {
      return yield* Effect.fail(failed.error)
    }
    return look.leases
  })

  /** The shortest heartbeat decides: what is watched must be looked at at least twice within its longest gap. */
  const pause = (leases: ReadonlyArray<LeaseRecord>) => {
    if (leases.length === 0) {
      return Effect.sleep(config.lookIdle)
    }
    const shortest = leases.reduce((least, { leaseMs }) => Math.min(least, Watch.gapMaxMs(leaseMs)), Infinity)
    return Effect.sleep(Duration.min(config.look, Duration.millis(shortest / 2)))
  }

  return { round, pause }
})

/** Looks for ever. */
export const run = Effect.gen(function*() {
  const { pause, round } = yield* make
  return yield* Steady.run({ name: "reap", limit: "5 seconds", retry: "250 millis", pause }, round)
})
