/**
 * Firing: the jobs of the ticks that have come, and what is booked next.
 *
 * It is one statement: it locks the schedules that are still as they were seen, stores their jobs, and books them anew.
 * Only where a job is to be cancelled for the next one is it a transaction.
 *
 * A schedule that the statement cannot take must not hold up the others: on such a refusal they are fired one by one.
 */
import { Effect, Result } from "effect"
import type { JobType, Queue } from "../../../domain/Job.ts"
import type { JobId } from "../../../domain/JobId.ts"
import type { ScheduleName } from "../../../domain/Schedule.ts"
import type { Fired, FireRequest, Schedules } from "../../../ports/Schedules.ts"
import { type Database, long, longs, texts, uuids } from "../Database.ts"
import type { DatabaseFailed } from "../DatabaseFailed.ts"
import type { StoreOptions } from "../store/Rows.ts"
import type { Cancel } from "./JobBefore.ts"
import { unavailable } from "./Rows.ts"
import * as Sql from "./SchedulesSql.ts"

/** `statement_timeout`: the server gave up, and changed nothing. */
const tooLong = "57014"

const nothing: Fired = { moved: [], jobs: [], cancelled: [], failed: [], announced: true }

const sum = (a: Fired, b: Fired): Fired => ({
  moved: [...a.moved, ...b.moved],
  jobs: [...a.jobs, ...b.jobs],
  cancelled: [...a.cancelled, ...b.cancelled],
  failed: [...a.failed, ...b.failed],
  announced: a.announced && b.announced
})

/** Of all of them, and not of one that the statement cannot take. */
const isAway = (error: DatabaseFailed): boolean => error.kind === "unavailable" && error.code !== tooLong

const orFailed = (requests: ReadonlyArray<FireRequest>) => (error: DatabaseFailed) =>
  isAway(error)
    ? Effect.fail(unavailable("fire")(error))
    : Effect.succeed<Fired>({ ...nothing, failed: requests.map(({ name }) => ({ name, message: error.message })) })

type Asks = <Row extends object>(text: string, params: ReadonlyArray<unknown>) => Effect.Effect<
  ReadonlyArray<Row>,
  DatabaseFailed
>

export const make = (db: Database["Service"], options: StoreOptions, cancel: Cancel): Schedules["Service"]["fire"] => {
  const statement = Sql.fire(options)

  const fireBy = Effect.fnUntraced(function*(ask: Asks, requests: ReadonlyArray<FireRequest>): Effect.fn.Return<
    Fired,
    DatabaseFailed
  > {
    const ticks = requests.flatMap(({ name, ticks }) => ticks.map((tick) => ({ ...tick, name })))
    const [row] = yield* ask<Sql.FiredRow>(statement, [
      texts(requests.map(({ name }) => name)),
      longs(requests.map(({ revision }) => revision)),
      longs(requests.map(({ nextFireMs }) => nextFireMs)),
      texts(ticks.map(({ name }) => name)),
      longs(ticks.map(({ tickMs }) => tickMs)),
      uuids(ticks.map(({ id }) => id))
    ])
    return {
      moved: (row?.moved ?? []) as ReadonlyArray<ScheduleName>,
      jobs: (row?.ids ?? []).map((id, at) => ({
        id: id as JobId,
        type: row!.types![at]! as JobType,
        queue: row!.queues![at]! as Queue,
        ordered: row!.priorities![at] !== 0
      })),
      cancelled: [],
      failed: row?.routeless === true
        // A route that was lost in a failover: made again here, and found at the next look.
        ? yield* Effect.as(ask(Sql.addRoutesOf, [texts(requests.map(({ name }) => name))]), [])
        : [],
      announced: (row?.woken ?? 0) > 0 || (row?.ids ?? []).length === 0
    }
  })

  const fireAll: Asks = (text, params) => db.query("read", text, params)

  const fireOne = (request: FireRequest) => Effect.catch(fireBy(fireAll, [request]), orFailed([request]))

  const fireTogether = Effect.fnUntraced(function*(requests: ReadonlyArray<FireRequest>) {
    const together = yield* Effect.result(fireBy(fireAll, requests))
    if (Result.isSuccess(together)) {
      return together.success
    }
    if (requests.length === 1 || isAway(together.failure)) {
      return yield* orFailed(requests)(together.failure)
    }
    let fired = nothing
    for (const request of requests) {
      fired = sum(fired, yield* fireOne(request))
    }
    return fired
  })

  const fireCancelling = (request: FireRequest) =>
    db.transaction("read", (session) =>
      Effect.gen(function*() {
        const [row] = yield* session.query<{ readonly last_job: string | null }>(
          Sql.lockForFire,
          [request.name, long(request.revision)]
        )
        if (row === undefined) {
          return nothing
        }
        const cancelled = row.last_job === null ? [] : yield* cancel(session, row.last_job)
        return { ...(yield* fireBy(session.query, [request])), cancelled }
      }))

  return Effect.fn("SchedulesPostgres.fire")(function*(requests) {
    const cancels = requests.filter(({ overlap, ticks }) => overlap === "cancel" && ticks.length > 0)
    const plain = requests.filter((request) => !cancels.includes(request))
    let fired = plain.length === 0 ? nothing : yield* fireTogether(plain)
    for (const request of cancels) {
      fired = sum(fired, yield* Effect.catch(fireCancelling(request), orFailed([request])))
    }
    return fired
  })
}
