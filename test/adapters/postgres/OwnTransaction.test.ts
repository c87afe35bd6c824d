/** Effects in a handler's own transaction: committed with the check of its claim, or not at all. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Cause, Clock, Deferred, Effect, Exit, Fiber, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { Client } from "pg"
import postgres from "postgres"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import * as OwnTransaction from "../../../src/adapters/postgres/OwnTransaction.ts"
import type { Claim } from "../../../src/domain/Claim.ts"
import { CurrentJob } from "../../../src/ports/CurrentJob.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import * as CuttingProxy from "../../support/CuttingProxy.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const User = Layer.unwrap(Effect.map(Postgres.Url, (url) => PgClient.layer({ url, maxConnections: 4 })))

const layer = Layer.mergeAll(
  Layer.orDie(User),
  JobStorePostgres.layer({ wake: false, keyTtlMs: 60_000 })
).pipe(Layer.provideMerge(Postgres.layer))

const running = (claim: Claim): OwnTransaction.Running => ({
  claim,
  job: { id: claim.id, worker: "ada" },
  toResult: (value) => value === undefined ? null : JSON.stringify(value)
})

const under = (claim: Claim) =>
  Effect.provideService(
    CurrentJob,
    {
      ...running(claim),
      job: { id: claim.id, type: "noop", payload: null, attempt: 1, delivery: 1, key: claim.id, worker: "ada" },
      signal: new AbortController().signal,
      progress: () => Effect.void,
      log: () => Effect.void
    }
  )

/** One connection of `pg`, ended with the scope. */
const connected = Effect.gen(function*() {
  const client = new Client({ connectionString: Redacted.value(yield* Postgres.Url) })
  client.on("error", () => undefined)
  yield* Effect.acquireRelease(
    Effect.promise(() => client.connect()),
    () => Effect.promise(() => client.end().catch(() => undefined))
  )
  const query = (text: string, params: Array<unknown> = []) => client.query(text, params)
  const send = (text: string, params: Array<unknown> = []) => Effect.promise(() => query(text, params))
  return { query, send }
})

