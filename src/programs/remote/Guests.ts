/**
 * Workers elsewhere, for people: they are listed like the processes of Deadman, by the names they give themselves.
 *
 * Names are anybody's, so they stand apart from those of processes, are few, and are said a few at a time. Nothing is
 * decided by them, and nothing but a silence says that one has left.
 */
import { Effect } from "effect"
import type { JobType } from "../../domain/Job.ts"
import { guestPrefix, type Session, type Sessions, SessionsUnavailable } from "../../ports/Sessions.ts"
import * as Deadline from "../worker/Deadline.ts"
import * as Outage from "../worker/Outage.ts"
import type { Grants } from "./Grants.ts"

/** Of one process, at most: those that were heard of last. */
export const guestsMax = 200
/** A worker that has not been heard of for this long, waits for nothing and holds nothing is not shown any more. */
const silentMs = 15_000
const lookEveryMs = 2_500
/** Less than what a process may be silent for, in the list. */
const sayEveryMs = 10_000
const saysMax = 20
const deadlineMs = 3_000

interface Guest {
  types: ReadonlyArray<JobType>
  limit: number
  waiting: number
  seenMs: number
  said: string
  saidMs: number
}

export interface Guests {
  readonly seen: (worker: string, asked?: { readonly types: ReadonlyArray<JobType>; readonly limit: number }) => void
  readonly waits: (worker: string, more: 1 | -1) => void
  /** Ends only by interruption. */
  readonly run: Effect.Effect<never>
}

export const make = (options: {
  readonly sessions: Sessions["Service"]
  readonly grants: Grants
  readonly now: () => number
}): Guests => {
  const { grants, now, sessions } = options
  const outage = Outage.make("reporting workers elsewhere")
  // In the order of who was heard of least recently.
  const guests = new Map<string, Guest>()

  const touch = (worker: string): Guest => {
    const guest = guests.get(worker) ??
      { types: [], limit: 0, waiting: 0, seenMs: 0, said: "", saidMs: Number.NEGATIVE_INFINITY }
    guest.seenMs = now()
    guests.delete(worker)
    guests.set(worker, guest)
    if (guests.size > guestsMax) {
      const [oldest] = guests.keys()
      guests.delete(oldest ?? worker)
    }
    return guest
  }

  const round = Effect.gen(function*() {
    const running = new Map<string, number>()
    for (const { jobs, worker } of grants.all()) {
      running.set(worker, (running.get(worker) ?? 0) + jobs.size)
    }
    const due: Array<readonly [Guest, Session]> = []
    for (const [name, guest] of guests) {
      const runs = running.get(name) ?? 0
      if (now() - guest.seenMs > silentMs && guest.waiting === 0 && runs === 0) {
        guests.delete(name)
        continue
      }
      const session: Session = {
        name: guestPrefix + name,
        role: "http",
        version: "http",
        handlers: guest.types,
        slots: Math.max(guest.limit, runs),
        running: runs,
        runaways: 0,
        draining: false,
        counters: {}
      }
      // What is said is said as of now: repeated of who may be gone, it would show him for as long again.
      const isThere = guest.seenMs > guest.saidMs || guest.waiting > 0 || runs > 0
      const isOld = now() - guest.saidMs >= sayEveryMs - lookEveryMs / 2
      if (JSON.stringify(session) !== guest.said || (isOld && isThere)) {
        due.push([guest, session])
      }
    }
    due.sort(([a], [b]) => a.saidMs - b.saidMs)
    for (const [guest, session] of due.slice(0, saysMax)) {
      yield* Deadline.within(
        sessions.report(session),
        deadlineMs,
        () => new SessionsUnavailable({ operation: "report", cause: Deadline.noAnswer(deadlineMs) })
      )
      guest.said = JSON.stringify(session)
      guest.saidMs = now()
    }
    yield* outage.worked
  })

  return {
    seen: (worker, asked) => {
      const guest = touch(worker)
      if (asked !== undefined) {
        guest.types = asked.types
        guest.limit = asked.limit
      }
    },
    waits: (worker, more) => {
      const guest = touch(worker)
      guest.waiting = Math.max(0, guest.waiting + more)
    },
    run: Effect.forever(Effect.andThen(
      Effect.catchCause(round, (cause) => outage.failed(now(), cause)),
      Effect.sleep(lookEveryMs)
    ))
  }
}
