import { assert, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { Client } from "pg"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import * as Sql from "../../../src/adapters/postgres/schedules/SchedulesSql.ts"
import * as SchedulesPostgres from "../../../src/adapters/postgres/SchedulesPostgres.ts"
import type { ScheduleName } from "../../../src/domain/Schedule.ts"
import { type FireRequest, Schedules } from "../../../src/ports/Schedules.ts"
import * as SchedulesContract from "../../contracts/SchedulesContract.ts"
import * as SchedulesContractSteps from "../../contracts/SchedulesContractSteps.ts"
import * as Clock from "../../support/Clock.ts"
import * as Ids from "../../support/Ids.ts"
import * as Plans from "../../support/Plans.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const stores = Layer.merge(
  JobStorePostgres.layer({ wake: true, keyTtlMs: 60_000 }),
  SchedulesPostgres.layer({ wake: true, keyTtlMs: 60_000 })
)

SchedulesContract.suite("postgres", Layer.provide(stores, Postgres.layer), { pass: Clock.wait })

/** Schedules that are due, as somebody with psql may have written them. */
const insert = (count: number, prefix: string, change = "") =>
  Rows.query(
    `INSERT INTO deadman.schedule (name, every_ms, next_fire_ms, type, queue)
     SELECT '${prefix}' || n, 60000, deadman.now_ms() / 60000 * 60000, '${prefix}', 'default'
     FROM generate_series(1, ${count}) n`
  ).pipe(Effect.andThen(change === "" ? Effect.void : Rows.query(change)))

const requests = Effect.gen(function*() {
  const schedules = yield* Schedules
  const { nowMs, schedules: due } = yield* schedules.due(500)
  return due.map(({ name, nextFireMs, overlap, revision }): FireRequest => ({
    name,
    revision,
    overlap,
    nextFireMs: nowMs + 600_000,
    ticks: [{ tickMs: nextFireMs, id: Ids.jobId() }]
  }))
})

const tallied = Effect.map(
  Rows.query(
    `SELECT coalesce((SELECT sum(n) FROM deadman.tally WHERE state = 0), 0)::int AS tally,
            (SELECT count(*)::int FROM deadman.job WHERE state = 0) AS jobs`
  ),
  ([row]) => row
)

/** Another session, with its transaction open. */
const holding = <A, E, R>(statement: string, body: Effect.Effect<A, E, R>) =>
  Effect.acquireUseRelease(
    Effect.gen(function*() {
      const url = yield* Postgres.Url
      const client = new Client({ connectionString: Redacted.value(url) })
      yield* Effect.promise(() => client.connect())
      yield* Effect.promise(() => client.query("BEGIN"))
      yield* Effect.promise(() => client.query(statement))
      return client
    }),
    () => body,
    (client) => Effect.promise(() => client.end())
  )

/** What `use` asks of schedules, with `first` done once between its look and its writing, where that is by `statement`. */
const beside = <A, E, E2>(
  statement: string,
  first: Effect.Effect<unknown, E>,
  use: (schedules: Schedules["Service"]) => Effect.Effect<A, E2>
) =>
  Effect.gen(function*() {
    const database = yield* Database.Database
    let times = 0
    const once = Effect.suspend(() => times++ === 0 ? Effect.orDie(first) : Effect.void)
    const query: Database.Database["Service"]["query"] = <Row extends object>(
      ...asked: Parameters<Database.Database["Service"]["query"]>
    ) => Effect.andThen(asked[1] === statement ? once : Effect.void, database.query<Row>(...asked))
    const between = Layer.succeed(Database.Database, Database.Database.of({ ...database, query }))
    const schedules = SchedulesPostgres.layer({ wake: true, keyTtlMs: 60_000 })
    const answer = yield* Effect.provide(Effect.flatMap(Schedules, use), Layer.provide(schedules, between))
    assert.strictEqual(times, 2, "it writes again after it has looked again")
    return answer
  })

