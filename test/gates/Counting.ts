/**
 * The product at load, with everything it says to its servers counted: for bounds that need no clock.
 *
 * The Postgres is a server of its own, so that its counters are the test's, and writes no page images, whose number
 * would depend on when it last made a checkpoint.
 */
import { Clock, Context, Effect, Layer, type Redacted } from "effect"
import * as Database from "../../src/adapters/postgres/Database.ts"
import * as DelayedJobsPostgres from "../../src/adapters/postgres/DelayedJobsPostgres.ts"
import * as JobStorePostgres from "../../src/adapters/postgres/JobStorePostgres.ts"
import * as LeaseRegisterPostgres from "../../src/adapters/postgres/LeaseRegisterPostgres.ts"
import * as Migrations from "../../src/adapters/postgres/Migrations.ts"
import * as QueuesPostgres from "../../src/adapters/postgres/QueuesPostgres.ts"
import * as SessionsPostgres from "../../src/adapters/postgres/SessionsPostgres.ts"
import * as TransportPostgres from "../../src/adapters/postgres/TransportPostgres.ts"
import { JobType } from "../../src/domain/Job.ts"
import { JobStore } from "../../src/ports/JobStore.ts"
import { type JobDraft, Submitter } from "../../src/ports/Submitter.ts"
import * as Loops from "../../src/programs/process/Loops.ts"
import * as GroupCommit from "../../src/programs/submit/GroupCommit.ts"
import type { Handler } from "../../src/programs/worker/HandlerApi.ts"
import * as Handlers from "../../src/programs/worker/Handlers.ts"
import * as WorkerConfig from "../../src/programs/worker/WorkerConfig.ts"
import * as WorkerPool from "../../src/programs/worker/WorkerPool.ts"
import { eventually } from "../support/Eventually.ts"
import * as Jobs from "../support/Jobs.ts"
import * as PostgresServer from "../support/PostgresServer.ts"

/** Statements sent, by what they do. */
export interface Counts {
  submit: number
  claim: number
  settle: number
  other: number
}

export class Counter extends Context.Service<Counter, Counts>()("deadman/test/gates/Counting/Counter") {}

export class Url extends Context.Service<Url, Redacted.Redacted>()("deadman/test/gates/Counting/Url") {}

const kindOf = (text: string): keyof Counts =>
  /INSERT INTO deadman\.job /.test(text)
    ? "submit"
    : /INSERT INTO deadman\.lease /.test(text)
    ? "claim"
    : /UPDATE deadman\.job j\s+SET state\s+= (3|x\.state)/.test(text)
    ? "settle"
    : "other"

/** The adapter's connections, each statement counted, inside transactions too. */
const counted = Layer.effectContext(Effect.gen(function*() {
  const counts: Counts = { submit: 0, claim: 0, settle: 0, other: 0 }
  const database = yield* Database.Database
  return Context.make(Counter, counts).pipe(
    Context.add(
      Database.Database,
      Database.Database.of({
        ...database,
        query: (lane, text, params, options) => {
          counts[kindOf(text)] += 1
          return database.query(lane, text, params, options)
        },
        transaction: (lane, body, options) => {
          counts.other += 2
          return database.transaction(lane, (session) =>
            body({
              query: (text, params) => {
                counts[kindOf(text)] += 1
                return session.query(text, params)
              }
            }), options)
        }
      })
    )
  )
}))

export const layer: Layer.Layer<Counter | Url | Database.Database> = Layer.unwrap(Effect.gen(function*() {
  const { url } = yield* PostgresServer.start({ settings: { full_page_writes: "off", autovacuum: "off" } })
  yield* Migrations.migrate(url)
  return Layer.provide(counted, Database.layer({ url })).pipe(Layer.merge(Layer.succeed(Url, url)))
})).pipe(Layer.orDie)

