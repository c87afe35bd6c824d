/**
 * The records of leases: asked for, let go, handed back, and taken from the dead.
 *
 * Heartbeats and the reaper have the `vital` lane to themselves. A lapse of which somebody has jobs locked is passed
 * over, and what else is in the way is tried one lease at a time: one stuck transaction, or one slow lease, holds back
 * no other lapse.
 */
import { Effect, type Result } from "effect"
import type { LeaseId } from "../../../domain/Claim.ts"
import type { JobType } from "../../../domain/Job.ts"
import type { JobId } from "../../../domain/JobId.ts"
import { jobStates } from "../../../domain/JobState.ts"
import type { JobStore, LeaseRecord, Reclaimed, Verified } from "../../../ports/JobStore.ts"
import { type Database, texts, uuids } from "../Database.ts"
import type { DatabaseFailed } from "../DatabaseFailed.ts"
import * as Sql from "./LeasesSql.ts"
import { orUnavailable, type StoreOptions } from "./Rows.ts"

type Service = JobStore["Service"]

const deadlockRetryMax = 4

/** How many leases one statement takes: as many jobs as a claim may have, times this, must fit into its time. */
const reclaimMax = 20

/** `statement_timeout`: the server gave up, and changed nothing. */
const tooLong = "57014"

/** What one lease has that took too long: it cannot be made smaller, so nothing else would ever take its jobs back. */
const aloneMs = 5_000