it.layer(Layer.provideMerge(stores, Postgres.layer), { timeout: "2 minutes", excludeTestServices: true })(
  "SchedulesPostgres",
  (it) => {
    const fresh = Rows.query(`DELETE FROM deadman.schedule`)

    it.effect("what was booked by a clock that was ahead stays booked, until the schedule is deleted and put anew", () =>
      Effect.gen(function*() {
        yield* fresh
        const schedules = yield* Schedules
        const { wanted } = yield* SchedulesContractSteps.put({ timing: { everyMs: 60_000 } })
        yield* Rows.query(
          `UPDATE deadman.schedule SET last_fire_ms = next_fire_ms + 28800000, next_fire_ms = next_fire_ms + 28860000`
        )
        const hours = Effect.gen(function*() {
          const { nowMs } = yield* schedules.due(1)
          const found = yield* schedules.get(wanted.name)
          return Math.floor(((found?.nextFireMs ?? Infinity) - nowMs) / 3_600_000)
        })
        // Its ticks until then are fired: no tick makes a second job.
        yield* schedules.pause(wanted.name)
        yield* schedules.resume(wanted.name)
        yield* schedules.put(wanted)
        assert.strictEqual(yield* hours, 8)
        yield* schedules.remove(wanted.name)
        yield* schedules.put(wanted)
        assert.strictEqual(yield* hours, 0)
      }))

    it.effect("hundreds that are due are fired by two statements, and a route that is missing is made", () =>
      Effect.gen(function*() {
        yield* fresh
        const schedules = yield* Schedules
        yield* insert(300, "many")
        const asked = yield* requests
        assert.lengthOf(asked, 300)
        const first = yield* schedules.fire(asked)
        // Nobody ever submitted that type, so there is no route yet.
        assert.deepStrictEqual([first.moved, first.jobs], [[], []])
        const second = yield* schedules.fire(asked)
        assert.lengthOf(second.moved, 300)
        assert.lengthOf(second.jobs, 300)
        assert.isTrue(second.announced)
        const counts = yield* tallied
        assert.strictEqual(counts?.["tally"], counts?.["jobs"])
      }))

    it.effect("one whose row somebody has locked is left to a later look, and holds up none", () =>
      Effect.gen(function*() {
        yield* fresh
        const schedules = yield* Schedules
        yield* insert(3, "locked")
        yield* schedules.fire(yield* requests)
        const asked = yield* requests
        const fired = yield* holding(
          `SELECT 1 FROM deadman.schedule WHERE name = 'locked2' FOR UPDATE`,
          schedules.fire(asked)
        )
        assert.sameMembers([...fired.moved], ["locked1", "locked3"])
        assert.deepStrictEqual(fired.failed, [])
        assert.deepStrictEqual((yield* requests).map(({ name }) => name), ["locked2" as ScheduleName])
      }))

    it.effect("one that cannot be stored is named, and the others fire", () =>
      Effect.gen(function*() {
        yield* fresh
        const schedules = yield* Schedules
        yield* insert(3, "bad")
        yield* schedules.fire(yield* requests)
        const asked = yield* requests
        const fired = yield* schedules.fire(
          asked.map((one) => Object.assign({}, one, one.name === "bad2" ? { nextFireMs: 1e19 } : {}))
        )
        assert.sameMembers([...fired.moved], ["bad1", "bad3"])
        assert.deepStrictEqual(fired.failed.map(({ name }) => name), ["bad2" as ScheduleName])
        assert.match(fired.failed[0]!.message, /out of range/)
      }))

    it.effect("one that takes the server too long is named, and the others fire", () =>
      Effect.gen(function*() {
        yield* fresh
        const schedules = yield* Schedules
        yield* insert(3, "slow")
        yield* schedules.fire(yield* requests)
        // As the server ends a statement that is beyond its time.
        yield* Rows.query(
          `CREATE FUNCTION deadman.too_long() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = '57014'; END $$`
        )
        yield* Rows.query(
          `CREATE TRIGGER too_long BEFORE INSERT ON deadman.body FOR EACH ROW WHEN (NEW.schedule = 'slow2')
           EXECUTE FUNCTION deadman.too_long()`
        )
        const fired = yield* Effect.ensuring(
          schedules.fire(yield* requests),
          Effect.orDie(Rows.query(`DROP FUNCTION deadman.too_long() CASCADE`))
        )
        assert.sameMembers([...fired.moved], ["slow1", "slow3"])
        assert.deepStrictEqual(fired.failed.map(({ name }) => name), ["slow2" as ScheduleName])
      }))

    it.effect("what is due says how large its jobs are", () =>
      Effect.gen(function*() {
        yield* fresh
        const schedules = yield* Schedules
        yield* insert(1, "size", `UPDATE deadman.schedule SET payload = to_jsonb(repeat('x', 1000000))`)
        assert.deepStrictEqual((yield* schedules.due(10)).schedules.map(({ bytes }) => bytes), [1_000_002])
        yield* schedules.fire(yield* requests)
        yield* schedules.fire(yield* requests)
        assert.deepStrictEqual(
          yield* Rows.query(
            `SELECT j.bytes FROM deadman.job j JOIN deadman.body b USING (id) WHERE b.schedule = 'size1'`
          ),
          [{ bytes: 1_000_002 }]
        )
        yield* fresh
      }))

    it.effect("while the job to be cancelled is locked nothing of the firing is stored, and later all of it", () =>
      Effect.gen(function*() {
        yield* fresh
        const schedules = yield* Schedules
        yield* insert(1, "held", `UPDATE deadman.schedule SET overlap = 'cancel' WHERE name = 'held1'`)
        yield* schedules.fire(yield* requests)
        const [first] = (yield* schedules.fire(yield* requests)).jobs
        yield* Rows.query(`UPDATE deadman.schedule SET next_fire_ms = deadman.now_ms() - 1`)
        const asked = yield* requests
        const blocked = yield* holding(
          `SELECT 1 FROM deadman.job WHERE id = '${first!.id}' FOR UPDATE`,
          schedules.fire(asked)
        )
        assert.deepStrictEqual([blocked.moved, blocked.failed.map(({ name }) => name)], [[], ["held1" as ScheduleName]])
        const fired = yield* schedules.fire(asked)
        assert.deepStrictEqual(fired.cancelled.map(({ id }) => id), [first!.id])
        assert.lengthOf(fired.jobs, 1)
        const counts = yield* tallied
        assert.strictEqual(counts?.["tally"], counts?.["jobs"])
      }))

    it.effect("after the clock went back no change books a tick that it has fired already", () =>
      Effect.gen(function*() {
        yield* fresh
        const schedules = yield* Schedules
        yield* insert(2, "back")
        const [row] = yield* Rows.query(
          `UPDATE deadman.schedule SET last_fire_ms = deadman.now_ms() / 60000 * 60000 + 3600000
           RETURNING last_fire_ms::float8 AS last`
        )
        const last = Number(row!["last"])
        const [one, two] = (yield* schedules.list({ limit: 2, after: null })).schedules
        const changed = yield* schedules.put({ ...one!, payload: "1", paused: null, timing: { everyMs: 30_000 } })
        assert.strictEqual(changed.schedule.nextFireMs, last + 30_000)
        yield* schedules.pause(two!.name)
        assert.strictEqual((yield* schedules.resume(two!.name))?.nextFireMs, last + 60_000)
        yield* fresh
      }))

    it.effect("1: a put beside a firing leaves what the firing has booked", () =>
      Effect.gen(function*() {
        yield* fresh
        const schedules = yield* Schedules
        yield* Rows.route("beside")
        yield* insert(1, "beside")
        const asked = yield* requests
        const [before] = (yield* schedules.list({ limit: 1, after: null })).schedules
        const { schedule } = yield* beside(
          Sql.replace,
          Effect.map(schedules.fire(asked), ({ jobs }) => assert.lengthOf(jobs, 1)),
          ({ put }) => put({ ...before!, payload: "2", paused: null })
        )
        assert.deepStrictEqual(
          [schedule.payload, schedule.nextFireMs, schedule.lastFireMs, schedule.lastJob],
          [2, asked[0]!.nextFireMs, before!.nextFireMs, asked[0]!.ticks[0]!.id]
        )
        assert.deepStrictEqual(yield* schedules.get(before!.name), schedule)
        assert.deepStrictEqual(yield* requests, [])
      }))

    it.effect("7: a resume beside a put of another timing books by the timing that was put", () =>
      Effect.gen(function*() {
        yield* fresh
        const schedules = yield* Schedules
        const { wanted } = yield* SchedulesContractSteps.put({ paused: true })
        const resumed = yield* beside(
          Sql.setPaused(false),
          schedules.put({ ...wanted, timing: { everyMs: 3_600_000 } }),
          ({ resume }) => resume(wanted.name)
        )
        assert.strictEqual(resumed!.nextFireMs! % 3_600_000, 0)
        assert.deepStrictEqual(yield* schedules.get(wanted.name), resumed)
        yield* fresh
      }))

    it.effect("looking for what is due reads a few pages, however many schedules wait", () =>
      Effect.gen(function*() {
        yield* fresh
        yield* Rows.query(
          `INSERT INTO deadman.schedule (name, every_ms, next_fire_ms, type)
           SELECT 'w' || n, 60000, deadman.now_ms() + 1000000 + n, 'w' FROM generate_series(1, 20000) n`
        )
        const plan = yield* Plans.explainAlone(
          `SELECT name FROM deadman.schedule
           WHERE next_fire_ms <= deadman.statement_ms() ORDER BY next_fire_ms LIMIT 500`
        )
        // Entries of rows that tests before have deleted are walked too; the twenty thousand are on a hundred pages.
        assert.isAtMost(Plans.buffersOf(plan), 50)
        yield* fresh
      }))
  }
)
