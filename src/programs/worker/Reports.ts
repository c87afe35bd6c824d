/** Tells people who this process is and what it does: within two and a half seconds of a change, and every fifteen without one. */
import { Effect } from "effect"
import { type Session, type Sessions, SessionsUnavailable } from "../../ports/Sessions.ts"
import * as Deadline from "./Deadline.ts"
import * as Outage from "./Outage.ts"

/** `/stats` is at most five seconds behind, and reads these every second and a half. */
const lookEveryMs = 2_500
const sayEveryMs = 15_000
const deadlineMs = 3_000

export const run = Effect.fnUntraced(function*(options: {
  readonly sessions: Sessions["Service"]
  readonly session: Effect.Effect<Session>
  readonly now: () => number
}): Effect.fn.Return<never> {
  const { now, sessions } = options
  const outage = Outage.make("reporting this process")
  let said = ""
  let saidMs = Number.NEGATIVE_INFINITY
  while (true) {
    const session = yield* options.session
    const text = JSON.stringify(session)
    if (text !== said || now() - saidMs >= sayEveryMs - lookEveryMs / 2) {
      yield* within(sessions.report(session), "report").pipe(
        Effect.andThen(outage.worked),
        Effect.andThen(Effect.sync(() => {
          said = text
          saidMs = now()
        })),
        Effect.catchCause((cause) => outage.failed(now(), cause))
      )
    }
    yield* Effect.sleep(lookEveryMs)
  }
})

const within = (effect: Effect.Effect<void, SessionsUnavailable>, operation: "report" | "leave", ms = deadlineMs) =>
  Deadline.within(
    effect,
    ms,
    () => new SessionsUnavailable({ operation, cause: new Error(`no answer within ${ms} ms`) })
  )

/** A courtesy: a process that is gone is left out of the list after a while anyway. */
export const leave = (sessions: Sessions["Service"], name: string) =>
  Effect.ignoreCause(within(sessions.leave(name), "leave", 500))
