/**
 * Which types somebody waits for who is given no ids, as far as this process has heard.
 *
 * Those who wait say it now and then, and what was not said for a while is over. So what is forgotten or missed costs
 * somebody a look, and what is remembered for too long costs a wake.
 */
import type { JobType } from "../../domain/Job.ts"
import { awaitedMs, type ReadyJob } from "../../ports/Transport.ts"

/** Beyond so many types all are taken for awaited. */
export const typesMax = 10_000

export interface Awaited {
  readonly heard: (types: ReadonlyArray<JobType>, nowMs: number) => void
  readonly some: (jobs: ReadonlyArray<ReadyJob>, nowMs: number) => boolean
}

export const make = (): Awaited => {
  // In the order of what was said least recently.
  const until = new Map<JobType, number>()

  const forget = (nowMs: number) => {
    for (const [type, untilMs] of until) {
      if (untilMs > nowMs) {
        return
      }
      until.delete(type)
    }
  }

  return {
    heard: (types, nowMs) => {
      forget(nowMs)
      for (const type of types) {
        until.delete(type)
        if (until.size < typesMax) {
          until.set(type, nowMs + awaitedMs)
        }
      }
    },
    some: (jobs, nowMs) => {
      if (until.size === 0) {
        return false
      }
      forget(nowMs)
      return until.size >= typesMax || jobs.some(({ type }) => until.has(type))
    }
  }
}