export const make = (
  db: Database["Service"],
  options: StoreOptions
): Pick<Service, "abandon" | "handBack" | "endLeases" | "verify" | "look" | "reclaim"> => {
  const sql = Sql.make(options)

  const endLeases: Service["endLeases"] = (leases) =>
    leases.length === 0
      ? Effect.void
      : db.query("hot", Sql.endLeases, [uuids(leases)]).pipe(Effect.asVoid, orUnavailable("endLeases"))

  const abandonAll = (leases: ReadonlyArray<LeaseId>) =>
    db.query("vital", sql.abandon, [uuids(leases)]).pipe(
      Effect.retry({ times: deadlockRetryMax, while: (error) => error.kind === "deadlock" })
    )

  const abandon: Service["abandon"] = (leases) =>
    leases.length === 0
      ? Effect.void
      : abandonAll(leases).pipe(
        Effect.catchIf(
          (error) => error.kind === "locked" && leases.length > 1,
          // Each by itself, and all of them, before one failure is told.
          () =>
            Effect.flatMap(
              Effect.forEach(leases, (lease) => Effect.exit(abandonAll([lease]))),
              (exits) => Effect.all(exits)
            )
        ),
        Effect.asVoid,
        orUnavailable("abandon")
      )

  const handBack: Service["handBack"] = (lease, token) =>
    db.query("vital", sql.handBack, [uuids([lease]), token]).pipe(
      Effect.retry({ times: deadlockRetryMax, while: (error) => error.kind === "deadlock" }),
      Effect.asVoid,
      orUnavailable("handBack")
    )

  const verify: Service["verify"] = (leases) =>
    leases.length === 0
      ? Effect.succeed([])
      : db.query<Sql.VerifiedRow>("vital", Sql.verify, [uuids(leases)]).pipe(
        Effect.map((rows) => {
          const found = new Map(rows.map((row) => [row.id, row]))
          return leases.map((lease): Verified => {
            const row = found.get(lease)
            return row === undefined ? { _tag: "Gone", lease } : {
              _tag: "Stands",
              lease,
              running: row.ids.map((id, index) => ({ id: id as JobId, epoch: row.epochs[index] ?? 0 })),
              revoked: (row.revoked ?? []).map(({ epoch, id, reason }) => ({ id: id as JobId, epoch, reason }))
            }
          })
        }),
        orUnavailable("verify")
      )

  const look: Service["look"] = db.query<Sql.LookRow>("vital", Sql.look).pipe(
    Effect.map((rows) => ({
      incarnation: rows[0]?.incarnation ?? "",
      leases: rows.flatMap((row): ReadonlyArray<LeaseRecord> =>
        row.id === null
          ? []
          : [{ lease: row.id as LeaseId, leaseMs: row.lease_ms, token: row.token, worker: row.worker, jobs: row.jobs }]
      )
    })),
    orUnavailable("look")
  )

  /** Counts the calls. */
  let turn = 0

  type Lapsed = Parameters<Service["reclaim"]>[0]
  type How = Parameters<Service["reclaim"]>[1]

  const take = Effect.fnUntraced(function*(lapsed: Lapsed, how: How, patiently = false) {
    const params = [
      uuids(lapsed.map(({ lease }) => lease)),
      texts(lapsed.map(({ token }) => token)),
      how.counted,
      how.lossesMax
    ]
    const taking = patiently
      ? db.transaction("vital", (session) =>
        Effect.andThen(
          session.query(`SET LOCAL statement_timeout = ${aloneMs}`),
          session.query<Sql.ReclaimedRow>(sql.reclaim, params)
        ), { deadlineMs: aloneMs + 1_000 })
      : db.query<Sql.ReclaimedRow>("vital", sql.reclaim, params)
    const rows = yield* Effect.retry(taking, { times: deadlockRetryMax, while: ({ kind }) => kind === "deadlock" })
    const taken = new Map(rows.map((row) => [row.lease, row]))
    const missed = lapsed.filter(({ lease }) => !taken.has(lease)).map(({ lease }) => lease)
    const standing = missed.length === 0
      ? []
      : yield* db.query<{ readonly id: string; readonly token: string }>("vital", Sql.standing, [uuids(missed)])
    const tokens = new Map(standing.map(({ id, token }) => [id, token]))
    return lapsed.map(({ lease, token }): Reclaimed => {
      const row = taken.get(lease)
      if (row === undefined) {
        const now = tokens.get(lease)
        return { _tag: now === undefined ? "Gone" : now === token ? "Locked" : "Moved", lease }
      }
      return {
        _tag: "Reclaimed",
        lease,
        worker: row.worker,
        jobs: row.ids.map((id, index) => ({
          id: id as JobId,
          type: row.types[index] as JobType,
          state: jobStates[row.states[index] ?? 0]!
        }))
      }
    })
  })

  /** What was taken is told, also if the rest must be asked for again; a failure where nothing was. */
  const told = (lapsed: Lapsed, answers: ReadonlyArray<Reclaimed>, failure: DatabaseFailed | null) => {
    if (failure !== null && !answers.some(({ _tag }) => _tag === "Reclaimed")) {
      return Effect.fail(failure)
    }
    const byLease = new Map(answers.map((answer) => [answer.lease, answer]))
    return Effect.succeed(lapsed.map(({ lease }): Reclaimed => byLease.get(lease) ?? { _tag: "Locked", lease }))
  }

  /**
   * Each by itself, and another one first each time. What is wrong with one lease holds up no other: one that takes too
   * long is passed over like a locked one, unless no other can be taken either. Until the first of them has failed they
   * have more time: several that need it have it in turn, and the others do not wait for them all.
   */
  const takeEach = Effect.fnUntraced(function*(lapsed: Lapsed, how: How) {
    const answers: Array<Reclaimed> = []
    let failure: DatabaseFailed | null = null
    const start = turn % lapsed.length
    const inTurn = [...lapsed.slice(start), ...lapsed.slice(0, start)]
    for (const one of inTurn) {
      const answer: Result.Result<ReadonlyArray<Reclaimed>, DatabaseFailed> = yield* Effect.result(
        take([one], how, failure === null)
      )
      if (answer._tag === "Success") {
        answers.push(...answer.success)
        continue
      }
      if (answer.failure.kind === "locked") {
        continue
      }
      failure = answer.failure
      if (answer.failure.code !== tooLong) {
        break
      }
    }
    return yield* told(lapsed, answers, failure)
  })

  const takeApart = (lapsed: Lapsed, how: How) =>
    take(lapsed, how).pipe(
      Effect.catchIf((error) => error.kind === "locked" || error.code === tooLong, () => takeEach(lapsed, how))
    )

  const reclaim: Service["reclaim"] = Effect.fnUntraced(function*(lapsed, how) {
    turn += 1
    const answers: Array<Reclaimed> = []
    let failure: DatabaseFailed | null = null
    for (let from = 0; from < lapsed.length; from += reclaimMax) {
      const part = yield* Effect.result(takeApart(lapsed.slice(from, from + reclaimMax), how))
      if (part._tag === "Success") {
        answers.push(...part.success)
        continue
      }
      failure ??= part.failure
      if (part.failure.code !== tooLong) {
        break
      }
    }
    return yield* told(lapsed, answers, failure)
  }, orUnavailable("reclaim"))

  return { abandon, handBack, endLeases, verify, look, reclaim }
}
