/**
 * When a slot was free: from the workers' own lines, in steps of a tenth of a second.
 *
 * A full crew has slots in which one job has just ended and the next has not begun. Those are not what a waiting job
 * could have had, so slots count as free from a tenth of the living ones on.
 *
 * A worker has its slots from when it has loaded its handlers until it is killed, and not while it is frozen.
 */
import type { Boot, Deed } from "./Evidence.ts"

export interface Run {
  readonly pid: number
  readonly fromMs: number
  /** `null` where it was cut off with its worker. */
  readonly toMs: number | null
}

const stepMs = 100
const freeShare = 0.1

export const make = (given: {
  readonly runs: ReadonlyArray<Run>
  readonly boots: ReadonlyArray<Boot>
  readonly deeds: ReadonlyArray<Deed>
  readonly threads: number
}): (fromMs: number, toMs: number) => number => {
  const { boots, deeds, runs, threads } = given
  const beginMs = Math.min(...boots.map(({ wallMs }) => wallMs), ...deeds.map(({ atMs }) => atMs))
  /** Slots that live, and those of them that are in use: differences first, sums below. */
  const living: Array<number> = []
  const busy: Array<number> = []
  const change = (of: Array<number>, atMs: number, by: number) => {
    const step = Math.max(0, Math.floor((atMs - beginMs) / stepMs))
    of[step] = (of[step] ?? 0) + by
  }
  const hits = new Map<number, Array<Deed>>()
  for (const deed of deeds) {
    if (deed.pid !== null && deed.skipped === null && (deed.kind === "kill" || deed.kind === "freeze")) {
      hits.set(deed.pid, [...(hits.get(deed.pid) ?? []), deed])
    }
  }
  const killedMs = (pid: number) => hits.get(pid)?.find(({ kind }) => kind === "kill")?.atMs ?? Infinity
  /** So many slots from then to then, in the times in which their worker could do something. */
  const add = (of: Array<number>, pid: number, fromMs: number, toMs: number, slots: number) => {
    let at = fromMs
    for (const { atMs, endMs, kind } of hits.get(pid) ?? []) {
      if (kind !== "freeze" || endMs <= at || atMs >= toMs) continue
      if (atMs > at) {
        change(of, at, slots)
        change(of, atMs, -slots)
      }
      at = endMs
    }
    if (at < toMs) {
      change(of, at, slots)
      if (toMs !== Infinity) change(of, toMs, -slots)
    }
  }
  for (const { pid, wallMs } of boots) {
    add(living, pid, wallMs, killedMs(pid), threads)
  }
  for (const { fromMs, pid, toMs } of runs) {
    add(busy, pid, fromMs, toMs ?? killedMs(pid), 1)
  }
  let alive = 0
  let used = 0
  const free = Array.from({ length: Math.max(living.length, busy.length) }, (_, step) => {
    alive += living[step] ?? 0
    used += busy[step] ?? 0
    return alive - used >= Math.max(1, alive * freeShare)
  })
  return (fromMs, toMs) => {
    let ms = 0
    for (let at = fromMs; at < toMs;) {
      const step = Math.max(0, Math.floor((at - beginMs) / stepMs))
      const next = Math.max(at + 1, Math.min(toMs, beginMs + (step + 1) * stepMs))
      if (free[Math.min(step, free.length - 1)] === true) ms += next - at
      at = next
    }
    return ms
  }
}
