import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { SqlError } from "effect/sql"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import { fromSqlError } from "../../../src/adapters/postgres/DatabaseFailed.ts"
import * as Backends from "../../support/Backends.ts"
import { timed } from "../../support/Clock.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as PostgresServer from "../../support/PostgresServer.ts"

it.layer(Postgres.layer, { excludeTestServices: true })("Database", (it) => {
  it.effect("tells failures apart by their SQLSTATE", () =>
    Effect.gen(function*() {
      const database = yield* Database.Database
      const raised = (code: string) =>
        Effect.map(
          Effect.flip(database.query("read", `DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '${code}'; END $$`)),
          (error) => error.kind
        )
      const expected: Record<string, ReadonlyArray<string>> = {
        unavailable: ["08006", "57P01", "57P03", "57014", "53300", "53100", "25006", "58030", "2200H", "XX000"],
        locked: ["55P03"],
        deadlock: ["40P01", "40001"],
        refused: ["22P02", "22P05", "23505", "23514", "54000"],
        broken: ["42P01", "42501", "42804", "0A000", "P0001"]
      }
      for (const [kind, codes] of Object.entries(expected)) {
        for (const code of codes) {
          assert.strictEqual(yield* raised(code), kind, code)
        }
      }
    }))

  it.effect("a server that is read-only, and a session that is killed, are unavailable", () =>
    Effect.gen(function*() {
      const database = yield* Database.Database
      const readOnly = yield* Effect.flip(database.transaction("read", (session) =>
        Effect.andThen(
          session.query(`SET TRANSACTION READ ONLY`),
          session.query(`INSERT INTO deadman.route (type, queue) VALUES ('a', 'b')`)
        )))
      assert.deepStrictEqual([readOnly.kind, readOnly.code], ["unavailable", "25006"])
      const killed = yield* Effect.flip(database.query("hot", `SELECT pg_terminate_backend(pg_backend_pid())`))
      assert.strictEqual(killed.kind, "unavailable")
      assert.deepStrictEqual(yield* database.query("hot", `SELECT 1::int AS one`), [{ one: 1 }])
    }))

  it.effect("a deadline holds, and the statement is cancelled", () =>
    Effect.gen(function*() {
      const database = yield* Database.Database
      const [error, ms] = yield* timed(
        Effect.flip(database.query("read", `SELECT pg_sleep(60), 'cancel me'`, [], { deadlineMs: 100 }))
      )
      assert.deepStrictEqual([error.kind, error.code], ["unavailable", null])
      assert.isBelow(ms, 2_000)
      yield* eventually(
        "the statement is cancelled",
        Effect.map(Backends.counted(`state = 'active' AND query LIKE '%cancel me%'`), (n) => n === 0)
      )
    }))

  it.effect("a full lane fails by its deadline, and the other lanes do not notice", () =>
    Effect.gen(function*() {
      const database = yield* Database.Database
      const busy = yield* Effect.forkChild(Effect.all(
        Array.from({ length: 5 }, () => Effect.exit(database.query("hot", `SELECT pg_sleep(2.5), 'fills'`))),
        { concurrency: "unbounded" }
      ))
      yield* eventually(
        "the lane is full",
        Effect.map(Backends.counted(`state = 'active' AND query LIKE '%fills%'`), (n) => n === 4)
      )
      const [[error, waited], [, vital]] = yield* Effect.all([
        timed(Effect.flip(database.query("hot", `SELECT 1`, [], { deadlineMs: 200 }))),
        timed(database.query("vital", `SELECT 1`))
      ], { concurrency: 2 })
      assert.strictEqual(error.kind, "unavailable")
      assert.isBelow(waited, 1_500)
      assert.isBelow(vital, 1_500)
      yield* Fiber.join(busy)
    }))

  it.effect("a transaction is kept when its body succeeds, and undone when it fails or takes too long", () =>
    Effect.gen(function*() {
      const database = yield* Database.Database
      const insert = `INSERT INTO deadman.route (type, queue) VALUES ($1::text, 'tx')`
      yield* database.transaction("hot", (session) => session.query(insert, ["kept"]))
      assert.strictEqual(
        yield* Effect.flip(
          database.transaction(
            "hot",
            (session) => Effect.andThen(session.query(insert, ["failed"]), Effect.fail("stop" as const))
          )
        ),
        "stop"
      )
      yield* Effect.flip(
        database.transaction("hot", (session) => Effect.andThen(session.query(insert, ["late"]), Effect.never), {
          deadlineMs: 100
        })
      )
      yield* Effect.flip(
        database.transaction("hot", (session) =>
          Effect.andThen(
            session.query(insert, ["idle"]),
            Effect.andThen(Effect.sleep("1500 millis"), session.query(`SELECT 1`))
          ))
      )
      yield* eventually(
        "nothing is left open",
        Effect.map(Backends.counted(`state LIKE 'idle in transaction%'`), (n) => n === 0)
      )
      assert.deepStrictEqual(yield* database.query("read", `SELECT type FROM deadman.route WHERE queue = 'tx'`), [
        { type: "kept" }
      ])
    }))

  it.effect("a lock that is not given in time is told as one", () =>
    Effect.gen(function*() {
      const database = yield* Database.Database
      yield* database.query("read", `INSERT INTO deadman.route (type, queue) VALUES ('l', 'l')`)
      const lock = `SELECT id FROM deadman.route WHERE type = 'l' FOR UPDATE`
      const [error, ms] = yield* database.transaction("handler", (session) =>
        Effect.andThen(session.query(lock), timed(Effect.flip(database.query("hot", lock)))))
      assert.deepStrictEqual([error.kind, error.lockedRow], ["locked", "route"])
      assert.isBelow(ms, 2_000)
      const table = yield* database.transaction("handler", (session) =>
        Effect.andThen(session.query(`LOCK TABLE deadman.route`), Effect.flip(database.query("hot", lock))))
      assert.deepStrictEqual([table.kind, table.lockedRow], ["locked", undefined])
    }))

  it("finds in any language whose row was locked, and nothing where it was a table", () => {
    const inFunction = `\nSQL statement "INSERT INTO deadman.key (key, job) VALUES (new_key, new_id)
      ON CONFLICT (key) DO NOTHING"\nPL/pgSQL function deadman.store_job(uuid,text) line 26 at SQL statement`
    const said: ReadonlyArray<readonly [where: string | undefined, row: string | undefined]> = [
      [`while locking tuple (0,5) in relation "uniqueness"`, "uniqueness"],
      [`while checking uniqueness of tuple (0,5) in relation "body"`, "body"],
      [`while inserting index tuple (12,50) in relation "body_pkey"${inFunction}`, "body_pkey"],
      [`beim Einfügen von Indextupel (0,5) in Relation »key_pkey«`, "key_pkey"],
      [`lors de l'insertion du tuple d'index (0,5) dans la relation « key »`, "key"],
      [`リレーション"route"のタプル(0,5)のロック中`, "route"],
      [`当锁定关系"route"的元组(0, 5)时`, "route"],
      [`在检查关系"key"中的元组(0, 5)的排它性依赖时`, "key"],
      [`0,5 튜플을 "uniqueness" 릴레이션에서 잠그는 중에 발생`, "uniqueness"],
      [`lors de l'insertion de l'enregistrement (0, 5) de l'index dans la relation « body_pkey »`, "body_pkey"],
      [`SQL statement "WITH o AS MATERIALIZED (SELECT numeric(10, 2)`, undefined],
      [inFunction.trim(), undefined],
      [undefined, undefined]
    ]
    for (const [where, row] of said) {
      const cause = Object.assign(new Error("canceling statement due to lock timeout"), { code: "55P03", where })
      const error = fromSqlError(new SqlError.SqlError({ reason: new SqlError.LockTimeoutError({ cause }) }))
      assert.deepStrictEqual([error.kind, error.lockedRow], ["locked", row], where)
    }
  })

  it.effect("arrays keep nulls, empty ones, and numbers of any width", () =>
    Effect.gen(function*() {
      const database = yield* Database.Database
      for (const values of [[], [null], [1, null, 253_402_300_799_999], [2 ** 31]]) {
        const [row] = yield* database.query<{ back: ReadonlyArray<number | null> }>(
          "read",
          `SELECT ARRAY(SELECT x::bigint::float8 FROM unnest($1::float8[]) WITH ORDINALITY u(x, n) ORDER BY n) AS back`,
          [Database.longs(values)]
        )
        assert.deepStrictEqual(row?.back, values)
      }
    }))

  it.effect("sessions are opened with the settings that the statements count on", () =>
    Effect.gen(function*() {
      const database = yield* Database.Database
      for (const lane of ["hot", "vital", "read", "handler"] as const) {
        const [row] = yield* database.query<Record<string, string>>(
          lane,
          `SELECT current_setting('jit') AS jit, current_setting('plan_cache_mode') AS plans,
                  current_setting('lock_timeout') AS lock, current_setting('statement_timeout') <> '0' AS bounded`
        )
        assert.deepStrictEqual<unknown>(row, { jit: "off", plans: "force_custom_plan", lock: "250ms", bounded: true })
      }
    }))
})