it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })("OwnTransaction", (it) => {
  const table = Rows.query("CREATE TABLE IF NOT EXISTS public.account (name text PRIMARY KEY, balance int NOT NULL)")

  /** An account of the test's own, and a way to put one into it. */
  const account = Effect.fnUntraced(function*(name: string) {
    yield* table
    yield* Rows.query("INSERT INTO public.account VALUES ($1::text, 0)", [name])
    const sql = yield* SqlClient.SqlClient
    return {
      name,
      add: sql.unsafe("UPDATE public.account SET balance = balance + 1 WHERE name = $1", [name]),
      balance: Effect.map(
        Rows.query("SELECT balance FROM public.account WHERE name = $1::text", [name]),
        ([row]) => row?.["balance"]
      )
    }
  })

  const rowOf = (claim: Claim) =>
    Effect.map(
      Rows.query(
        `SELECT j.state, j.attempts, j.losses, g.result FROM deadman.job j LEFT JOIN deadman.journal g ON g.id = j.id
         WHERE j.id = $1::uuid`,
        [claim.id]
      ),
      ([row]) => row!
    )

  const pledges = Effect.map(Rows.query("SELECT id FROM deadman.pledge"), (rows) => rows.length)

  /** The next run of the same job. */
  const again = Effect.fnUntraced(function*(claim: Claim) {
    yield* Rows.lose(claim)
    return (yield* Rows.claim([claim.id]))[0]!
  })

  const settled = Effect.fnUntraced(function*(claim: Claim, step: "complete" | "fail") {
    const store = yield* JobStore
    const [answer] = yield* store.settle([{
      claim,
      step,
      reason: null,
      delayMs: 0,
      result: step === "complete" ? "\"the worker's\"" : null,
      failure: step === "fail" ? { name: "Lost", message: "no answer to COMMIT" } : null,
      recorded: false
    }])
    return answer!
  })

  const isNotCurrent = (exit: Exit.Exit<unknown, unknown>) =>
    Exit.isFailure(exit) && (Cause.squash(exit.cause) as { _tag?: string })._tag === "ClaimNotCurrent"

  it.effect("once runs the SQL and its guard together, and later deliveries do not run it", () =>
    Effect.gen(function*() {
      const claim = yield* Rows.freshClaim
      const { add, balance } = yield* account("once")
      const deposit = OwnTransaction.once("deposit", Effect.as(add, "receipt"))
      assert.deepStrictEqual(yield* deposit.pipe(under(claim)), { _tag: "Fired", value: "receipt" })
      assert.deepStrictEqual(yield* deposit.pipe(under(claim)), { _tag: "Already" })
      assert.deepStrictEqual(yield* deposit.pipe(under(yield* again(claim))), { _tag: "Already" })
      assert.strictEqual(yield* balance, 1)
      // A key is the job's own.
      assert.strictEqual((yield* deposit.pipe(under(yield* Rows.freshClaim)))._tag, "Fired")
      assert.strictEqual(yield* balance, 2)
      assert.strictEqual(yield* pledges, 0)
      assert.strictEqual((yield* rowOf(claim))["state"], 1)
    }))

  it.effect("a stale claim rolls everything back, whether it was lost before or in the middle", () =>
    Effect.gen(function*() {
      const { add, balance } = yield* account("stale")
      const early = yield* Rows.freshClaim
      yield* Rows.lose(early)
      assert.isTrue(isNotCurrent(yield* Effect.exit(OwnTransaction.once("x", add).pipe(under(early)))))
      assert.isTrue(isNotCurrent(yield* Effect.exit(OwnTransaction.complete(add).pipe(under(early)))))
      const late = yield* Rows.freshClaim
      const losing = Effect.tap(add, () => Rows.lose(late))
      assert.isTrue(isNotCurrent(yield* Effect.exit(OwnTransaction.once("x", losing).pipe(under(late)))))
      const other = yield* Rows.freshClaim
      const cutting = Effect.tap(add, () => Rows.lose(other))
      assert.isTrue(isNotCurrent(yield* Effect.exit(OwnTransaction.complete(cutting).pipe(under(other)))))
      assert.strictEqual(yield* balance, 0)
      assert.deepStrictEqual(yield* Rows.query("SELECT key FROM deadman.effect WHERE job = $1::uuid", [late.id]), [])
      assert.strictEqual((yield* rowOf(other))["state"], 0)
      assert.strictEqual(yield* pledges, 0)
    }))

  it.effect("what fails in the middle leaves neither effect nor guard, and is tried again", () =>
    Effect.gen(function*() {
      const claim = yield* Rows.freshClaim
      const { add, balance } = yield* account("fails")
      const error = yield* Effect.flip(
        OwnTransaction.once("x", Effect.andThen(add, Effect.fail("half way"))).pipe(under(claim))
      )
      assert.strictEqual(error, "half way")
      assert.strictEqual(yield* balance, 0)
      assert.strictEqual((yield* OwnTransaction.once("x", add).pipe(under(claim)))._tag, "Fired")
      assert.strictEqual(yield* balance, 1)
    }))

  it.effect("no job is locked while a handler works: whoever freezes in the middle holds up no reclaim", () =>
    Effect.gen(function*() {
      const claim = yield* Rows.freshClaim
      const { add, balance } = yield* account("frozen")
      const reached = yield* Deferred.make<void>()
      const thaw = yield* Deferred.make<void>()
      const frozen = add.pipe(
        Effect.tap(() => Effect.andThen(Deferred.succeed(reached, undefined), Deferred.await(thaw)))
      )
      const run = yield* Effect.forkChild(Effect.exit(OwnTransaction.complete(frozen).pipe(under(claim))))
      yield* Deferred.await(reached)
      // It would fail for want of the lock, by its timeout.
      const next = yield* again(claim)
      yield* Deferred.succeed(thaw, undefined)
      assert.isTrue(isNotCurrent(yield* Fiber.join(run)))
      assert.strictEqual(yield* balance, 0)
      assert.strictEqual(yield* OwnTransaction.complete(Effect.as(add, 7)).pipe(under(next)), 7)
      assert.strictEqual(yield* balance, 1)
    }))

  it.effect("whoever makes the fence come early and freezes is cut off within a second or so", () =>
    Effect.gen(function*() {
      const { balance, name } = yield* account("early")
      for (const pledge of ["effect", "completion"] as const) {
        const claim = yield* Rows.freshClaim
        yield* Effect.scoped(Effect.gen(function*() {
          const { query, send } = yield* connected
          yield* send("BEGIN")
          if (pledge === "effect") yield* Effect.promise(() => OwnTransaction.guard(running(claim), "x", query))
          yield* send("UPDATE public.account SET balance = balance + 1 WHERE name = $1", [name])
          if (pledge === "completion") yield* Effect.promise(() => OwnTransaction.completing(running(claim), 1, query))
          // Before the fence: it may have stood for a while when its answer is here.
          const since = yield* Clock.currentTimeMillis
          yield* send("SET CONSTRAINTS ALL IMMEDIATE")
          // Nothing more is sent on that connection. The job is locked now, but not for long.
          yield* eventually("the reclaim goes through", Effect.map(Effect.exit(Rows.lose(claim)), Exit.isSuccess))
          const tookMs = (yield* Clock.currentTimeMillis) - since
          assert.isAbove(tookMs, 500)
          assert.isBelow(tookMs, 3_000)
        }))
        assert.strictEqual((yield* rowOf(claim))["state"], 0)
      }
      assert.strictEqual(yield* balance, 0)
    }))

  it.effect("complete ends the job with its result and the tally, and the worker's settlement is a repeat", () =>
    Effect.gen(function*() {
      const claim = yield* Rows.freshClaim
      const { add, balance } = yield* account("complete")
      yield* OwnTransaction.complete(Effect.as(add, { total: 7 })).pipe(under(claim))
      const expected = { state: 3, attempts: 0, losses: 0, result: { total: 7 } }
      assert.deepStrictEqual(yield* rowOf(claim), expected)
      for (const step of ["complete", "fail"] as const) {
        assert.deepStrictEqual(yield* settled(claim, step), { _tag: "Settled", repeated: true })
      }
      assert.deepStrictEqual(yield* rowOf(claim), expected)
      assert.strictEqual(yield* balance, 1)
      assert.deepStrictEqual(yield* Rows.untallied, [])
      // Its lease has nothing left to run.
      const store = yield* JobStore
      const [verified] = yield* store.verify([claim.lease])
      assert.deepInclude(verified, { _tag: "Stands", running: [] })
    }))

  it.effect("a job that is cancelled in the middle is not completed, and nothing of it is kept", () =>
    Effect.gen(function*() {
      const claim = yield* Rows.freshClaim
      const { add, balance } = yield* account("cancelled")
      const store = yield* JobStore
      const exit = yield* Effect.exit(
        OwnTransaction.complete(Effect.tap(add, () => store.cancel(claim.id))).pipe(under(claim))
      )
      assert.isTrue(isNotCurrent(exit))
      assert.strictEqual((yield* rowOf(claim))["state"], 4)
      assert.strictEqual(yield* balance, 0)
      assert.deepStrictEqual(yield* Rows.untallied, [])
    }))

  it.effect("of a failed settlement and a completion of one claim the first to commit counts", () =>
    Effect.gen(function*() {
      const claim = yield* Rows.freshClaim
      const { add, balance } = yield* account("raced")
      const exit = yield* Effect.exit(
        OwnTransaction.complete(Effect.tap(add, () => settled(claim, "fail"))).pipe(under(claim))
      )
      assert.isTrue(isNotCurrent(exit))
      assert.strictEqual(yield* balance, 0)
      assert.deepInclude(yield* rowOf(claim), { attempts: 1 })
    }))

  it.effect("a COMMIT whose answer is lost: the effect is there once, and the settlement is a repeat", () =>
    Effect.gen(function*() {
      const url = new URL(Redacted.value(yield* Postgres.Url))
      const proxy = yield* CuttingProxy.make({ port: Number(url.port) })
      url.host = `127.0.0.1:${proxy.port}`
      const { balance, name } = yield* account("lost")
      const [once, complete] = [yield* Rows.freshClaim, yield* Rows.freshClaim]
      yield* Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const add = sql.unsafe("UPDATE public.account SET balance = balance + 1 WHERE name = $1", [name])
        // Everything before COMMIT was answered: of the first, also the statement that asks whether all went well.
        const first = OwnTransaction.once("x", Effect.tap(add, () => proxy.loseAnswers(1, 1)))
        assert.isTrue(Exit.isFailure(yield* Effect.exit(first.pipe(under(once)))))
        const second = sql.withTransaction(Effect.tap(OwnTransaction.complete(add), () => proxy.loseAnswers(1)))
        assert.isTrue(Exit.isFailure(yield* Effect.exit(second.pipe(under(complete)))))
        assert.strictEqual(yield* proxy.lost, 2)
      }).pipe(Effect.provide(PgClient.layer({ url: Redacted.make(url.href), maxConnections: 1 })))
      yield* eventually("both are committed", Effect.map(balance, (n) => n === 2))
      const { add } = yield* account("lost too")
      assert.deepStrictEqual(yield* OwnTransaction.once("x", add).pipe(under(once)), { _tag: "Already" })
      assert.deepStrictEqual(yield* settled(complete, "fail"), { _tag: "Settled", repeated: true })
      assert.deepInclude(yield* rowOf(complete), { state: 3, attempts: 0 })
      assert.strictEqual(yield* balance, 2)
      assert.deepStrictEqual(yield* Rows.untallied, [])
    }).pipe(Effect.scoped))

  it.effect("inside a transaction of the caller's own, guard and fence are that one's", () =>
    Effect.gen(function*() {
      const claim = yield* Rows.freshClaim
      const { add, balance } = yield* account("nested")
      const sql = yield* SqlClient.SqlClient
      const nested = sql.withTransaction(Effect.andThen(add, OwnTransaction.once("x", add)))
      yield* Effect.flip(sql.withTransaction(Effect.andThen(nested, Effect.fail("rolled back"))).pipe(under(claim)))
      assert.strictEqual(yield* balance, 0)
      yield* nested.pipe(under(claim))
      assert.strictEqual(yield* balance, 2)
      // An inner part that is rolled back takes its guard along, and only that.
      const inner = Effect.ignore(OwnTransaction.once("y", Effect.andThen(add, Effect.fail("inner"))))
      yield* sql.withTransaction(Effect.andThen(add, inner)).pipe(under(claim))
      assert.strictEqual(yield* balance, 3)
      assert.strictEqual((yield* OwnTransaction.once("y", add).pipe(under(claim)))._tag, "Fired")
    }))

  it.effect("pg: once and complete by a callback that sends on one connection", () =>
    Effect.gen(function*() {
      const { balance, name } = yield* account("pg")
      const [claim, stale] = [yield* Rows.freshClaim, yield* Rows.freshClaim]
      yield* Rows.lose(stale)
      const { query } = yield* connected
      const add = () => query("UPDATE public.account SET balance = balance + 1 WHERE name = $1", [name])
      const count = () => add().then(({ rowCount }) => rowCount)
      const once = (of: Claim, work: () => PromiseLike<unknown> = count) =>
        Effect.exit(Effect.promise(() => OwnTransaction.onceWith(running(of), "x", query, work)))
      const complete = (of: Claim) =>
        Effect.exit(Effect.promise(() => OwnTransaction.completeWith(running(of), query, count)))
      const failing = yield* once(claim, () => add().then(() => Promise.reject(new Error("half way"))))
      assert.include(Exit.isFailure(failing) ? Cause.pretty(failing.cause) : "", "half way")
      assert.strictEqual(yield* balance, 0)
      assert.deepStrictEqual(yield* once(claim), Exit.succeed({ _tag: "Fired", value: 1 }))
      assert.deepStrictEqual(yield* once(claim), Exit.succeed({ _tag: "Already" }))
      assert.isTrue(isNotCurrent(yield* once(stale)))
      assert.isTrue(isNotCurrent(yield* complete(stale)))
      assert.deepStrictEqual(yield* complete(claim), Exit.succeed(1))
      assert.strictEqual(yield* balance, 2)
      assert.deepStrictEqual(yield* rowOf(claim), { state: 3, attempts: 0, losses: 0, result: 1 })
    }).pipe(Effect.scoped))

  it.effect("a query that failed and whose error was caught leaves nothing, and nobody hears that it was done", () =>
    Effect.gen(function*() {
      const { add, balance, name } = yield* account("swallowed")
      const claim = yield* Rows.freshClaim
      const { query } = yield* connected
      const sql = yield* SqlClient.SqlClient
      const wrong = "SELECT 1 / 0"
      const work = () =>
        query("UPDATE public.account SET balance = balance + 1 WHERE name = $1", [name])
          .then(() => query(wrong)).catch(() => undefined)
      const plain: ReadonlyArray<() => Promise<unknown>> = [
        () => OwnTransaction.onceWith(running(claim), "x", query, work),
        () => OwnTransaction.completeWith(running(claim), query, work)
      ]
      const swallowing = Effect.andThen(add, Effect.ignore(sql.unsafe(wrong)))
      const exits: ReadonlyArray<Exit.Exit<unknown, unknown>> = [
        ...(yield* Effect.forEach(plain, (run) => Effect.exit(Effect.promise(run)))),
        yield* Effect.exit(OwnTransaction.once("x", swallowing).pipe(under(claim))),
        yield* Effect.exit(OwnTransaction.complete(swallowing).pipe(under(claim)))
      ]
      for (const exit of exits) {
        assert.include(Exit.isFailure(exit) ? Cause.pretty(exit.cause) : JSON.stringify(exit), "aborted")
      }
      assert.strictEqual(yield* balance, 0)
      assert.strictEqual((yield* rowOf(claim))["state"], 1)
      // The connection is good for the next one.
      assert.deepStrictEqual(
        yield* Effect.promise(() =>
          OwnTransaction.onceWith(running(claim), "x", query, () => query("SELECT 2").then(() => 2))
        ),
        {
          _tag: "Fired",
          value: 2
        }
      )
    }).pipe(Effect.scoped))

  it.effect("postgres: guard and completion within its own transaction", () =>
    Effect.gen(function*() {
      const { balance, name } = yield* account("postgres")
      const claim = yield* Rows.freshClaim
      const sql = yield* Effect.acquireRelease(
        Effect.map(Postgres.Url, (url) => postgres(Redacted.value(url), { max: 1 })),
        (sql) => Effect.promise(() => sql.end())
      )
      const inTransaction = (body: (tx: postgres.TransactionSql, query: OwnTransaction.Query) => Promise<unknown>) =>
        Effect.exit(
          Effect.promise(() => sql.begin((tx) => body(tx, (text, params) => tx.unsafe(text, params as Array<string>))))
        )
      const add = (tx: postgres.TransactionSql) =>
        tx`UPDATE public.account SET balance = balance + 1 WHERE name = ${name}`.then(() => undefined)
      for (const expected of [true, false]) {
        const went = yield* inTransaction((tx, query) =>
          OwnTransaction.guard(running(claim), "x", query).then((go) => go ? add(tx).then(() => true) : false)
        )
        assert.deepStrictEqual(went, Exit.succeed(expected))
      }
      const complete = inTransaction((tx, query) =>
        add(tx).then(() => OwnTransaction.completing(running(claim), { by: "postgres" }, query))
      )
      assert.isTrue(Exit.isSuccess(yield* complete))
      const repeated = yield* complete
      assert.propertyVal(Exit.isFailure(repeated) ? Cause.squash(repeated.cause) : {}, "code", "DM001")
      assert.strictEqual(yield* balance, 2)
      assert.deepStrictEqual(yield* rowOf(claim), { state: 3, attempts: 0, losses: 0, result: { by: "postgres" } })
      assert.strictEqual(yield* pledges, 0)
    }).pipe(Effect.scoped))

  it.effect("a key that is empty or too long is a mistake", () =>
    Effect.gen(function*() {
      const claim = yield* Rows.freshClaim
      for (const key of ["", "x".repeat(201)]) {
        const exit = yield* Effect.exit(OwnTransaction.once(key, Effect.void).pipe(under(claim)))
        assert.isTrue(Exit.isFailure(exit))
      }
    }))
})
