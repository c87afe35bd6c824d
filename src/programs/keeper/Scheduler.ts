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
import { type Due, type Fired, type FireRequest, Schedules, type SchedulesUnavailable } from "../../ports/Schedules.ts"
import { Transport } from "../../ports/Transport.ts"
import * as Meters from "../process/Meters.ts"
import * as Steady from "../process/Steady.ts"
import * as JobIds from "../submit/JobIds.ts"

/** Schedules of one look. */
const lookMax = 500
/** Jobs of one firing, and bytes of their payloads: what is more than this is fired in several. */
const jobsMax = 1_000
const bytesMax = 4 * 1_048_576
/** So many firings in a row without an answer are no matter of what is to be fired. */
const unansweredMax = 3
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

  interface Decided extends FireRequest {
    readonly bytes: number
  }

  const decide = (due: Due, nowMs: number): Effect.Effect<Decided> => {
    const { bytes, name, overlap, revision } = due
    const most = Math.max(1, Math.min(jobsMax, Math.floor(bytesMax / Math.max(1, bytes))))
    return Result.match(Schedule.fire(due, nowMs), {
      onSuccess: ({ nextFireMs, ticks }) =>
        Effect.succeed({
          name,
          revision,
          overlap,
          // What is too much at once stays booked: the next look finds it due.
          nextFireMs: ticks[most] ?? nextFireMs,
          ticks: ticks.slice(0, most).map((tickMs) => ({ tickMs, id: draw() })),
          bytes: bytes * Math.min(most, ticks.length)
        }),
      // Written by hand, or by a program that knew more. It must not stop the others.
      onFailure: ({ field, message }) =>
        Effect.as(
          Effect.logError(`scheduler: ${name} fires no more until it is put right: its ${field} ${message}`),
          { name, revision, overlap, nextFireMs: null, ticks: [], bytes: 0 }
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

  const groupsOf = (requests: ReadonlyArray<Decided>): Array<ReadonlyArray<FireRequest>> => {
    const groups: Array<Array<FireRequest>> = []
    let jobs = 0
    let bytes = 0
    for (const { bytes: more, ...request } of requests) {
      jobs += request.ticks.length
      bytes += more
      const group = groups.at(-1)
      if (group === undefined || jobs > jobsMax || bytes > bytesMax) {
        groups.push([request])
        jobs = request.ticks.length
        bytes = more
      } else {
        group.push(request)
      }
    }
    return groups
  }

  /** Fires what is due. Answers how long until there may be more. */
  const round = Effect.gen(function*() {
    const { nextInMs, nowMs, schedules: due } = yield* schedules.due(lookMax)
    if (due.length === 0) {
      return nextInMs ?? Infinity
    }
    const groups = groupsOf(yield* Effect.forEach(due, (one) => decide(one, nowMs)))
    let moved = 0
    let unanswered = 0
    let lost: SchedulesUnavailable | null = null
    for (const group of groups) {
      const answer = yield* Effect.result(schedules.fire(group))
      if (Result.isFailure(answer)) {
        lost = answer.failure
        unanswered += 1
        if (unanswered === unansweredMax) {
          return yield* lost
        }
        // One of them may be too much for the store: each by itself, behind all others.
        groups.push(...(group.length > 1 ? group.map((one) => [one]) : []))
        continue
      }
      unanswered = 0
      const fired = answer.success
      moved += fired.moved.length
      yield* Meters.add("schedule_fires", fired.jobs.length)
      yield* Meters.add("dead", fired.cancelled.length)
      yield* publish(fired)
      yield* tell(fired.cancelled)
      yield* complain(fired.failed)
      yield* sayLate(due, nowMs, fired)
      if (fired.jobs.length > 0) {
        yield* Effect.logDebug(`scheduler: fired ${fired.jobs.length} of ${fired.moved.length} schedules`)
      }
    }
    return moved > 0 ? 0 : lost === null ? stuckMs : yield* lost
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
