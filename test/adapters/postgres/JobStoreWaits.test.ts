/** What somebody else locks that is nobody's key: the route of a new type, and whole tables. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import * as DelayedJobsMemory from "../../../src/adapters/memory/DelayedJobsMemory.ts"
import * as TransportMemory from "../../../src/adapters/memory/TransportMemory.ts"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import type { JobType, NewJob } from "../../../src/domain/Job.ts"
import { JobStore, type Submitted } from "../../../src/ports/JobStore.ts"
import { Submitter } from "../../../src/ports/Submitter.ts"
import * as GroupCommit from "../../../src/programs/submit/GroupCommit.ts"
import { submittedAll } from "../../contracts/JobStoreContractSteps.ts"
import * as AnotherProcess from "../../support/AnotherProcess.ts"
import * as Backends from "../../support/Backends.ts"
import { eventually } from "../../support/Eventually.ts"
import { during } from "../../support/ForeignSession.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const storeLayer = JobStorePostgres.layer({ wake: false, keyTtlMs: 60_000 })
const submitterLayer = GroupCommit.layer.pipe(
  Layer.provide([TransportMemory.layer, DelayedJobsMemory.layer]),
  Layer.provideMerge(storeLayer)
)

const anotherProcess = AnotherProcess.make(storeLayer)

const tags = (answers: ReadonlyArray<Submitted>) => answers.map(({ _tag }) => _tag)

/** While somebody has submitted the first job of `type` from SQL, and neither commits nor goes away. */
const whileNew = <A, E, R>(type: JobType, use: Effect.Effect<A, E, R>) =>
  during(`SELECT deadman.submit($1::text, '"first"')`, [type], use)

const unique = { fields: null, window_ms: null, states: ["pending"], on_conflict: "skip" } as const

const keyed = (type: JobType) =>
  Effect.flatMap(Jobs.freshKey, (key) => Jobs.job({ type, key: { key, fingerprint: "same" } }))

/** A job of each way of being stored. */
const ofEachKind = (type: JobType) =>
  Effect.all([
    Jobs.job({ type }),
    Jobs.job({ type, priority: 3 }),
    Jobs.job({ type, retainMs: 3_600_000 }),
    keyed(type),
    Jobs.job({ type, unique })
  ])

const stored = (jobs: ReadonlyArray<NewJob>) =>
  Effect.map(
    Rows.query(`SELECT count(*)::int AS n FROM deadman.job WHERE id = ANY ($1::uuid[])`, [
      Database.uuids(jobs.map(({ id }) => id))
    ]),
    ([row]) => row?.["n"]
  )

const ofType = (type: JobType) =>
  Effect.map(
    Rows.query(
      `SELECT count(*)::int AS n FROM deadman.job j JOIN deadman.route r ON r.id = j.route WHERE r.type = $1::text`,
      [type]
    ),
    ([row]) => row?.["n"]
  )

