/**
 * What people do to a job: cancel, retry, resubmit.
 *
 * Each is one statement that decides and writes, and then the job is read.
 * `cancel` locks the lease first and the job after it, as everybody does, and
 * has to know the lease before it has locked the job: where the job has moved
 * on in between, the statement changes nothing and is tried again.
 */
import { Effect } from "effect"
import type { LeaseId } from "../../../domain/Claim.ts"
import type { JobId } from "../../../domain/JobId.ts"
import { deadReasons, jobStates } from "../../../domain/JobState.ts"
import {
  type Cancelled,
  type JobStore,
  JobStoreUnavailable,
  type Rebooked,
  type Resubmitted
} from "../../../ports/JobStore.ts"
import type { Database } from "../Database.ts"
import type { DatabaseFailed } from "../DatabaseFailed.ts"
import * as Rounds from "../Rounds.ts"
import { journals, lostEpochs, mark, orUnavailable, state, type StoreOptions, tallies, wakes } from "./Rows.ts"

type Db = Database["Service"]

export interface CancelRow {
  readonly state: number
  readonly lease: string | null
  readonly epoch: number
  readonly done: boolean
}

// `p` is what the lease is known from, `o` the job as it is under its lock. `o` asks for `l`, so that the lease is
// locked first. Where the claim has changed in between, `u` matches nothing; the lease then names a claim that is over.
export const cancelSql = (wake: boolean) =>
  `WITH p AS MATERIALIZED (SELECT lease, epoch FROM deadman.job WHERE id = $1::uuid AND state = ${state.running}),
   l AS (
     UPDATE deadman.lease q
     SET revoked = coalesce(q.revoked, '[]') ||
           jsonb_build_object('id', $1::uuid, 'epoch', p.epoch, 'reason', 'cancelled')
     FROM p WHERE q.id = p.lease
     RETURNING q.id
   ),
   o AS MATERIALIZED (
     SELECT id, state, lease, epoch, route, worker FROM deadman.job
     WHERE id = $1::uuid AND (SELECT count(*) FROM l) >= 0
     FOR NO KEY UPDATE
   ),
   u AS (
     UPDATE deadman.job j
     SET state = ${state.dead}, reason = ${deadReasons.indexOf("cancelled")}, mark = ${mark.deadUnannounced},
         finished_at_ms = deadman.now_ms(), rank = NULL, wait_ms = NULL, expire_ms = NULL,
         lease       = CASE WHEN j.state = ${state.running} THEN NULL ELSE j.lease END,
         lost_epochs = CASE WHEN j.state = ${state.running} THEN ${lostEpochs("j")} ELSE j.lost_epochs END
     FROM o
     WHERE j.id = o.id AND (
       j.state IN (${state.pending}, ${state.failed}) OR
       (j.state = ${state.running} AND j.lease IN (SELECT lease FROM p))
     )
     RETURNING j.id
   ),
   ${
    tallies(
      `SELECT o.route, m.state, m.n
       FROM o JOIN u USING (id) CROSS JOIN LATERAL (VALUES (o.state, -1), (${state.dead}::smallint, 1)) m(state, n)`
    )
  },
   ${
    journals(
      `SELECT o.id, NULL::jsonb AS result, NULL::jsonb AS error,
              jsonb_build_object('kind', 'cancel_requested', 'epoch', o.epoch, 'worker', o.worker,
                                 'at_ms', deadman.now_ms()) AS event
       FROM o JOIN u USING (id)`
    )
  },
   ${
    wakes(
      wake,
      `SELECT concat('v:', o.lease, ':', o.epoch, ':', o.id) AS kind
       FROM o JOIN u USING (id) WHERE o.state = ${state.running}`
    )
  }
   SELECT o.state, CASE WHEN o.state = ${state.running} THEN o.lease END AS lease, o.epoch,
          EXISTS (SELECT 1 FROM u) AS done, (SELECT count(*)::int FROM n) AS woken
   FROM o`

const retrySql = (wake: boolean) =>
  `WITH o AS MATERIALIZED (
     SELECT id, state, epoch, route, worker, deadman.now_ms() AS now FROM deadman.job WHERE id = $1::uuid
     FOR NO KEY UPDATE
   ),
   u AS (
     UPDATE deadman.job j
     SET state = ${state.pending}, mark = NULL, wait_ms = NULL, run_at_ms = least(j.run_at_ms, o.now),
         rank = least(j.run_at_ms, o.now) - j.priority * r.step_ms
     FROM o JOIN deadman.route r ON r.id = o.route
     WHERE j.id = o.id AND j.state IN (${state.pending}, ${state.failed})
     RETURNING j.id
   ),
   ${
    tallies(
      `SELECT o.route, m.state, m.n
       FROM o JOIN u USING (id) CROSS JOIN (VALUES (${state.failed}, -1), (${state.pending}, 1)) m(state, n)
       WHERE o.state = ${state.failed}`
    )
  },
   ${
    journals(
      `SELECT o.id, NULL::jsonb AS result, NULL::jsonb AS error,
              jsonb_build_object('kind', 'retried', 'epoch', o.epoch, 'worker', o.worker, 'at_ms', o.now) AS event
       FROM o JOIN u USING (id)`
    )
  },
   ${wakes(wake, `SELECT 'r' AS kind FROM u`)}
   SELECT o.state, EXISTS (SELECT 1 FROM u) AS done, (SELECT count(*)::int FROM n) AS woken FROM o`

