/**
 * Tells people who this process is and what it does: within about three seconds of a change, or five where it runs
 * nothing, and every ten or so without one, so that a row of fifteen seconds is one of a process that is gone.
 */
import { Effect } from "effect"
import type { Rhythm } from "../../ports/Rhythm.ts"
import { type Session, type Sessions, SessionsUnavailable } from "../../ports/Sessions.ts"
import * as Deadline from "./Deadline.ts"
import * as Outage from "./Outage.ts"
import type { Signal } from "./Signal.ts"

/** `/stats` is at most five seconds behind, and reads these every second and a half. */
const lookEveryMs = 2_500
/** Where nothing runs. As seldom as it looks for jobs, and as it says that it is there: so all of it costs one wake. */
const quietEveryMs = 5_000
const sayEveryMs = 10_000
const deadlineMs = 3_000

export const run = Effect.fnUntraced(function*(options: {
  readonly sessions: Sessions["Service"]
  readonly session: Effect.Effect<Session>
  /** What tells, without building it, whether the session is another one. */
  readonly stamp: () => string
  /** Whether nothing runs here, and `stirred` is told before something does. */
  readonly quiet: () => boolean
  readonly stirred: Signal
  readonly now: () => number
  readonly rhythm: Rhythm
}): Effect.fn.Return<never> {
  const { now, quiet, sessions, stirred, rhythm } = options
  const outage = Outage.make("reporting this process")
  let said: string | null = null
  let saidMs = Number.NEGATIVE_INFINITY
  const isDue = () => now() - saidMs >= sayEveryMs - lookEveryMs / 2
  while (true) {
    const stamp = options.stamp()
    if (stamp !== said || isDue()) {
      const startedMs = now()
      const session = yield* options.session
      yield* within(sessions.report(session), "report").pipe(
        Effect.andThen(outage.worked),
        Effect.andThen(Effect.sync(() => {
          said = stamp
          saidMs = startedMs
        })),
        Effect.catchCause((cause) => outage.failed(now(), cause))
      )
    }
    // One that failed is made again soon: a row of fifteen seconds is of one that is gone.
    yield* stirred.wait(rhythm.within(quiet() && !isDue() ? quietEveryMs : lookEveryMs))
  }
})

const within = (effect: Effect.Effect<void, SessionsUnavailable>, operation: "report" | "leave", ms = deadlineMs) =>
  Deadline.within(
    effect,
    ms,
    () => new SessionsUnavailable({ operation, cause: Deadline.noAnswer(ms) })
  )

const leaveMs = 500

/**
 * What was counted since the last report, and that the process is gone. A courtesy, and no longer waited for than one:
 * without it the process is left out of the list after a while, and its totals lack what the drain counted.
 */
export const leave = (sessions: Sessions["Service"], session: Effect.Effect<Session>) =>
  Effect.flatMap(
    session,
    (last) => within(Effect.andThen(Effect.ignore(sessions.report(last)), sessions.leave(last.name)), "leave", leaveMs)
  ).pipe(
    Effect.ignoreCause
  )
