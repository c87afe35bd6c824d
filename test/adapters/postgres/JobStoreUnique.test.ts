/** Unique jobs where processes race, and sessions die: what one statement at a time cannot show. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import type { NewJob } from "../../../src/domain/Job.ts"
import type { Unique } from "../../../src/domain/Unique.ts"
import { JobStore, type Submitted } from "../../../src/ports/JobStore.ts"
import * as AnotherProcess from "../../support/AnotherProcess.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const storeLayer = JobStorePostgres.layer({ wake: true, keyTtlMs: 60_000 })

const once: Unique = { fields: null, window_ms: null, states: ["pending", "running", "failed"], on_conflict: "skip" }
const replacing: Unique = { ...once, on_conflict: "replace" }

const anotherProcess = AnotherProcess.make(storeLayer)

const live = (type: string) =>
  Effect.map(
    Rows.query(
      `SELECT b.payload::text AS payload, count(*)::int AS n
       FROM deadman.job j JOIN deadman.body b USING (id) JOIN deadman.route r ON r.id = j.route
       WHERE r.type = $1::text AND j.state IN (0, 1, 2) GROUP BY 1`,
      [type]
    ),
    (rows) => rows.map((row) => Number(row["n"]))
  )

it.layer(Layer.provideMerge(storeLayer, Postgres.layer), { excludeTestServices: true, timeout: "2 minutes" })(
  "JobStorePostgres: unique jobs",
  (it) => {
    it.effect("two processes with the same places in opposite order make one job a place, and never deadlock", () =>
      Effect.gen(function*() {
        const [left, right] = [yield* anotherProcess, yield* anotherProcess]
        for (let round = 0; round < 10; round++) {
          const type = yield* Jobs.freshType
          const places = Array.from({ length: 100 }, (_, n) => String(n))
          const unique = round % 2 === 0 ? once : replacing
          const jobs = (order: ReadonlyArray<string>) =>
            Effect.forEach(order, (payload) => Jobs.job({ type, payload, unique }))
          const [first, second] = yield* Effect.all([
            Effect.flatMap(jobs(places), left.submit),
            Effect.flatMap(jobs(places.toReversed()), right.submit)
          ], { concurrency: 2 })
          const tags = new Set([...first, ...second].map(({ _tag }) => _tag))
          assert.isTrue([...tags].every((tag) => tag === "Created" || tag === "Skipped"), [...tags].join())
          assert.deepStrictEqual(yield* live(type), places.map(() => 1))
        }
        // On a busy machine one may wait too long for the other's places, and asks for halves; never in a circle.
        const others = [...left.failures, ...right.failures].filter((failure) => !failure.startsWith("locked"))
        assert.deepStrictEqual(others, [])
        assert.deepStrictEqual(yield* Rows.untallied, [])
      }))

    it.effect("a place that an open transaction holds is asked for apart, and slows the next flush no more", () =>
      Effect.gen(function*() {
        const database = yield* Database.Database
        const { failures, submit } = yield* anotherProcess
        const type = yield* Jobs.freshType
        const unique = { ...once, fields: ["id"] }
        const place = (id: number, extra = 0) => Jobs.job({ type, payload: JSON.stringify({ extra, id }), unique })
        const keyed = Effect.flatMap(Jobs.freshKey, (key) => Jobs.job({ type, key: { key, fingerprint: "same" } }))
        const [begun, done] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
        const foreign = yield* Effect.forkChild(database.transaction(
          "handler",
          (session) =>
            session.query(
              `INSERT INTO deadman.uniqueness (key, job, until_ms)
               VALUES (deadman.unique_key($1::text, '{"id":1}', '["id"]'), gen_random_uuid(), NULL)`,
              [type]
            ).pipe(Effect.andThen(Deferred.succeed(begun, undefined)), Effect.andThen(Deferred.await(done))),
          { deadlineMs: 20_000 }
        ))
        yield* Deferred.await(begun)
        const tags = (answers: ReadonlyArray<Submitted>) => answers.map(({ _tag }) => _tag)
        assert.deepStrictEqual(tags(yield* submit([yield* place(1), yield* place(2)])), ["KeyLocked", "Created"])
        const before = failures.length
        const next = [yield* place(1, 1), yield* keyed, yield* place(1, 2), yield* place(3), yield* keyed]
        assert.deepStrictEqual(tags(yield* submit(next)), ["KeyLocked", "Created", "KeyLocked", "Created", "Created"])
        assert.strictEqual(failures.length - before, 1, "one short question tells of both")
        yield* Deferred.succeed(done, undefined)
        yield* Fiber.join(foreign)
        // The foreign one named no job that exists.
        assert.deepStrictEqual(tags(yield* submit([yield* place(1, 3), yield* place(1, 4)])), ["Created", "Skipped"])
      }))

    it.effect("with sessions killed at random each answer names a job that is there, and one a place is left", () =>
      Effect.gen(function*() {
        const store = yield* JobStore
        const { submit } = yield* anotherProcess
        const type = yield* Jobs.freshType
        const killer = yield* Effect.forkChild(Effect.forever(Effect.andThen(
          Effect.ignore(Rows.query(
            `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.4`
          )),
          Effect.sleep("15 millis")
        )))
        // Asked again under the same id until it is known, as the group commit does.
        const persist = (job: NewJob) =>
          submit([job]).pipe(
            Effect.map((answers) => answers[0]!),
            Effect.filterOrFail(({ _tag }) => _tag !== "KeyLocked"),
            Effect.retry({ times: 100 })
          )
        const answers = yield* Effect.forEach(
          Array.from({ length: 20 }, (_, place) => place),
          (place) =>
            Effect.forEach(
              Array.from({ length: 10 }, () => place),
              () => Effect.flatMap(Jobs.job({ type, payload: String(place), unique: once }), persist),
              { concurrency: "unbounded" }
            ),
          { concurrency: 4 }
        )
        yield* Fiber.interrupt(killer)

        for (const ofPlace of answers) {
          const ids = new Set(ofPlace.map((answer) => "id" in answer ? answer.id : answer._tag))
          assert.strictEqual(ids.size, 1)
          assert.strictEqual(ofPlace.filter(({ _tag }) => _tag === "Created").length, 1)
        }
        const named = answers.flatMap(([answer]) => answer !== undefined && "id" in answer ? [answer.id] : [])
        assert.lengthOf(yield* Effect.retry(store.get(named), { times: 5 }), 20)
        assert.deepStrictEqual(yield* Effect.retry(live(type), { times: 5 }), Array.from({ length: 20 }, () => 1))
      }))
  }
)
