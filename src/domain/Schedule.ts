/**
 * A schedule: a job that is submitted again and again, at times that are known beforehand.
 *
 * Each of these times is a tick. Which of the ticks that are due fire is decided
 * here, from the instants alone: whoever looks, and whenever, comes to the same
 * ticks, so that a store has only to see to it that each is taken once.
 */
import { Result, Schema } from "effect"
import type { Backoff } from "./Backoff.ts"
import * as Cron from "./Cron.ts"
import { instantMaxMs, type JobType, namePattern, nameRule, type Queue } from "./Job.ts"
import type { JobId } from "./JobId.ts"

export const ScheduleName = Schema.String.check(Schema.isPattern(namePattern, { message: nameRule })).pipe(
  Schema.brand("ScheduleName")
)
export type ScheduleName = typeof ScheduleName.Type

/** When it fires, as it was asked for. What stands in a table may be wrong: `ticker` says whether it can be followed. */
export type Timing =
  | { readonly cron: string; readonly zone: string }
  /** At the multiples of this length since the epoch, so that all schedulers have the same ticks. */
  | { readonly everyMs: number }

export const everyMinMs = 1_000
export const everyMaxMs = 86_400_000

/** What becomes of ticks that nobody was there for. */
export type Missed = "skip" | "latest" | { readonly all: number }
export const missedAllMax = 1_000

/** What a tick does while the job before it is not final. */
export const overlaps = ["allow", "skip", "cancel"] as const
export type Overlap = (typeof overlaps)[number]

/** A tick that is not later than this is not missed: a scheduler that was killed, or a failover, costs none. */
export const onTimeMs = 30_000

/** How many of the next ticks are shown. */
export const nextShown = 5

/** What is asked for. */
export interface NewSchedule {
  readonly name: ScheduleName
  readonly timing: Timing
  readonly missed: Missed
  readonly overlap: Overlap
  /** `null`: as it is, and not paused where it is new. */
  readonly paused: boolean | null
  readonly type: JobType
  readonly queue: Queue
  /** JSON text, already checked. */
  readonly payload: string
  readonly priority: number
  readonly maxAttempts: number
  readonly backoff: Backoff
  readonly timeoutMs: number | null
  /** How long its jobs are kept after their end; `null`: as long as is configured. */
  readonly retainMs: number | null
  readonly tags: ReadonlyArray<string>
}

export interface Schedule extends Omit<NewSchedule, "payload" | "paused"> {
  /** The payload as a JSON value. */
  readonly payload: unknown
  readonly paused: boolean
  readonly createdAtMs: number
  readonly updatedAtMs: number
  /** The newest tick of which a job was made. */
  readonly lastFireMs: number | null
  /** `null` while it is paused, and where it never fires again. */
  readonly nextFireMs: number | null
  /** The job that it made last, also when it was told to. */
  readonly lastJob: JobId | null
}

export interface Ticker {
  readonly next: (afterMs: number) => number | null
  /** The newest ticks from the one instant to the other, both included; in order. */
  readonly newest: (fromMs: number, untilMs: number, limit: number) => ReadonlyArray<number>
}

export interface Refused {
  readonly field: "cron" | "zone" | "every_ms"
  readonly message: string
}

const everyTicker = (everyMs: number): Ticker => ({
  next: (afterMs) => (Math.floor(afterMs / everyMs) + 1) * everyMs,
  newest: (fromMs, untilMs, limit) => {
    const last = Math.floor(untilMs / everyMs)
    const first = Math.max(Math.ceil(fromMs / everyMs), last - limit + 1)
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, n) => (first + n) * everyMs)
  }
})

export const ticker = (timing: Timing): Result.Result<Ticker, Refused> =>
  "everyMs" in timing
    ? Number.isInteger(timing.everyMs) && timing.everyMs >= everyMinMs && timing.everyMs <= everyMaxMs
      ? Result.succeed(everyTicker(timing.everyMs))
      : Result.fail({ field: "every_ms", message: `must be a whole number from ${everyMinMs} to ${everyMaxMs}` })
    : Result.map(Cron.parse(timing.cron, timing.zone), (cron) => ({
      next: (afterMs) => Cron.next(cron, afterMs),
      newest: (fromMs, untilMs, limit) => Cron.newest(cron, fromMs, untilMs, limit)
    }))

const reachable = (tickMs: number | null): number | null => tickMs !== null && tickMs <= instantMaxMs ? tickMs : null

export const nextAfter = (timing: Timing, afterMs: number): number | null =>
  Result.match(ticker(timing), { onFailure: () => null, onSuccess: ({ next }) => reachable(next(afterMs)) })

/** The first of these is the one that is booked. */
export const nextFires = (timing: Timing, nextFireMs: number | null, count: number): ReadonlyArray<number> => {
  const found = ticker(timing)
  const fires: Array<number> = []
  for (let at = nextFireMs; at !== null && fires.length < count;) {
    fires.push(at)
    at = Result.isSuccess(found) ? reachable(found.success.next(at)) : null
  }
  return fires
}

export const isSameTiming = (a: Timing, b: Timing): boolean =>
  "everyMs" in a
    ? "everyMs" in b && a.everyMs === b.everyMs
    : !("everyMs" in b) && a.cron === b.cron && a.zone === b.zone

/** What a schedule is known by at its tick. */
export interface DueSchedule {
  readonly timing: Timing
  readonly missed: Missed
  readonly overlap: Overlap
  /** The first tick that is not yet decided. */
  readonly nextFireMs: number
}

export interface Firing {
  /** In order. */
  readonly ticks: ReadonlyArray<number>
  readonly nextFireMs: number | null
}

/**
 * Which of the ticks up to now fire, and what is booked next.
 *
 * Those that are on time do, whatever the policy; of the missed ones none, the newest if nothing newer fires, or the
 * newest so many. Where two jobs of the schedule may not be there at once, only the newest of all of them.
 */
export const fire = (due: DueSchedule, nowMs: number): Result.Result<Firing, Refused> =>
  Result.map(ticker(due.timing), ({ newest, next }) => {
    const fromMs = due.nextFireMs
    const most = typeof due.missed === "object" ? due.missed.all : due.missed === "latest" ? 1 : 0
    const onTime = newest(Math.max(fromMs, nowMs - onTimeMs), nowMs, onTimeMs / everyMinMs + 1)
    const missedUntilMs = nowMs - onTimeMs - 1
    const missed = fromMs > missedUntilMs || most === 0 || (due.missed === "latest" && onTime.length > 0)
      ? []
      : newest(fromMs, missedUntilMs, most)
    const ticks = [...missed, ...onTime]
    return {
      ticks: due.overlap === "allow" ? ticks : ticks.slice(-1),
      // Not before what was booked: the clock may have gone back since.
      nextFireMs: reachable(next(Math.max(nowMs, fromMs)))
    }
  })
