/**
 * Which types of waiting jobs no process has a handler for, and when to say so.
 *
 * Nothing else would tell: such jobs are well, they only wait. A process that has just started is not in the list of
 * processes yet, so a type is spoken of when it has been without a handler for some seconds; then once, and again every
 * ten minutes while it lasts, however often it comes and goes.
 */
import type { ListedSession } from "../../ports/Sessions.ts"
import * as Words from "../process/Words.ts"

/** Types are named by who submits: no more of them are kept, shown or spoken of. */
export const typesMax = 100
/** More than a process takes to report itself. */
export const patienceMs = 5_000
export const againMs = 600_000

export interface Look {
  /** Waiting jobs by type: the types with the most of them. */
  readonly unhandled: Readonly<Record<string, number>>
  /** What to say now. */
  readonly lines: ReadonlyArray<string>
  /** Whether something may have to be said soon. */
  readonly unsure: boolean
}

export interface Unhandled {
  readonly look: (
    pendingByType: Readonly<Record<string, number>>,
    sessions: ReadonlyArray<Pick<ListedSession, "handlers">>,
    nowMs: number
  ) => Look
}

interface Known {
  sinceMs: number | null
  saidMs: number | null
}

const line = (type: string, n: number): string =>
  `${Words.counted(n, "job")} of type ${type} ${n === 1 ? "waits" : "wait"}: no process has a handler for it`

export const make = (): Unhandled => {
  const known = new Map<string, Known>()

  const isFresh = ({ saidMs }: Known, nowMs: number) => saidMs !== null && nowMs - saidMs < againMs

  return {
    look: (pendingByType, sessions, nowMs) => {
      const handled = new Set(sessions.flatMap(({ handlers }) => handlers))
      const found = Object.entries(pendingByType)
        .filter(([type, n]) => n > 0 && !handled.has(type))
        .sort(([, a], [, b]) => b - a)
        .slice(0, typesMax)
      const types = new Set(found.map(([type]) => type))
      for (const [type, entry] of known) {
        if (!types.has(type)) {
          entry.sinceMs = null
          if (!isFresh(entry, nowMs)) {
            known.delete(type)
          }
        }
      }
      const lines: Array<string> = []
      let unsure = false
      for (const [type, n] of found) {
        const entry = known.get(type) ?? { sinceMs: nowMs, saidMs: null }
        entry.sinceMs ??= nowMs
        if (!known.has(type)) {
          if (known.size >= typesMax) {
            continue
          }
          known.set(type, entry)
        }
        if (isFresh(entry, nowMs)) {
          continue
        }
        if (nowMs - entry.sinceMs >= patienceMs) {
          entry.saidMs = nowMs
          lines.push(line(type, n))
        } else {
          unsure = true
        }
      }
      return { unhandled: Object.fromEntries(found), lines, unsure }
    }
  }
}
