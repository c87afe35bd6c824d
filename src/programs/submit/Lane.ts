/**
 * One lane of the group commit: what waits, and what is under way.
 *
 * While flushes are in flight the next one gathers, so the busier the store the larger the flush, and a lone submit
 * leaves as soon as the event loop brings no other: there is no timer to wait for. A lane is plain synchronous state;
 * the only effect is the flush.
 */
import type { NewJob } from "../../domain/Job.ts"
import type { Answered, SubmitUnavailable } from "../../ports/Submitter.ts"

/** Bounds of one flush, and of what may wait for one. */
export const flushRowsMax = 1_000
export const flushBytesMax = 4 * 1_048_576
export const queueRowsMax = 10_000
export const queueBytesMax = 64 * 1_048_576
export const flightsMax = 2

/**
 * What a statement costs whatever it carries, here and in Postgres, is what twenty rows cost. So while fewer than these
 * wait, and each turn of the event loop brings more, the flush waits for the next turn; but not for more than so many.
 */
export const flushRowsEnough = 32
export const turnsMax = 8

export interface Entry {
  readonly job: NewJob
  readonly bytes: number
  /** Monotonic. */
  readonly deadlineNanos: bigint
  /** `null` once the caller was answered. */
  answer: ((answered: Answered | SubmitUnavailable) => void) | null
}

export const answerOnce = (entry: Entry, answered: Answered | SubmitUnavailable): void => {
  const answer = entry.answer
  entry.answer = null
  answer?.(answered)
}

export interface Lane {
  /** Whether there was room. */
  readonly offer: (entry: Entry) => boolean
  /** Keeps entries whose turn gave no answer, until they are put back. */
  readonly aside: (entries: ReadonlyArray<Entry>) => void
  /** Puts entries back in front whose turn gave no answer. */
  readonly again: (entries: ReadonlyArray<Entry>) => void
  /** Everything that waits or is under way and is not answered. */
  readonly unanswered: () => ReadonlyArray<Entry>
  /** To be called when a flush has ended. */
  readonly landed: (entries: ReadonlyArray<Entry>) => void
}

/** `flush` starts a flush and must lead to `landed` with the same array. */
export const make = (flush: (entries: ReadonlyArray<Entry>) => void): Lane => {
  let queue: Array<Entry> = []
  let head = 0
  let queuedBytes = 0
  let scheduled = false
  let turns = 0
  let waitedBefore = 0
  const flights = new Set<ReadonlyArray<Entry>>()
  const resting = new Set<Entry>()
  let restingBytes = 0

  const take = (): Array<Entry> => {
    const taken: Array<Entry> = []
    let bytes = 0
    while (head < queue.length && taken.length < flushRowsMax) {
      const entry = queue[head]!
      if (taken.length > 0 && bytes + entry.bytes > flushBytesMax) {
        break
      }
      head += 1
      queuedBytes -= entry.bytes
      // Whoever was answered meanwhile ran out of time: nothing was sent for it yet, and nothing will be.
      if (entry.answer !== null) {
        taken.push(entry)
        bytes += entry.bytes
      }
    }
    if (head === queue.length) {
      queue = []
      head = 0
    } else if (head > queueRowsMax) {
      queue = queue.slice(head)
      head = 0
    }
    return taken
  }

  const pump = () => {
    const waiting = queue.length - head
    if (waiting > waitedBefore && waiting < flushRowsEnough && turns < turnsMax) {
      waitedBefore = waiting
      turns += 1
      setImmediate(pump)
      return
    }
    waitedBefore = 0
    turns = 0
    scheduled = false
    while (flights.size < flightsMax && head < queue.length) {
      const taken = take()
      if (taken.length > 0) {
        flights.add(taken)
        flush(taken)
      }
    }
  }

  // Each connection that has something to read is a task of its own, with its microtasks: only after the last of them is
  // everything there that this turn of the event loop brings.
  const schedule = () => {
    if (!scheduled && flights.size < flightsMax) {
      scheduled = true
      setImmediate(pump)
    }
  }

  return {
    offer: (entry) => {
      if (
        queue.length - head + resting.size >= queueRowsMax ||
        queuedBytes + restingBytes + entry.bytes > queueBytesMax
      ) {
        return false
      }
      queue.push(entry)
      queuedBytes += entry.bytes
      schedule()
      return true
    },
    aside: (entries) => {
      for (const entry of entries) {
        resting.add(entry)
        restingBytes += entry.bytes
      }
    },
    again: (entries) => {
      if (entries.length === 0) {
        return
      }
      for (const entry of entries) {
        if (resting.delete(entry)) {
          restingBytes -= entry.bytes
        }
      }
      queue = [...entries, ...queue.slice(head)]
      head = 0
      queuedBytes += entries.reduce((sum, entry) => sum + entry.bytes, 0)
      schedule()
    },
    unanswered: () => {
      const all: Array<Entry> = []
      for (const entries of [...flights, queue.slice(head), Array.from(resting)]) {
        all.push(...entries.filter((entry) => entry.answer !== null))
      }
      return all
    },
    landed: (entries) => {
      flights.delete(entries)
      schedule()
    }
  }
}