it.layer(Layer.provideMerge(submitterLayer, Postgres.layer), { excludeTestServices: true })(
  "JobStorePostgres: what is locked and is nobody's key",
  (it) => {
    it.effect("a type that is new in an open transaction is undecided, and nobody of another waits for it", () =>
      Effect.gen(function*() {
        const { failures, submit } = yield* anotherProcess
        const [known] = yield* submittedAll(1)
        const type = yield* Jobs.freshType
        const held = yield* ofEachKind(type)
        const free = yield* ofEachKind(known!.type)
        const fresh = yield* Jobs.jobs(20)
        const many = yield* Jobs.jobs(200, { type })
        const plain = [yield* Jobs.job({ type }), ...yield* Jobs.jobs(20), yield* Jobs.job({ type })]
        yield* whileNew(
          type,
          Effect.gen(function*() {
            assert.deepStrictEqual(new Set(tags(yield* submit(many))), new Set(["Undecided"]))
            assert.lengthOf(failures, 1, "one wait tells of all of a route")
            const flush = [...held, ...free, ...fresh]
            assert.deepStrictEqual(
              tags(yield* submit(flush)),
              flush.map((job) => job.type === type ? "Undecided" : "Created")
            )
            const before = failures.length
            assert.deepStrictEqual(
              tags(yield* submit(plain)),
              plain.map((job) => job.type === type ? "Undecided" : "Created")
            )
            assert.strictEqual(failures.length - before, 1, "what waits for it is asked for apart")
            assert.strictEqual(yield* stored([...held, ...plain]), 20)
          })
        )
        const again = [...held, ...plain, ...free, ...many]
        assert.deepStrictEqual(tags(yield* submit(again)), again.map(() => "Created"))
        assert.strictEqual(yield* stored(again), again.length)
        assert.deepStrictEqual(yield* Rows.untallied, [])
      }))

    it.effect("many types that are new cost a flush a second of waiting, and none of the others its answer", () =>
      Effect.gen(function*() {
        const { failures, submit } = yield* anotherProcess
        const [known] = yield* submittedAll(1)
        const types = yield* Effect.forEach(Array.from({ length: 100 }), () => Jobs.freshType)
        const held = yield* Effect.forEach(types, (type) => Jobs.job({ type }))
        const flush = [...held, ...yield* Jobs.jobs(20, { type: known!.type }), ...yield* ofEachKind(known!.type)]
        yield* during(
          `SELECT deadman.submit(t, '1') FROM unnest(string_to_array($1, ',')) t`,
          [types.join(",")],
          Effect.gen(function*() {
            assert.deepStrictEqual(
              tags(yield* submit(flush)),
              flush.map(({ type }) => type === known!.type ? "Created" : "Undecided")
            )
            // One wait of 250 ms and others of 25, up to a second.
            assert.isAtMost(failures.length, 1 + 30)
          })
        )
        assert.deepStrictEqual(new Set(tags(yield* submit(flush))), new Set(["Created"]))
      }))

    it.effect("a key that is held is told from a type that is new, also where both are", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const [known] = yield* submittedAll(1)
        const type = yield* Jobs.freshType
        const key = yield* Jobs.freshKey
        const flush = [
          yield* Jobs.job({ type: known!.type, key: { key, fingerprint: "f" } }),
          yield* Jobs.job({ type, payload: "2", unique }),
          yield* Jobs.job({ type }),
          yield* keyed(type)
        ]
        yield* during(
          `SELECT deadman.submit($1::text, '1', jsonb_build_object('idempotency_key', $2::text, 'unique', '{}'::jsonb))`,
          [type, key],
          Effect.gen(function*() {
            const { answers } = yield* store.submit(flush, { atomic: false })
            assert.deepStrictEqual(tags(answers), ["KeyLocked", "Undecided", "Undecided", "Undecided"])
            const place = yield* store.submit([yield* Jobs.job({ type, payload: "1", unique })], { atomic: false })
            assert.deepStrictEqual(tags(place.answers), ["KeyLocked"])
            const batch = yield* store.submit(flush.slice(0, 1), { atomic: true })
            assert.deepStrictEqual(tags(batch.answers), ["KeyLocked"])
            const failed = yield* Effect.flip(store.submit(flush.slice(1), { atomic: true }))
            assert.strictEqual(failed._tag, "JobStoreUnavailable")
          })
        )
        const { answers } = yield* store.submit(flush.slice(1), { atomic: true })
        assert.deepStrictEqual(tags(answers), ["Created", "Created", "Created"])
      }))

    it.effect("a table that is locked is nobody's key, and costs a flush no more than one wait a lane", () =>
      Effect.gen(function*() {
        const { failures, submit } = yield* anotherProcess
        const type = yield* Jobs.freshType
        const kinds = yield* Effect.forEach(Array.from({ length: 50 }), () => ofEachKind(type))
        const flush = kinds.flat().filter((job, index) => job.unique === undefined || index < 5)
        yield* submit(yield* Jobs.jobs(1, { type }))
        for (const table of ["job", "body", "tally"]) {
          const before = failures.length
          const answers = yield* during(`LOCK TABLE deadman.${table}`, [], submit(flush))
          assert.deepStrictEqual(new Set(tags(answers)), new Set(["Undecided"]))
          // Plain, keyed, and those with terms: with a place and without.
          assert.isAtMost(failures.length - before, 5)
        }
        const store = yield* JobStore
        const batch = store.submit(flush.slice(0, 4), { atomic: true })
        const failed = yield* during(`LOCK TABLE deadman.job`, [], Effect.flip(batch))
        assert.strictEqual(failed._tag, "JobStoreUnavailable")
        const answers = yield* during(`LOCK TABLE deadman.key, deadman.uniqueness`, [], submit(flush))
        assert.deepStrictEqual(
          tags(answers),
          flush.map((job) => job.key === null && (job.unique ?? null) === null ? "Created" : "Undecided")
        )
        assert.deepStrictEqual(new Set(tags(yield* submit(flush))), new Set(["Created"]))
        assert.strictEqual(yield* stored(flush), flush.length)
      }))

    it.effect("where the routes are locked, types that are new wait, and those that are known only if none can be read", () =>
      Effect.gen(function*() {
        const { failures, submit } = yield* anotherProcess
        const [known] = yield* submittedAll(1)
        const fresh = yield* Jobs.freshType
        const flush = [...yield* ofEachKind(known!.type), ...yield* ofEachKind(fresh)]
        const readable = yield* during(`LOCK TABLE deadman.route IN EXCLUSIVE MODE`, [], submit(flush))
        assert.deepStrictEqual(
          tags(readable),
          flush.map(({ type }) => type === known!.type ? "Created" : "Undecided")
        )
        const asked = failures.length
        const beside = [...yield* ofEachKind(known!.type), ...yield* ofEachKind(yield* Jobs.freshType)]
        const untold = yield* during(`LOCK TABLE deadman.tally`, [], submit(beside))
        assert.deepStrictEqual(new Set(tags(untold)), new Set(["Undecided"]))
        assert.isAtMost(failures.length - asked, 10, "where it is another table, none of a new type is asked for apart")
        const [second] = yield* submittedAll(1)
        const others = [...yield* ofEachKind(second!.type), ...yield* ofEachKind(yield* Jobs.freshType)]
        const before = failures.length
        const locked = yield* during(`LOCK TABLE deadman.route IN ACCESS EXCLUSIVE MODE`, [], submit(others))
        assert.deepStrictEqual(new Set(tags(locked)), new Set(["Undecided"]))
        assert.isAtMost(failures.length - before, 8, "nobody is asked for one by one")
        const all = [...flush, ...others]
        assert.deepStrictEqual(new Set(tags(yield* submit(all))), new Set(["Created"]))
        assert.strictEqual(yield* stored(all), all.length)
        assert.deepStrictEqual(yield* Rows.untallied, [])
      }))

    it.effect("where the routes are locked, many new types in front of a known one do not hold it up", () =>
      Effect.gen(function*() {
        const { submit } = yield* anotherProcess
        const [known] = yield* submittedAll(1)
        const retained = (type: JobType) => Effect.map(Jobs.job({ type }), (job) => ({ ...job, retainMs: 3_600_000 }))
        const fresh = yield* Effect.forEach(
          Array.from({ length: 150 }),
          () => Effect.flatMap(Jobs.freshType, retained)
        )
        const others = yield* Effect.forEach(Array.from({ length: 3 }), () => retained(known!.type))
        const flush = [...fresh, ...others]
        const answers = yield* during(`LOCK TABLE deadman.route IN EXCLUSIVE MODE`, [], submit(flush))
        assert.deepStrictEqual(tags(answers), [...fresh.map(() => "Undecided"), ...others.map(() => "Created")])
        assert.deepStrictEqual(new Set(tags(yield* submit(flush))), new Set(["Created"]))
        assert.strictEqual(yield* stored(flush), flush.length)
      }))

    it.effect("a place that is held costs a flush with many keys a second of waiting, and the rest is stored", () =>
      Effect.gen(function*() {
        const { failures, submit } = yield* anotherProcess
        const [known] = yield* submittedAll(1)
        const type = known!.type
        const wanting = yield* Effect.forEach(
          Array.from({ length: 200 }),
          () => Effect.map(keyed(type), (job) => ({ ...job, payload: "1", unique }))
        )
        const plain = yield* Jobs.jobs(10, { type })
        yield* during(
          `SELECT deadman.submit($1::text, '1', '{"unique": {}}')`,
          [type],
          Effect.gen(function*() {
            assert.deepStrictEqual(tags(yield* submit(wanting.slice(0, 1))), ["KeyLocked"])
            const before = failures.length
            const answers = tags(yield* submit([...wanting, ...plain]))
            assert.deepStrictEqual(answers.slice(wanting.length), plain.map(() => "Created"))
            assert.isFalse(answers.slice(0, wanting.length).includes("Created"))
            assert.isAtMost(failures.length - before, 41)
          })
        )
      }))

    it.effect("a locked table holds up those of a flush that need it, and none behind them", () =>
      Effect.gen(function*() {
        const { submit } = yield* anotherProcess
        const [known] = yield* submittedAll(1)
        const type = known!.type
        const needing = yield* Effect.forEach(
          Array.from({ length: 120 }, (_, n) => n),
          (n) => Jobs.job({ type, payload: String(n), unique })
        )
        const others = yield* Effect.forEach(
          Array.from({ length: 3 }),
          () => Effect.map(keyed(type), (job) => ({ ...job, retainMs: 3_600_000 }))
        )
        const answers = yield* during(`LOCK TABLE deadman.uniqueness`, [], submit([...needing, ...others]))
        assert.deepStrictEqual(
          tags(answers),
          [...needing.map(() => "Undecided"), ...others.map(() => "Created")]
        )
      }))

    it.effect("whoever waits for a new type is answered when it is there, and the others before", () =>
      Effect.gen(function*() {
        const { submit, submitAll } = yield* Submitter
        const type = yield* Jobs.freshType
        const drafts = (yield* ofEachKind(type)).map(({ id: _, ...draft }) => draft)
        const [waiting, batch] = yield* whileNew(
          type,
          Effect.gen(function*() {
            const waiting = yield* Effect.forkChild(Effect.forEach(drafts, submit, { concurrency: "unbounded" }))
            const batch = yield* Effect.forkChild(submitAll(drafts.slice(0, 2)))
            yield* eventually("it waits", Effect.map(Backends.counted(`wait_event_type = 'Lock'`), (n) => n > 0))
            const others = yield* Effect.forEach(
              yield* Jobs.jobs(20),
              ({ id: _, ...draft }) => submit(draft),
              { concurrency: "unbounded" }
            )
            assert.deepStrictEqual(new Set(others.map(({ _tag }) => _tag)), new Set(["Created"]))
            assert.isUndefined(waiting.pollUnsafe())
            return [waiting, batch]
          })
        )
        const answers = [yield* Fiber.join(waiting!), yield* Fiber.join(batch!)].flat()
        assert.deepStrictEqual(answers.map(({ _tag }) => _tag), Array.from({ length: 7 }, () => "Created"))
        assert.strictEqual(yield* ofType(type), 8)
      }))

    it.effect("submits outlive a table that is locked for a moment, each stored once", () =>
      Effect.gen(function*() {
        const { submit, submitAll } = yield* Submitter
        const type = yield* Jobs.freshType
        const drafts = (yield* ofEachKind(type)).map(({ id: _, ...draft }) => draft)
        const locked = yield* Effect.forkChild(Effect.andThen(
          Database.Database,
          (database) =>
            database.transaction("handler", (session) =>
              Effect.andThen(session.query(`LOCK TABLE deadman.job`), session.query(`SELECT pg_sleep(0.6)`)))
        ))
        yield* eventually(
          "it is locked",
          Effect.map(Backends.counted(`wait_event = 'PgSleep'`), (n) =>
            n > 0)
        )
        const answers = yield* Effect.all([
          Effect.forEach(drafts, submit, { concurrency: "unbounded" }),
          submitAll(drafts.slice(0, 3))
        ], { concurrency: "unbounded" })
        assert.deepStrictEqual(answers.flat().map(({ _tag }) => _tag), Array.from({ length: 8 }, () => "Created"))
        yield* Fiber.join(locked)
        assert.strictEqual(yield* ofType(type), 8)
      }))
  }
)
