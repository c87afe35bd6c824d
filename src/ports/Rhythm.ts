/**
 * The instants at which an idle process does what it does every few seconds.
 *
 * To wake a process costs more than what it then does: its caches are cold, and Node runs uncompiled what happens so
 * seldom. So what may come a little sooner or later comes together with the rest (timer coalescing). Each process has a
 * phase of its own, so that a hundred of them do not ask the store at once, whatever woke them all.
 */
/** Between two of them. */
export const everyMs = 2_500
/** So much later than asked for is soon enough. */
const lateMs = everyMs / 4

export interface Rhythm {
  /**
   * How long it is to the last of them that is not much later than `ms` from now. What lasts two or four times as long as
   * from one to the next ends at every second or fourth, so that it comes together too. What is shorter, or has no end,
   * stays as it is.
   */
  readonly within: (ms: number) => number
}

/** `phaseMs` is that of the process; `now` the monotonic clock, in milliseconds. */
export const make = (phaseMs: number, now: () => number): Rhythm => ({
  within: (ms) => {
    if (!(ms >= everyMs && ms < Infinity)) {
      return ms
    }
    const gridMs = everyMs * 2 ** Math.floor(Math.log2(ms / everyMs))
    const sincePhaseMs = now() - phaseMs
    return Math.floor((sincePhaseMs + ms + lateMs) / gridMs) * gridMs - sincePhaseMs
  }
})
