/**
 * Running a schedule now, beside its ticks: at the word of somebody who may have an Idempotency-Key.
 *
 * It is one transaction, of the key, the job before and the new job, so that a run that is refused leaves its key free.
 * The job is read when it is over.
 */
import { Effect } from "effect"
import type { KeyClaim } from "../../../domain/Job.ts"
import type { JobId } from "../../../domain/JobId.ts"
import { jobStates } from "../../../domain/JobState.ts"
import type { ScheduleName } from "../../../domain/Schedule.ts"
import type { JobStore } from "../../../ports/JobStore.ts"
import { type Ran, type Schedules, SchedulesUnavailable } from "../../../ports/Schedules.ts"
import { type Database, type Session, texts, uuids } from "../Database.ts"
import type { DatabaseFailed } from "../DatabaseFailed.ts"
import * as Rounds from "../Rounds.ts"
import type { StoreOptions } from "../store/Rows.ts"
import { addRoutes, dropExpired, type KeyRow, keys } from "../store/SubmitSql.ts"
import type { Cancel } from "./JobBefore.ts"
import { orUnavailable } from "./Rows.ts"
import * as Sql from "./SchedulesSql.ts"

export const make = (
  db: Database["Service"],
  options: StoreOptions,
  cancel: Cancel,
  { get }: Pick<JobStore["Service"], "get">
): Schedules["Service"]["run"] => {
  const statement = Sql.run(options)
  const ttl = String(options.keyTtlMs)

  /** The request that has the key, if it is not this one: then the key is this one's. */
  const takeKey = (session: Session, id: JobId, { fingerprint, key }: KeyClaim) =>
    Rounds.untilAnswered(
      Effect.gen(function*() {
        const [taken] = yield* session.query(Sql.takeKey, [key, id, fingerprint])
        if (taken !== undefined) {
          return null
        }
        const [known] = yield* session.query<KeyRow>(keys, [texts([key]), ttl])
        if (known !== undefined && !known.expired) {
          return known.job === id ? null : known
        }
        if (known !== undefined) {
          yield* session.query(dropExpired, [texts([key]), uuids([known.job]), ttl])
        }
        return undefined
      }),
      () => Rounds.busy("the Idempotency-Key comes and goes")
    )

  const runUnder = Effect.fnUntraced(function*(session: Session, name: ScheduleName, id: JobId, key: KeyClaim | null) {
    const [row] = yield* session.query<Sql.RunRow>(Sql.lockForRun, [name])
    if (row === undefined) {
      return { _tag: "NotFound" } as const
    }
    const [unfinished] = row.last_job === null || row.last_job === id
      ? []
      : yield* session.query<{ readonly state: number }>(Sql.unfinished, [row.last_job])
    const before = unfinished === undefined
      ? null
      : { job: row.last_job as JobId, state: jobStates[unfinished.state] ?? "pending" }
    if (before !== null && row.overlap === "skip") {
      return { _tag: "Overlaps", ...before } as const
    }
    const cancelled = before !== null && row.overlap === "cancel" ? yield* cancel(session, before.job) : []
    yield* session.query(addRoutes, [texts([row.type]), texts([row.queue])])
    const [stored] = yield* session.query<{ readonly woken: number }>(statement, [name, id, key?.key ?? null])
    return { _tag: "Ran", cancelled: cancelled[0] ?? null, announced: (stored?.woken ?? 0) > 0 } as const
  })

  const runOnce = (name: ScheduleName, id: JobId, key: KeyClaim | null) =>
    db.transaction("read", (session) =>
      Effect.gen(function*() {
        const known = key === null ? null : yield* takeKey(session, id, key)
        if (known !== null) {
          const id = known.job as JobId
          return known.fingerprint === key?.fingerprint
            ? { _tag: "Replayed", id } as const
            : { _tag: "KeyMismatch", job: id } as const
        }
        const ran = yield* runUnder(session, name, id, key)
        if (ran._tag !== "Ran" && key !== null) {
          yield* session.query(Sql.leaveKey, [key.key, id])
        }
        return ran
      }))

  return Effect.fn("SchedulesPostgres.run")(function*(name, id, key = null) {
    const ran = yield* runOnce(name, id, key).pipe(
      Effect.retry({ times: 2, while: ({ kind }: DatabaseFailed) => kind === "locked" || kind === "deadlock" }),
      orUnavailable("run")
    )
    if (ran._tag === "Overlaps" || ran._tag === "KeyMismatch") {
      return ran satisfies Ran
    }
    const [job] = yield* Effect.mapError(
      get([ran._tag === "Replayed" ? ran.id : id]),
      (cause) => new SchedulesUnavailable({ operation: "run", cause })
    )
    if (ran._tag === "Replayed") {
      return { _tag: "Replayed", job: job ?? null } satisfies Ran
    }
    if (job !== undefined) {
      const { announced, cancelled } = ran._tag === "Ran" ? ran : { announced: false, cancelled: null }
      return { _tag: "Ran", job, cancelled, announced } satisfies Ran
    }
    return ran._tag === "NotFound"
      ? ran
      : yield* new SchedulesUnavailable({ operation: "run", cause: new Error("the job is gone: ask again") })
  })
}
