/**
 * The handlers of a process that was told of no others: enough to try Deadman, to drive its paths and to break it.
 *
 * `side-effect` writes one row that is there once however often its job is
 * delivered: the row and the check of the claim share a transaction.
 */
import { Duration, Effect, Random, Schedule } from "effect"
import { GuardedEffects } from "../../ports/GuardedEffects.ts"
import { type Handler, Rejected } from "../worker/HandlerApi.ts"

/** A number, or the text of one; `null` for anything else. */
const numeric = (payload: unknown): number | null => {
  const value = typeof payload === "string" && payload.trim() !== "" ? Number(payload) : payload
  return typeof value === "number" && Number.isFinite(value) ? value : null
}

/** A day. */
const sleepMaxMs = 86_400_000

const sleep: Handler = ({ payload }) => {
  const ms = numeric(payload)
  return ms === null || ms < 0 || ms > sleepMaxMs
    ? Effect.fail(new Rejected(`the payload of "sleep" is a number of milliseconds from 0 to ${sleepMaxMs}`))
    : Effect.sleep(Duration.millis(ms))
}

const flaky: Handler = ({ payload }) => {
  const percent = numeric(payload)
  return percent === null || percent < 0 || percent > 100
    ? Effect.fail(new Rejected(`the payload of "flaky" is a number from 0 to 100: how often it fails, in percent`))
    : Effect.map(Random.next, (draw) => {
      if (draw * 100 < percent) {
        throw new Error(`failed, as it does in ${percent} % of its runs`)
      }
    })
}

/**
 * The store being away is no failure of the job. Asking again under one key is safe, also where only the answer was
 * lost; in a longer outage the lease ends first, and the job is handed back.
 */
const untilAnswered = { schedule: Schedule.spaced("500 millis"), times: 60 } as const

/** All of them, by type. */
export const make = Effect.map(GuardedEffects, (effects): Readonly<Record<string, Handler>> => ({
  noop: () => undefined,
  sleep,
  flaky,
  "always-fails": () => {
    throw new Error("always fails")
  },
  // Guarded by the job's id, not by its key: an Idempotency-Key may be used again once its time is over.
  "side-effect": ({ id, worker }, { claim }) =>
    effects.once(claim, id, worker).pipe(
      Effect.retry({ ...untilAnswered, while: ({ _tag }) => _tag === "GuardedEffectsUnavailable" }),
      Effect.asVoid
    )
}))
