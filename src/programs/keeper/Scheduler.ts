/**
 * Fires schedules at their ticks.
 *
 * Any number of schedulers may run. Each looks at what is due and decides by the
 * same rule; the store takes each decision once, so whoever is late finds the
 * schedule moved on. Nothing is remembered between two looks: a scheduler that
 * was killed, frozen, or did not hear the answer leaves nothing behind.
 *
 * It sleeps until the next tick that is booked, and looks a few seconds later in
 * any case, since schedules are changed through other processes too.
 */
import { Duration, Effect, Result } from "effect"
import * as Schedule from "../../domain/Schedule.ts"
import { LeaseRegister } from "../../ports/LeaseRegister.ts"
import { type Due, type Fired, type FireRequest, Schedules } from "../../ports/Schedules.ts"
import { Transport } from "../../ports/Transport.ts"
import * as Meters from "../process/Meters.ts"
import * as Steady from "../process/Steady.ts"
import * as JobIds from "../submit/JobIds.ts"

/** Schedules of one look. */
const lookMax = 500
/** Jobs of one firing: more ticks than this are fired in several, except those of one schedule. */
const jobsMax = 1_000
/** A schedule that was made through another process fires by then at the latest. */
const safetyMs = 5_000
/** Nothing of what was due could be moved: others are at it, or the store refuses it. */
const stuckMs = 250
const namesSaid = 5

export const make = Effect.gen(function*() {
  const schedules = yield* Schedules
  const transport = yield* Transport
  const register = yield* LeaseRegister
  const draw = yield* JobIds.make

  const decide = (due: Due, nowMs: number): Effect.Effect<FireRequest> => {
    const { name, overlap, revision } = due
    return Result.match(Schedule.fire(due, nowMs), {
      onSuccess: ({ nextFireMs, ticks }) =>
        Effect.succeed({
          name,
          revision,
          overlap,
          nextFireMs,
          ticks: ticks.map((tickMs) => ({ tickMs, id: draw() }))
        }),
      // Written by hand, or by a program that knew more. It must not stop the others.
      onFailure: ({ field, message }) =>
        Effect.as(
          Effect.logError(`scheduler: ${name} fires no more until it is put right: its ${field} ${message}`),
          { name, revision, overlap, nextFireMs: null, ticks: [] }
        )
    })
  }

  const publish = ({ announced, jobs }: Fired) =>
    announced || jobs.length === 0
      ? Effect.void
      : transport.publish(jobs).pipe(
        // The jobs are ready in the store, and workers look there too: a lost hint costs latency only.
        Effect.catchTag("TransportUnavailable", (error) => Effect.logWarning("scheduler: could not publish", error))
      )

  /** The workers of what was cut off learn of it with their next heartbeat at the latest; this is sooner. */
  const tell = (cancelled: Fired["cancelled"]) => {
    const wakes = cancelled.flatMap(({ cutOff, id }) =>
      cutOff === null ? [] : [{ _tag: "Revoked" as const, lease: cutOff.lease, id, epoch: cutOff.epoch }]
    )
    return wakes.length === 0
      ? Effect.void
      : Effect.all([
        Effect.ignore(transport.wake(wakes)),
        register.isRecord ? Effect.void : Effect.ignore(register.flag(wakes.map(({ lease }) => lease)))
      ], { discard: true }).pipe(Effect.timeoutOption("5 seconds"), Effect.forkDetach, Effect.asVoid)
  }

  const complain = (failed: Fired["failed"]) =>
    failed.length === 0
      ? Effect.void
      : Effect.logWarning(
        `scheduler: could not fire ${
          failed.slice(0, namesSaid).map(({ message, name }) => `${name} (${message})`).join(", ")
        }${failed.length > namesSaid ? ` and ${failed.length - namesSaid} more` : ""}`
      )

  /** What nobody was there for is said once, by whoever makes up for it. */
  const sayLate = (due: ReadonlyArray<Due>, nowMs: number, { jobs, moved }: Fired) => {
    const late = due.filter(({ name, nextFireMs }) => nextFireMs < nowMs - Schedule.onTimeMs && moved.includes(name))
    const mostMs = Math.max(0, ...late.map(({ nextFireMs }) => nowMs - nextFireMs))
    return late.length === 0
      ? Effect.void
      : Effect.logInfo(
        `scheduler: nobody fired ${late.slice(0, namesSaid).map(({ name }) => name).join(", ")}${
          late.length > namesSaid ? ` and ${late.length - namesSaid} more` : ""
        } for up to ${
          Math.round(mostMs / 1_000)
        } s; their policies for what was missed and the ticks on time made ${jobs.length} jobs`
      )
  }

  /** Fires what is due. Answers how long until there may be more. */
  const round = Effect.gen(function*() {
    const { nextInMs, nowMs, schedules: due } = yield* schedules.due(lookMax)
    if (due.length === 0) {
      return nextInMs ?? Infinity
    }
    const requests = yield* Effect.forEach(due, (one) => decide(one, nowMs))
    let moved = 0
    for (let from = 0; from < requests.length;) {
      let until = from
      for (let jobs = 0; until < requests.length; until++) {
        jobs += requests[until]!.ticks.length
        if (jobs > jobsMax && until > from) {
          break
        }
      }
      const fired = yield* schedules.fire(requests.slice(from, until))
      moved += fired.moved.length
      yield* Meters.add("schedule_fires", fired.jobs.length)
      yield* Meters.add("dead", fired.cancelled.length)
      yield* publish(fired)
      yield* tell(fired.cancelled)
      yield* complain(fired.failed)
      yield* sayLate(due.slice(from, until), nowMs, fired)
      if (fired.jobs.length > 0) {
        yield* Effect.logDebug(`scheduler: fired ${fired.jobs.length} of ${fired.moved.length} schedules`)
      }
      from = until
    }
    return moved === 0 ? stuckMs : 0
  })

  return { round }
})

export const run = Effect.gen(function*() {
  const { round } = yield* make
  const schedules = yield* Schedules
  return yield* Steady.run({
    name: "schedule",
    limit: "20 seconds",
    retry: "1 second",
    pause: (inMs) =>
      inMs <= 0
        ? Effect.yieldNow
        : Effect.raceFirst(Effect.sleep(Duration.millis(Math.min(safetyMs, Math.max(inMs, 5)))), schedules.changed)
  }, round)
})