// The lock keeps the source from being pruned meanwhile. A time to start by is over, and whoever asks for it again means
// it, whatever else there is.
const resubmitSql = (wake: boolean) =>
  `WITH o AS MATERIALIZED (
     SELECT id, state, route, priority, bytes, retain_ms, deadman.now_ms() AS now FROM deadman.job WHERE id = $1::uuid
     FOR NO KEY UPDATE
   ),
   b AS (
     INSERT INTO deadman.body
       (id, payload, created_at_ms, timeout_ms, format, max_attempts, backoff, tags, resubmitted_from)
     SELECT $2::uuid, q.payload, o.now, q.timeout_ms, q.format, q.max_attempts, q.backoff, q.tags, o.id
     FROM o JOIN deadman.body q ON q.id = o.id
     WHERE o.state IN (${state.completed}, ${state.dead})
     ON CONFLICT (id) DO NOTHING
     RETURNING id
   ),
   u AS (
     INSERT INTO deadman.job (id, run_at_ms, rank, route, priority, bytes, retain_ms, prune_ms)
     SELECT b.id, o.now, o.now - o.priority * r.step_ms, o.route, o.priority, o.bytes, o.retain_ms, o.now + o.retain_ms
     FROM b CROSS JOIN o JOIN deadman.route r ON r.id = o.route
     RETURNING id, route
   ),
   g AS (
     INSERT INTO deadman.journal AS g (id, resubmitted_as) SELECT o.id, u.id FROM o CROSS JOIN u
     ON CONFLICT (id) DO UPDATE SET resubmitted_as = EXCLUDED.resubmitted_as
   ),
   ${tallies(`SELECT route, ${state.pending} AS state, 1 AS n FROM u`)},
   ${wakes(wake, `SELECT 'r' AS kind FROM u`)}
   SELECT o.state, (SELECT count(*)::int FROM n) AS woken FROM o`

type Controls = Pick<JobStore["Service"], "cancel" | "retry" | "resubmit">

export const make = (db: Db, options: StoreOptions, { get }: Pick<JobStore["Service"], "get">): Controls => {
  const statements = {
    cancel: cancelSql(options.wake),
    retry: retrySql(options.wake),
    resubmit: resubmitSql(options.wake)
  }

  /** A row that is locked is locked for a moment only: settles and heartbeats hold none for longer. */
  const patiently = <Row extends object>(text: string, params: ReadonlyArray<unknown>) =>
    db.query<Row>("read", text, params).pipe(
      Effect.retry({
        times: 2,
        while: (error: DatabaseFailed) => error.kind === "locked" || error.kind === "deadlock"
      })
    )

  const gone = (operation: string) =>
    new JobStoreUnavailable({ operation, cause: new Error("the job kept moving on: ask again") })

  const read = Effect.fnUntraced(function*(operation: string, id: JobId) {
    const [job] = yield* get([id])
    return job ?? (yield* gone(operation))
  })

  const cancelOnce = Effect.fnUntraced(function*(id: JobId): Effect.fn.Return<
    Cancelled | undefined,
    JobStoreUnavailable
  > {
    const [row] = yield* patiently<CancelRow>(statements.cancel, [id]).pipe(orUnavailable("cancel"))
    if (row === undefined) {
      return { _tag: "NotFound" }
    }
    if (row.done) {
      const job = yield* read("cancel", id)
      const cutOff = row.lease === null ? null : { lease: row.lease as LeaseId, epoch: row.epoch }
      return { _tag: "Cancelled", job, cutOff }
    }
    return row.state === state.completed || row.state === state.dead
      ? { _tag: "Refused", state: jobStates[row.state]! }
      : undefined
  })

  const cancel: Controls["cancel"] = Effect.fn("JobStorePostgres.cancel")((id) =>
    Rounds.untilAnswered(cancelOnce(id), () => gone("cancel"))
  )

  const retry: Controls["retry"] = Effect.fn("JobStorePostgres.retry")(function*(id) {
    const [row] = yield* patiently<CancelRow>(statements.retry, [id]).pipe(orUnavailable("retry"))
    if (row === undefined) {
      return { _tag: "NotFound" } satisfies Rebooked
    }
    if (!row.done) {
      return { _tag: "Refused", state: jobStates[row.state]! } satisfies Rebooked
    }
    return { _tag: "Rebooked", job: yield* read("retry", id) } satisfies Rebooked
  })

  const resubmit: Controls["resubmit"] = Effect.fn("JobStorePostgres.resubmit")(function*(id, as) {
    const [row] = yield* patiently<CancelRow>(statements.resubmit, [id, as]).pipe(orUnavailable("resubmit"))
    // Asked again under the same id, it answers the same, also where the source is gone by now.
    const [job] = yield* get([as])
    if (job?.resubmittedFrom === id) {
      return { _tag: "Created", job } satisfies Resubmitted
    }
    return row === undefined
      ? { _tag: "NotFound" } satisfies Resubmitted
      : { _tag: "Refused", state: jobStates[row.state]! } satisfies Resubmitted
  })

  return { cancel, retry, resubmit }
}
