import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, Queue } from "effect"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import * as QueuesPostgres from "../../../src/adapters/postgres/QueuesPostgres.ts"
import { wakeChannel } from "../../../src/adapters/postgres/store/Rows.ts"
import { Queue as QueueName } from "../../../src/domain/Job.ts"
import * as Rank from "../../../src/domain/Rank.ts"
import { Queues } from "../../../src/ports/Queues.ts"
import * as Steps from "../../contracts/JobStoreContractSteps.ts"
import * as QueuesContract from "../../contracts/QueuesContract.ts"
import * as Clock from "../../support/Clock.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Ids from "../../support/Ids.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const ports = Layer.merge(
  JobStorePostgres.layer({ wake: true, keyTtlMs: 60_000 }),
  QueuesPostgres.layer({ wake: true })
)

QueuesContract.suite("postgres", Layer.provide(ports, Postgres.layer), { pass: Clock.wait })

/** When its step was changed; `null` once all that is ready stands right. */
const stepped = (queue: string) =>
  Effect.map(
    Rows.query(`SELECT stepped_at_ms FROM deadman.queue WHERE name = $1::text`, [queue]),
    ([row]) => row?.["stepped_at_ms"] ?? null
  )

const pausedOf = (queue: string) =>
  Effect.map(
    Rows.query(`SELECT paused FROM deadman.route WHERE queue = $1::text ORDER BY id`, [queue]),
    (rows) => rows.map((row) => row["paused"])
  )