/** Transport and leases in Postgres; a gate of another profile puts its own in their place. */
export const postgresPorts = Layer.mergeAll(
  LeaseRegisterPostgres.layer,
  DelayedJobsPostgres.layer,
  TransportPostgres.layer
)

export const ports = (options: { readonly queued: boolean } = { queued: false }) =>
  Layer.mergeAll(
    JobStorePostgres.layer({ wake: true, queued: options.queued, keyTtlMs: 60_000 }),
    SessionsPostgres.layer,
    QueuesPostgres.layer({ wake: true }),
    Loops.layer
  )

const type = JobType.make("gate")

export const draft = (n: number): JobDraft =>
  Jobs.draft({
    type,
    payload: JSON.stringify({ id: n, to: `user${n}@example.com`, kind: "noop", note: "x".repeat(40) })
  })

/** So many submitters, each of so many jobs, one after the other. */
export const submit = (submitters: number, each: number) =>
  Effect.gen(function*() {
    const submitter = yield* Submitter
    yield* Effect.forEach(
      Array.from({ length: submitters }, (_, n) => n),
      (n) => Effect.forEach(Array.from({ length: each }), () => submitter.submit(draft(n)), { discard: true }),
      { concurrency: "unbounded", discard: true }
    )
    return submitters * each
  }).pipe(Effect.provide(GroupCommit.layer))

/** One batch, all or nothing. */
export const submitAll = (size: number) =>
  Effect.gen(function*() {
    const submitter = yield* Submitter
    yield* submitter.submitAll(Array.from({ length: size }, (_, n) => draft(n)))
  }).pipe(Effect.provide(GroupCommit.layer))

/** A worker, with its defaults unless told otherwise, until the store has nothing left. */
export const work = (
  handler: Handler = () => Promise.resolve(),
  config: Partial<WorkerConfig.WorkerConfig["Service"]> = {}
) =>
  Effect.gen(function*() {
    const store = yield* JobStore
    const pool = WorkerPool.layer.pipe(
      Layer.provide(Handlers.layer({ [type]: handler })),
      Layer.provide(WorkerConfig.layer({ name: "worker-0123456789abcdef", ...config }))
    )
    yield* eventually(
      "the backlog is worked off",
      Effect.map(store.counts, ({ byState }) => byState.pending + byState.running + byState.failed === 0),
      "60 seconds"
    ).pipe(Effect.provide(pool))
  })

/** What a worker sends that has worked off everything, in so many seconds or however long that was on this machine. */
export const idle = (seconds: number) =>
  Effect.gen(function*() {
    const counter = yield* Counter
    const store = yield* JobStore
    const pool = WorkerPool.layer.pipe(
      Layer.provide(Handlers.layer({ [type]: () => undefined })),
      Layer.provide(WorkerConfig.layer({ name: "worker-0123456789abcdef" }))
    )
    return yield* Effect.gen(function*() {
      yield* eventually(
        "the backlog is worked off",
        Effect.map(store.counts, ({ byState }) => byState.pending + byState.running + byState.failed === 0)
      )
      // Its ending is told with the next look.
      yield* Effect.sleep("2 seconds")
      const before = { ...counter }
      const fromMs = yield* Clock.currentTimeMillis
      yield* Effect.sleep(`${seconds} seconds`)
      return {
        seconds: ((yield* Clock.currentTimeMillis) - fromMs) / 1_000,
        submit: counter.submit - before.submit,
        claim: counter.claim - before.claim,
        settle: counter.settle - before.settle,
        other: counter.other - before.other
      }
    }).pipe(Effect.provide(pool))
  })

/** Transactions that wrote, and bytes of WAL, so far. */
export const written = Effect.gen(function*() {
  const database = yield* Database.Database
  const [row] = yield* database.query<{ commits: number; wal: number }>(
    "read",
    `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::float8 AS commits,
            (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8 AS wal`
  )
  return { commits: row?.commits ?? Number.NaN, wal: row?.wal ?? Number.NaN }
})