it.live(
  "a frozen server costs each statement its deadline and no more, and is found again when it thaws",
  () =>
    Effect.gen(function*() {
      const server = yield* PostgresServer.start()
      const scope = yield* Effect.scope
      const context = yield* Layer.buildWithScope(Database.layer({ url: server.url }), scope)
      yield* Effect.gen(function*() {
        const database = yield* Database.Database
        yield* database.query("hot", `SELECT 1`)
        yield* server.freeze
        for (let round = 0; round < 3; round++) {
          const [errors, ms] = yield* timed(Effect.all(
            Array.from({ length: 10 }, () => Effect.flip(database.query("hot", `SELECT 1`, [], { deadlineMs: 300 }))),
            { concurrency: "unbounded" }
          ))
          assert.isTrue(errors.every(({ kind }) => kind === "unavailable"))
          assert.isBelow(ms, 2_000)
        }
        yield* server.thaw
        yield* eventually(
          "the lane answers again",
          Effect.map(
            Effect.exit(database.query("hot", `SELECT 1`, [], { deadlineMs: 500 })),
            ({ _tag }) => _tag === "Success"
          )
        )
        // All of its connections, at once.
        yield* Effect.all(Array.from({ length: 8 }, () => database.query("hot", `SELECT pg_sleep(0.05)`)), {
          concurrency: "unbounded"
        })
      }).pipe(Effect.provideContext(context))
    }).pipe(Effect.scoped),
  180_000
)