it.layer(Layer.provideMerge(ports, Postgres.layer), { excludeTestServices: true, timeout: "2 minutes" })(
  "QueuesPostgres",
  (it) => {
    it.effect("a route that is added beside a pause is born paused, whichever of the two is first", () =>
      Effect.gen(function*() {
        const database = yield* Database.Database
        const queues = yield* Queues
        for (let round = 0; round < 5; round++) {
          const queue = yield* Jobs.freshQueue
          // Somebody's transaction has added the route and stays open for a while.
          const adding = yield* Effect.forkChild(database.transaction("hot", (session) =>
            Effect.gen(function*() {
              yield* session.query(`INSERT INTO deadman.route (type, queue) VALUES ('slow', $1::text)`, [queue])
              yield* Effect.sleep(100)
            })))
          yield* Effect.sleep(round * 20)
          yield* Effect.all([
            queues.put(queue, { paused: true }),
            Effect.forEach(["a", "b", "c"], (type) => Rows.route(type, queue), { concurrency: 3 })
          ], { concurrency: 2 })
          yield* Fiber.join(adding)
          assert.deepStrictEqual(yield* pausedOf(queue), [true, true, true, true], `round ${round}`)
        }
      }))

    it.effect("a put waits for a route that an open transaction adds, fails in time, and may be repeated", () =>
      Effect.gen(function*() {
        const database = yield* Database.Database
        const queues = yield* Queues
        const queue = yield* Jobs.freshQueue
        const [added, done] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
        const adding = yield* Effect.forkChild(
          database.transaction(
            "handler",
            (session) =>
              session.query(`INSERT INTO deadman.route (type, queue) VALUES ('slow', $1::text)`, [queue]).pipe(
                Effect.andThen(Deferred.succeed(added, undefined)),
                Effect.andThen(Deferred.await(done))
              ),
            { deadlineMs: 30_000 }
          )
        )
        yield* Deferred.await(added)
        // In time: while the other one is still open.
        const failed = yield* Effect.flip(queues.put(queue, { paused: true })).pipe(Effect.timeout("5 seconds"))
        assert.strictEqual(failed._tag, "QueuesUnavailable")
        yield* Deferred.succeed(done, undefined)
        yield* Fiber.join(adding)
        assert.isTrue((yield* queues.put(queue, { paused: true })).queue.paused)
        assert.deepStrictEqual(yield* pausedOf(queue), [true])
      }))

    it.effect("a put tells the workers, of limits and of what may be claimed again", () =>
      Effect.gen(function*() {
        const database = yield* Database.Database
        const queues = yield* Queues
        const heard: Array<string> = []
        const listening = yield* database.listen(wakeChannel)
        yield* Effect.forkScoped(Effect.forever(Effect.map(
          Queue.take(listening.notifications),
          ({ payload }) => heard.push(payload)
        )))
        const { announced } = yield* queues.put(yield* Jobs.freshQueue, { concurrency: 1 })
        assert.isTrue(announced)
        yield* eventually("both wakes", Effect.sync(() => heard.includes("q") && heard.includes("r")))
      }))

    it.effect("a full claim that has passed over a queue for want of room does not hide it from the next", () =>
      Effect.gen(function*() {
        const { queue, type } = yield* Effect.all({ queue: Jobs.freshQueue, type: Jobs.freshType })
        const passed = yield* Steps.submitted({ queue, type })
        // Far below where the next claim would begin.
        yield* Rows.query(
          `UPDATE deadman.job SET rank = rank - 60000, run_at_ms = run_at_ms - 60000 WHERE id = $1::uuid`,
          [passed.id]
        )
        yield* Steps.submittedAll(10, { type })
        const take = (room: number) =>
          Effect.map(Steps.take({ type }, { limit: 3, rooms: [{ queue, room }] }), Steps.idsOf)
        assert.lengthOf(yield* take(0), 3)
        assert.lengthOf(yield* take(0), 3)
        assert.include(yield* take(1), passed.id)
      }))

    it.effect("what a statement stored that began before the put is found by a second walk", () =>
      Effect.gen(function*() {
        const queues = yield* Queues
        const queue = QueueName.make(`q-${Ids.leaseId()}`)
        const job = yield* Steps.submitted({ queue, priority: 7 })
        yield* queues.put(queue, { stepMs: Rank.stepMaxMs })
        const walk = eventually(
          "a walk is over",
          Effect.map(queues.rerank(100), ({ againInMs }) => againInMs !== 0)
        )
        yield* walk
        // As such a statement leaves it: by the step that was.
        const misplace = Rows.query(
          `UPDATE deadman.job SET rank = run_at_ms - priority * 60000 WHERE id = $1::uuid`,
          [job.id]
        )
        yield* misplace
        yield* walk
        const wrong = Rows.query(
          `SELECT 1 FROM deadman.job WHERE id = $1::uuid AND rank <> run_at_ms - priority * ${Rank.stepMaxMs}`,
          [job.id]
        )
        assert.lengthOf(yield* wrong, 1)
        // Long enough after the put for no such statement to be under way.
        yield* Rows.query(`UPDATE deadman.queue SET stepped_at_ms = stepped_at_ms - 10000 WHERE name = $1::text`, [
          queue
        ])
        // Others' tests have transactions open as well, some of them for longer.
        yield* eventually(
          "the last walk is over",
          Effect.andThen(walk, Effect.map(stepped(queue), (at) => at === null)),
          "90 seconds"
        )
        assert.lengthOf(yield* wrong, 0)
      }))

    it.effect("what a long transaction stored that began before the put is found once it is over", () =>
      Effect.gen(function*() {
        const database = yield* Database.Database
        const queues = yield* Queues
        const queue = QueueName.make(`q-${Ids.leaseId()}`)
        const job = yield* Steps.submitted({ queue, priority: 7 })
        const [begun, stores] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
        const long = yield* Effect.forkChild(database.transaction("handler", (session) =>
          Effect.gen(function*() {
            yield* session.query(`SELECT pg_current_xact_id()::text`, [])
            yield* Deferred.succeed(begun, undefined)
            yield* Deferred.await(stores)
            yield* session.query(
              `UPDATE deadman.job SET rank = run_at_ms - priority * 60000 WHERE id = $1::uuid`,
              [job.id]
            )
          }), { deadlineMs: 20_000 }))
        yield* Effect.raceFirst(Deferred.await(begun), Fiber.join(long))
        yield* queues.put(queue, { stepMs: Rank.stepMaxMs })
        const age = (ms: number) =>
          Rows.query(
            `UPDATE deadman.queue SET stepped_at_ms = stepped_at_ms - $2::float8::bigint WHERE name = $1::text`,
            [
              queue,
              ms
            ]
          )
        const walk = eventually(
          "a walk is over",
          Effect.map(queues.rerank(100), ({ againInMs }) => againInMs !== 0)
        )
        yield* age(10_000)
        yield* walk
        yield* walk
        assert.isNotNull(yield* stepped(queue), "the last walk waits for the transaction")
        yield* Deferred.succeed(stores, undefined)
        yield* Fiber.join(long)
        yield* eventually(
          "the last walk is over",
          Effect.andThen(walk, Effect.map(stepped(queue), (at) => at === null)),
          "90 seconds"
        )
        assert.lengthOf(
          yield* Rows.query(
            `SELECT 1 FROM deadman.job WHERE id = $1::uuid AND rank <> run_at_ms - priority * ${Rank.stepMaxMs}`,
            [job.id]
          ),
          0
        )
      }))

    it.effect("a transaction that is never over is waited for no longer than an hour", () =>
      Effect.gen(function*() {
        const database = yield* Database.Database
        const queues = yield* Queues
        const queue = QueueName.make(`q-${Ids.leaseId()}`)
        const begun = yield* Deferred.make<void>()
        yield* Effect.forkScoped(database.transaction("handler", (session) =>
          session.query(`SELECT pg_current_xact_id()::text`, []).pipe(
            Effect.andThen(Deferred.succeed(begun, undefined)),
            Effect.andThen(Effect.never)
          ), { deadlineMs: 20_000 }))
        yield* Deferred.await(begun)
        yield* queues.put(queue, { stepMs: Rank.stepMaxMs })
        yield* Rows.query(
          `UPDATE deadman.queue SET stepped_at_ms = stepped_at_ms - 3700000 WHERE name = $1::text`,
          [queue]
        )
        yield* eventually(
          "the last walk is over",
          Effect.andThen(
            queues.rerank(100),
            Effect.map(stepped(queue), (at) =>
              at === null)
          )
        )
      }))
  }
)
