/**
 * Takes jobs back from workers that went quiet.
 *
 * Each round looks at all leases and adds what it saw to a `Watch`; what has
 * certainly lapsed is taken. The deed is conditional on the token that was
 * watched, so a reaper that froze between look and deed takes nothing that was
 * renewed meanwhile, and any number of reapers may run.
 *
 * Losses near an outage do not count towards the crash-loop limit: the outage
 * took the worker's lease, not the job. A reclaim that fails is a sign of one: where
 * nothing can be written, no renewal could be. Before this process has watched for two
 * lengths it cannot know what happened earlier, so its first losses do not count.
 */
import { Clock, Duration, Effect, Ref } from "effect"
import * as Watch from "../../domain/Watch.ts"
import { JobStore, type LeaseLook, type LeaseRecord } from "../../ports/JobStore.ts"
import { LeaseRegister } from "../../ports/LeaseRegister.ts"
import * as Meters from "../process/Meters.ts"
import * as Steady from "../process/Steady.ts"
import { KeeperConfig } from "./KeeperConfig.ts"

const millis = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos / 1_000n) / 1_000)

/** Leases of one length: the watch and the memory of trouble that goes with it. */
interface Memory {
  readonly watch: Watch.Watch
  /** Monotonic ms of the last sign of an outage. */
  readonly troubleMs: number
  readonly registerAnswers: boolean
}

export const make = Effect.gen(function*() {
  const store = yield* JobStore
  const register = yield* LeaseRegister
  const config = yield* KeeperConfig
  const memory = yield* Ref.make<Memory>({ watch: Watch.empty, troubleMs: yield* millis, registerAnswers: true })

  const lookAtRegister = Effect.fnUntraced(function*(look: LeaseLook): Effect.fn.Return<Watch.Look["register"]> {
    if (register.isRecord) {
      return "row"
    }
    // With nothing to ask about there is still the incarnation to follow.
    return yield* register.look(look.leases.map(({ lease }) => lease)).pipe(
      Effect.catchTag("LeaseRegisterUnavailable", () => Effect.succeed(null))
    )
  })

  const take = Effect.fnUntraced(function*(
    lapsed: ReadonlyArray<Watch.Lapsed>,
    records: ReadonlyMap<string, LeaseRecord>,
    quietMs: number
  ) {
    const marked = yield* Effect.filter(lapsed, (one) =>
      one.markFirst
        ? register.markLapsed(one.lease, one.registerToken).pipe(
          Effect.catchTag("LeaseRegisterUnavailable", () => Effect.succeed(false))
        )
        : Effect.succeed(true), { concurrency: 16 })
    const counts = (one: Watch.Lapsed) => quietMs > 2 * (records.get(one.lease)?.leaseMs ?? Infinity)
    for (const counted of [true, false]) {
      const some = marked.filter((one) => counts(one) === counted)
      if (some.length === 0) {
        continue
      }
      const answers = yield* store.reclaim(some.map(({ lease, rowToken }) => ({ lease, token: rowToken })), {
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
    }
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
    const trouble = seen === null || gap || watch.rowIncarnation !== before.watch.rowIncarnation ||
      watch.registerIncarnation !== before.watch.registerIncarnation
    const troubleMs = trouble ? atMs : before.troubleMs
    if ((seen !== null) !== before.registerAnswers) {
      yield* seen === null
        ? Effect.logWarning("reaper: the lease register does not answer, watching Postgres instead")
        : Effect.logInfo("reaper: the lease register answers again")
    }
    const seenNow: Memory = { watch, troubleMs, registerAnswers: seen !== null }
    yield* Ref.set(memory, seenNow)
    if (lapsed.length > 0) {
      yield* take(lapsed, new Map(look.leases.map((record) => [record.lease, record])), atMs - troubleMs).pipe(
        Effect.tapError(() => Effect.flatMap(millis, (troubleMs) => Ref.set(memory, { ...seenNow, troubleMs })))
      )
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
