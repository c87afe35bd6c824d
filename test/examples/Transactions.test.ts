/** `docs/examples/transactions`, each against a shop's tables in a real Postgres, with a worker that runs what commits. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { drizzle } from "drizzle-orm/node-postgres"
import { Context, Effect, Layer, Redacted, type Scope } from "effect"
import { Kysely, PostgresDialect } from "kysely"
import { Pool } from "pg"
import postgres from "postgres"
import * as DrizzleExample from "../../docs/examples/transactions/drizzle.ts"
import * as EffectExample from "../../docs/examples/transactions/effectSql.ts"
import * as KyselyExample from "../../docs/examples/transactions/kysely.ts"
import * as PgExample from "../../docs/examples/transactions/pg.ts"
import * as PostgresExample from "../../docs/examples/transactions/postgres.ts"
import * as DelayedJobsPostgres from "../../src/adapters/postgres/DelayedJobsPostgres.ts"
import * as JobStorePostgres from "../../src/adapters/postgres/JobStorePostgres.ts"
import * as LeaseRegisterPostgres from "../../src/adapters/postgres/LeaseRegisterPostgres.ts"
import * as QueuesPostgres from "../../src/adapters/postgres/QueuesPostgres.ts"
import * as SessionsPostgres from "../../src/adapters/postgres/SessionsPostgres.ts"
import * as TransportPostgres from "../../src/adapters/postgres/TransportPostgres.ts"
import type { JobId } from "../../src/domain/JobId.ts"
import { JobStore } from "../../src/ports/JobStore.ts"
import * as Loops from "../../src/programs/process/Loops.ts"
import * as Handlers from "../../src/programs/worker/Handlers.ts"
import * as WorkerConfig from "../../src/programs/worker/WorkerConfig.ts"
import * as WorkerPool from "../../src/programs/worker/WorkerPool.ts"
import { eventually } from "../support/Eventually.ts"
import * as Postgres from "../support/Postgres.ts"
import * as Rows from "../support/Rows.ts"

interface Order {
  readonly id: string
  readonly total: number
}

/** How each client places an order, in a shop that has nothing of Deadman but the right to submit. */
type Place = (url: string) => Effect.Effect<(order: Order) => Effect.Effect<string, unknown>, never, Scope.Scope>

const closing = <A>(open: () => A, close: (opened: A) => Promise<unknown>) =>
  Effect.acquireRelease(Effect.sync(open), (opened) => Effect.promise(() => close(opened)))

const asking = (place: (order: Order) => Promise<string>) => (order: Order) => Effect.tryPromise(() => place(order))

const pool = (url: string) => closing(() => new Pool({ connectionString: url, max: 1 }), (pool) => pool.end())

const clients: ReadonlyArray<readonly [name: string, place: Place]> = [
  ["pg", (url) => Effect.map(pool(url), (pool) => asking((order) => PgExample.placeOrder(pool, order)))],
  ["postgres", (url) =>
    Effect.map(
      closing(() => postgres(url, { max: 1 }), (sql) => sql.end()),
      (sql) => asking((order) => PostgresExample.placeOrder(sql, order))
    )],
  [
    "drizzle",
    (url) => Effect.map(pool(url), (client) => asking((order) => DrizzleExample.placeOrder(drizzle({ client }), order)))
  ],
  ["kysely", (url) =>
    Effect.map(
      closing(
        () =>
          new Kysely<KyselyExample.Shop>({
            dialect: new PostgresDialect({ pool: new Pool({ connectionString: url, max: 1 }) })
          }),
        (db) => db.destroy()
      ),
      (db) => asking((order) => KyselyExample.placeOrder(db, order))
    )],
  ["Effect SQL", (url) =>
    Effect.map(
      Effect.orDie(Layer.build(PgClient.layer({ url: Redacted.make(url), maxConnections: 1 }))),
      (context) => (order) => Effect.provideContext(EffectExample.placeOrder(order), context)
    )]
]

