import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import * as Backoff from "../../../src/domain/Backoff.ts"
import type { NewJob } from "../../../src/domain/Job.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const layer = Layer.provideMerge(JobStorePostgres.layer({ wake: true, keyTtlMs: 0 }), Postgres.layer)

const stepMs = 60_000
const hourMs = 3_600_000

it.layer(layer, { excludeTestServices: true })("JobStorePostgres: a flush of many kinds", (it) => {
  it.effect("is stored as it was said, whether its routes were there or not, all at once or not", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const nowMs = yield* store.now
      const types = [yield* Jobs.freshType, yield* Jobs.freshType, yield* Jobs.freshType]
      const queues = [yield* Jobs.freshQueue, yield* Jobs.freshQueue]
      const resubmittedFrom = yield* Jobs.freshId
      // Of what most jobs do not have, each in one flush that has it nowhere and in one that has it here and there.
      const changes: ReadonlyArray<Partial<NewJob>> = [
        {},
        { priority: 7 },
        { maxAttempts: 3 },
        { timeoutMs: 1_500 },
        { backoff: Backoff.Backoff.make({ kind: "fixed", delay_ms: 5 }) },
        { tags: ["a \"b\"", "c\\d", "{e,f}"] },
        { resubmittedFrom },
        { payload: `{"wörter":"€ 😀"}` },
        { runAtMs: nowMs + hourMs, priority: 2 },
        { runAtMs: nowMs - hourMs, priority: -1 },
        { delayMs: hourMs, priority: 3 }
      ]
      const flush = (whole: ReadonlyArray<Partial<NewJob>>, kinds: number) =>
        Effect.forEach(
          whole,
          (change, at) => Jobs.job({ type: types[at % kinds]!, queue: queues[at % Math.min(2, kinds)]!, ...change })
        )
      const sent: Array<NewJob> = []
      for (
        const [jobs, atomic] of [
          [yield* flush([{}, {}], 1), false],
          [yield* flush(changes, 3), false],
          [yield* flush(changes, 3), true],
          ...(yield* Effect.forEach(
            changes,
            (change) => Effect.map(flush([change, {}], 2), (jobs) => [jobs, false] as const)
          ))
        ] as const
      ) {
        const { answers } = yield* store.submit(jobs, { atomic })
        assert.deepStrictEqual(answers.map(({ _tag }) => _tag), jobs.map(() => "Created"))
        sent.push(...jobs)
      }
      const rows = yield* Rows.query(
        `SELECT j.id, r.type, r.queue, b.payload::text AS payload, j.bytes, j.priority, b.max_attempts, b.timeout_ms,
                b.backoff, b.tags, b.resubmitted_from, b.created_at_ms::float8 AS created, j.run_at_ms::float8 AS due,
                j.rank::float8 AS rank, j.wait_ms::float8 AS wait, j.state
         FROM deadman.job j JOIN deadman.body b ON b.id = j.id JOIN deadman.route r ON r.id = j.route
         WHERE r.type = ANY ($1::text[])`,
        [types]
      )
      const byId = new Map(rows.map((row) => [row["id"], row]))
      assert.strictEqual(rows.length, sent.length)
      for (const job of sent) {
        const row = byId.get(job.id)!
        const created = Number(row["created"])
        const due = job.delayMs === undefined ? Math.max(created, job.runAtMs ?? 0) : created + job.delayMs
        const waits = due > created
        assert.deepStrictEqual(row, {
          id: job.id,
          type: job.type,
          queue: job.queue,
          payload: job.payload === "null" ? "null" : `{"wörter": "€ 😀"}`,
          bytes: Buffer.byteLength(job.payload),
          priority: job.priority,
          max_attempts: job.maxAttempts,
          timeout_ms: job.timeoutMs,
          backoff: job.backoff.kind === "fixed" ? job.backoff : null,
          tags: job.tags.length === 0 ? null : job.tags,
          resubmitted_from: job.resubmittedFrom,
          created,
          due,
          rank: waits ? null : created - job.priority * stepMs,
          wait: waits ? due : null,
          state: 0
        })
      }
      const counts = yield* Rows.query(
        `SELECT r.type, r.queue, sum(t.n)::int AS n FROM deadman.tally t JOIN deadman.route r ON r.id = t.route
         WHERE r.type = ANY ($1::text[]) AND t.state = 0 GROUP BY 1, 2`,
        [types]
      )
      const counted = new Map(counts.map((row) => [`${String(row["type"])} ${String(row["queue"])}`, row["n"]]))
      for (const { queue, type } of sent) {
        assert.strictEqual(
          counted.get(`${type} ${queue}`),
          sent.filter((job) => job.type === type && job.queue === queue).length
        )
      }
    }))
})

it.layer(Postgres.layer, { excludeTestServices: true })("JobStorePostgres: delays", (it) => {
  it.effect("only what has one is stored by statements that look for them", () =>
    Effect.gen(function*() {
      const texts: Array<string> = []
      const watched = Layer.effect(
        Database.Database,
        Effect.map(Database.Database, (database) =>
          Database.Database.of({
            ...database,
            query: (lane, text, params, options) => {
              texts.push(text)
              return database.query(lane, text, params, options)
            }
          }))
      )
      yield* Effect.gen(function*() {
        const store = yield* JobStore
        const key = Effect.map(Jobs.freshKey, (key) => ({ key: { key, fingerprint: "f" } }))
        const kinds = Effect.all([
          Effect.succeed({}),
          Effect.succeed({ priority: 1 }),
          Effect.succeed({ runAtMs: 1 }),
          key
        ])
        /** How many of the statements look for delays, of how many that store. */
        const looking = Effect.fnUntraced(function*(own: Partial<NewJob>) {
          texts.length = 0
          for (const kind of yield* kinds) {
            yield* store.submit([yield* Jobs.job({ ...kind, ...own }), yield* Jobs.job({ priority: 1 })], {
              atomic: false
            })
          }
          const stores = texts.filter((text) => text.includes("INSERT INTO deadman.body"))
          assert.isAtLeast(stores.length, 5)
          return stores.filter((text) => text.includes("s.due")).length
        })
        assert.strictEqual(yield* looking({}), 0)
        assert.isAtLeast(yield* looking({ runAtMs: null, delayMs: hourMs }), 4)
      }).pipe(
        Effect.provide(Layer.provide(JobStorePostgres.layer({ wake: true, keyTtlMs: 0 }), watched))
      )
    }))
})
