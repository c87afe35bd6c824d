/**
 * What the handlers of a process note down about their runs, on its way to the store.
 *
 * Nobody waits for it and nothing depends on it. One statement brings what all of them noted, at once if none was sent
 * lately and otherwise once a second; what gathers meanwhile is bounded, the newest lines and the last progress of each
 * run. While the store is away it is kept and sent again. A process whose handlers note nothing sends nothing.
 */
import { Effect, Exit } from "effect"
import type { Claim } from "../../domain/Claim.ts"
import * as Bounds from "../../domain/Notes.ts"
import * as Sanitise from "../../domain/Sanitise.ts"
import type { JobStore } from "../../ports/JobStore.ts"
import * as Outage from "./Outage.ts"
import * as Signal from "./Signal.ts"

interface Gathered {
  readonly claim: Claim
  readonly attempt: number
  progress: string | null
  lines: Array<{ readonly atMs: number; readonly line: string }>
}

export interface Notes {
  readonly progress: (claim: Claim, attempt: number, value: unknown) => void
  readonly log: (claim: Claim, attempt: number, line: string) => void
  /** Sends what there is, for `ms` at most. */
  readonly flush: (ms: number) => Effect.Effect<void>
  /** Ends only by interruption. */
  readonly run: Effect.Effect<never>
}

export const everyMs = 1_000
/** Runs whose notes wait, at most. Further ones are not heard until the store answers. */
export const runsMax = 2_000
/** Runs of one statement. */
const batchMax = 200

export const make = (options: {
  readonly store: JobStore["Service"]
  readonly now: () => number
}): Notes => {
  const { now, store } = options
  /** By claim, oldest first. A claim is one object for the whole of its run. */
  const gathered = new Map<Claim, Gathered>()
  const more = Signal.make()
  const outage = Outage.make("keeping what handlers noted")

  const of = (claim: Claim, attempt: number): Gathered | null => {
    const found = gathered.get(claim)
    if (found !== undefined) {
      return found
    }
    if (gathered.size >= runsMax) {
      return null
    }
    const made: Gathered = { claim, attempt, progress: null, lines: [] }
    gathered.set(claim, made)
    more.notify()
    return made
  }

  /** What is there now, and not what comes meanwhile: that has another second. Whether the store took it. */
  const send = Effect.gen(function*() {
    for (let left = gathered.size; left > 0; left -= batchMax) {
      const batch = Array.from(gathered.values()).slice(0, Math.min(left, batchMax))
      for (const { claim } of batch) {
        gathered.delete(claim)
      }
      const atMs = now()
      const exit = yield* Effect.exit(store.note(batch.map(({ attempt, claim, lines, progress }) => ({
        claim,
        attempt,
        progress,
        lines: lines.map(({ atMs: saidMs, line }) => ({ agoMs: Math.max(0, Math.round(atMs - saidMs)), line }))
      }))))
      if (Exit.isSuccess(exit)) {
        yield* outage.worked
        continue
      }
      yield* outage.failed(now(), exit.cause)
      for (const old of batch) {
        const newer = gathered.get(old.claim)
        if (newer === undefined) {
          gathered.set(old.claim, old)
        } else {
          newer.progress ??= old.progress
          newer.lines = [...old.lines, ...newer.lines].slice(-Bounds.attemptLinesMax)
        }
      }
      return false
    }
    return true
  })

  const sendAll = Effect.gen(function*() {
    while (gathered.size > 0) {
      if (!(yield* send)) {
        return
      }
    }
  })

  return {
    progress: (claim, attempt, value) => {
      const noted = of(claim, attempt)
      if (noted !== null) {
        noted.progress = Sanitise.result(value, Bounds.progressMaxBytes) ?? "null"
      }
    },
    log: (claim, attempt, line) => {
      const noted = of(claim, attempt)
      if (noted !== null) {
        noted.lines.push({ atMs: now(), line: Sanitise.line(line, Bounds.lineMax) })
        if (noted.lines.length > Bounds.attemptLinesMax) {
          noted.lines.shift()
        }
      }
    },
    flush: (ms) => Effect.asVoid(Effect.timeoutOption(sendAll, ms)),
    run: Effect.gen(function*() {
      while (true) {
        if (gathered.size === 0) {
          yield* more.wait(Number.POSITIVE_INFINITY)
        }
        yield* send
        yield* Effect.sleep(everyMs)
      }
    })
  }
}