/** Where the shop's role finds the database. */
class ShopUrl extends Context.Service<ShopUrl, string>()("deadman/test/examples/Transactions.test/ShopUrl") {}

const shop = Layer.effect(
  ShopUrl,
  Effect.gen(function*() {
    const url = new URL(Redacted.value(yield* Postgres.Url))
    const role = `shop_${crypto.randomUUID().slice(0, 8)}`
    yield* Effect.acquireRelease(
      Effect.orDie(Rows.query(`CREATE ROLE ${role} LOGIN PASSWORD 'secret'`)),
      () => Effect.ignore(Effect.andThen(Rows.query(`DROP OWNED BY ${role}`), Rows.query(`DROP ROLE ${role}`)))
    )
    const statements = [
      `CREATE TABLE public.shop_order (id text PRIMARY KEY, total int NOT NULL)`,
      `CREATE TABLE public.shop_stock (left_over int NOT NULL CHECK (left_over >= 0))`,
      `INSERT INTO public.shop_stock VALUES (1)`,
      `GRANT SELECT, INSERT, UPDATE ON public.shop_order, public.shop_stock TO ${role}`,
      `GRANT USAGE ON SCHEMA deadman TO ${role}`,
      `GRANT EXECUTE ON FUNCTION deadman.submit(text, jsonb, jsonb) TO ${role}`
    ]
    for (const statement of statements) {
      yield* Effect.orDie(Rows.query(statement))
    }
    url.username = role
    url.password = "secret"
    return url.href
  })
)

const ran = new Map<string, unknown>()

const worker = WorkerPool.layer.pipe(
  Layer.provide(Handlers.layer({
    "order.confirm": ({ id, payload }) => Effect.sync(() => void ran.set(id, payload))
  })),
  Layer.provide(WorkerConfig.layer({ name: "confirmer" }))
)

const layer = worker.pipe(
  Layer.provideMerge(Layer.mergeAll(
    JobStorePostgres.layer({ wake: true, keyTtlMs: 60_000 }),
    LeaseRegisterPostgres.layer,
    DelayedJobsPostgres.layer,
    TransportPostgres.layer,
    QueuesPostgres.layer({ wake: true }),
    SessionsPostgres.layer,
    Loops.layer
  )),
  Layer.provideMerge(shop),
  Layer.provideMerge(Postgres.layer)
)

const left = Effect.map(
  Rows.query(`SELECT (SELECT count(*)::int FROM deadman.job) AS jobs, (SELECT count(*)::int FROM deadman.key) AS keys,
                     (SELECT count(*)::int FROM public.shop_order) AS orders, (SELECT left_over FROM public.shop_stock) AS stock`),
  ([row]) => row
)

it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })(
  "an order and its job, in one transaction",
  (it) => {
    it.effect.each(clients)(
      "with %s: what commits runs, and what rolls back was never there",
      ([name, place]) =>
        Effect.gen(function*() {
          const store = yield* JobStore
          const placeOrder = yield* place(yield* ShopUrl)
          const order = (n: number) => ({ id: `${name.replaceAll(" ", "-")}-${n}`, total: 10 })
          yield* Rows.query(`UPDATE public.shop_stock SET left_over = 1`)

          const id = yield* placeOrder(order(1))
          yield* eventually(
            "the job that was committed has run",
            Effect.map(store.get([id as JobId]), ([job]) => job?.state === "completed")
          )
          const before = yield* left
          // The stock is empty: the last statement fails, behind the submit.
          yield* Effect.flip(placeOrder(order(2)))
          yield* Rows.query(`UPDATE public.shop_stock SET left_over = 1`)
          const again = yield* Effect.flip(placeOrder(order(1)))

          assert.deepStrictEqual(ran.get(id), { order: order(1).id })
          assert.deepInclude(before, { stock: 0 })
          assert.deepStrictEqual(yield* left, { ...before, stock: 1 }, String(again))
          assert.deepStrictEqual(yield* Rows.untallied, [])
        })
    )
  }
)
