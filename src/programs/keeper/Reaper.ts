/**
 * Takes jobs back from workers that went quiet.
 *
 * Each round looks at all leases and adds what it saw to a `Watch`; what has
 * certainly lapsed is taken. The deed is conditional on the token that was
 * watched, so a reaper that froze between look and deed takes nothing that was
 * renewed meanwhile, and any number of reapers may run. The looks go on beside the
 * deed: one that takes long, since much has lapsed at once or the store is slow, must
 * not be a gap in the watch of what lapses next.
 *
 * Losses near an outage do not count towards the crash-loop limit: the outage
 * took the worker's lease, not the job. A reclaim that fails is a sign of one: where
 * nothing can be written, no renewal could be. Before this process has watched for two
 * lengths it cannot know what happened earlier, so its first losses do not count.
 */
import { Clock, Duration, Effect, Exit, type Fiber, Ref } from "effect"
import * as Watch from "../../domain/Watch.ts"
import { JobStore, type JobStoreUnavailable, type LeaseLook, type LeaseRecord } from "../../ports/JobStore.ts"
import { LeaseRegister } from "../../ports/LeaseRegister.ts"
import * as Meters from "../process/Meters.ts"
import * as Steady from "../process/Steady.ts"
import { KeeperConfig } from "./KeeperConfig.ts"

const millis = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos / 1_000n) / 1_000)

/** What takes longer is a sign that something is wrong: a look, or a deed. */
const longMs = 2_000

/** What the last look has left. */
interface Memory {
  readonly watch: Watch.Watch
  readonly registerAnswers: boolean
}

export const make = Effect.gen(function*() {
  const store = yield* JobStore
  const register = yield* LeaseRegister
  const config = yield* KeeperConfig
  const scope = yield* Effect.scope
  const memory = yield* Ref.make<Memory>({ watch: Watch.empty, registerAnswers: true })
  /** Monotonic ms of the last sign of an outage. */
  let troubleMs = yield* millis
  /** Under way: one at a time. */
  let deed: Fiber.Fiber<void, JobStoreUnavailable> | null = null
  /** How the last one ended, which every round tells until another one ends, or there is nothing to be taken. */
  let ended: Exit.Exit<void, JobStoreUnavailable> = Exit.void

  const heed = () => {
    const exit = deed?.pollUnsafe()
    if (exit !== undefined) {
      deed = null
      ended = exit
    }
  }

  const worry = Effect.map(millis, (atMs) => {
    troubleMs = atMs
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

  const take = Effect.fnUntraced(function*(
    lapsed: ReadonlyArray<Watch.Lapsed>,
    records: ReadonlyMap<string, LeaseRecord>,
    seenMs: number
  ) {
    const marked = yield* Effect.filter(lapsed, (one) =>
      one.markFirst
        ? register.markLapsed(one.lease, one.registerToken).pipe(
          Effect.catchTag("LeaseRegisterUnavailable", () => Effect.succeed(false))
        )
        : Effect.succeed(true), { concurrency: 16 })
    // Trouble that has come since the look is trouble too.
    const quietMs = seenMs - troubleMs
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

  /** One look, and the deed that follows from it where none is under way. Fails as the last deed did. */
  const round = Effect.gen(function*() {
    // Before the look: what it shows to have lapsed is not what that deed has taken.
    heed()
    const before = yield* Ref.get(memory)
    const sentMs = yield* millis
    const look = yield* Effect.tapError(store.look, () => worry)
    const seen = yield* lookAtRegister(look)
    const atMs = yield* millis
    const { lapsed, watch } = Watch.observe(before.watch, {
      sentMs,
      atMs,
      rowIncarnation: look.incarnation,
      rows: look.leases,
      register: seen
    })
    const gap = before.watch.lastMs !== null && atMs - before.watch.lastMs > longMs
    if (
      seen === null || gap || watch.rowIncarnation !== before.watch.rowIncarnation ||
      watch.registerIncarnation !== before.watch.registerIncarnation
    ) {
      yield* worry
    }
    if ((seen !== null) !== before.registerAnswers) {
      yield* seen === null
        ? Effect.logWarning("reaper: the lease register does not answer, watching Postgres instead")
        : Effect.logInfo("reaper: the lease register answers again")
    }
    yield* Ref.set(memory, { watch, registerAnswers: seen !== null })
    if (lapsed.length === 0) {
      ended = Exit.void
    } else if (deed === null) {
      const records = new Map(look.leases.map((record) => [record.lease, record]))
      deed = yield* Effect.forkIn(
        take(lapsed, records, atMs).pipe(
          Effect.tapError(() => worry),
          Effect.tap(() => Effect.flatMap(millis, (endMs) => endMs - atMs > longMs ? worry : Effect.void))
        ),
        scope,
        { startImmediately: true }
      )
      heed()
    }
    yield* ended
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
export const run = Effect.scoped(Effect.gen(function*() {
  const { pause, round } = yield* make
  return yield* Steady.run({ name: "reap", limit: "5 seconds", retry: "250 millis", pause }, round)
}))
