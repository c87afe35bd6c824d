/** What the statements of the hot path cost the server: buffers, plans and HOT updates, of the very texts they send. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import { claim, claimAll, glance } from "../../../src/adapters/postgres/store/ClaimSql.ts"
import * as SettleSql from "../../../src/adapters/postgres/store/SettleSql.ts"
import { queueDefault } from "../../../src/domain/Job.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import { claimOf, settlement } from "../../contracts/JobStoreContractSteps.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Plans from "../../support/Plans.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

const storeLayer = JobStorePostgres.layer({ wake: false, keyTtlMs: 60_000 })

it.layer(Layer.provideMerge(storeLayer, Postgres.layer), { excludeTestServices: true, timeout: "2 minutes" })(
  "JobStorePostgres: plans",
  (it) => {
    it.effect(
      "an empty claim reads at most 50 buffers past 200,000 jobs that are not for it",
      () =>
        Effect.gen(function*() {
          // The planner is to know nothing until it is told.
          yield* Rows.query(`ALTER TABLE deadman.job SET (autovacuum_enabled = false)`)
          yield* Rows.query(`ALTER TABLE deadman.body SET (autovacuum_enabled = false)`)
          for (let part = 0; part < 4; part++) {
            yield* Rows.many(25_000, { type: "wanted", waiting: true })
            yield* Rows.many(25_000, { type: "foreign" })
          }
          for (const statistics of ["none", "analyzed"]) {
            if (statistics === "analyzed") {
              yield* Rows.query(`ANALYZE deadman.job`)
              yield* Rows.query(`ANALYZE deadman.body`)
            }
            const empty = yield* Plans.ofClaim(["wanted"], 500)
            assert.isAtMost(Plans.buffersOf(empty), 50, `${statistics}: one route`)
            const both = yield* Plans.ofClaim(["wanted", "nobody"], 500)
            assert.isAtMost(Plans.buffersOf(both), 50, `${statistics}: types without jobs`)
            const some = yield* Plans.ofClaim(["wanted", "foreign"], 10)
            assert.isAtMost(Plans.buffersOf(some), 1_000, `${statistics}: ten of 100,000`)
            const full = yield* Plans.ofClaim(["foreign"], 500)
            assert.isAtMost(Plans.buffersOf(full), 25_000, `${statistics}: 500 of 100,000`)
            for (const node of [some, full].flatMap(Plans.nodesOf)) {
              assert.isFalse(
                Plans.walks(node, "job"),
                `${statistics}: jobs are found one by one, in the order of an index`
              )
            }
          }
        }),
      180_000
    )
  }
)

const walksNoTable = (nodes: ReadonlyArray<Plans.Plan>) => {
  for (const node of nodes) {
    assert.isFalse(
      Plans.walks(node, "job") || Plans.walks(node, "body"),
      `${node["Node Type"]} of ${node["Relation Name"]}: the plan walks the table`
    )
  }
}

/** Twenty thousand jobs that are due, for a connection that was there before them. */
const fill = (session: Database.Session, route: number) =>
  session.query(
    `WITH x AS MATERIALIZED (SELECT gen_random_uuid() AS id, n FROM generate_series(1, 20000) n),
          b AS (INSERT INTO deadman.body (id, payload, created_at_ms, max_attempts) SELECT id, '1', n, 10 FROM x)
     INSERT INTO deadman.job (id, run_at_ms, rank, route, bytes) SELECT id, n, n, $1::int, 1 FROM x`,
    [route]
  )

const settles = SettleSql.make({ wake: false, keyTtlMs: 1 })

/** Of a table that was never analyzed the planner believes that it holds something; of one that was, nothing. */
const keptPlans = (analyzed: boolean) =>
  Effect.gen(function*() {
    const database = yield* Database.Database
    for (const table of ["job", "body"]) {
      yield* Rows.query(`ALTER TABLE deadman.${table} SET (autovacuum_enabled = false)`)
      if (analyzed) yield* Rows.query(`ANALYZE deadman.${table}`)
    }
    const route = yield* Rows.route("few")
    yield* database.transaction("quick", (session) =>
      Effect.gen(function*() {
        yield* session.query(`PREPARE few_claim AS ${claim}`)
        yield* session.query(`PREPARE few_all AS ${claimAll(false)}`)
        yield* session.query(`PREPARE few_several AS ${claimAll(true)}`)
        yield* session.query(`PREPARE few_glance AS ${glance}`)
        yield* session.query(`PREPARE few_settle AS ${settles.few.completed}`)
        yield* session.query(`PREPARE few_fail AS ${settles.few.any}`)
        const claiming = (lease: string) =>
          `few_claim('${lease}', 5000, 'ada', '{few,nobody}', NULL, 64, 1e9, 1000, -9223372036854775808, NULL)`
        const claimingAll = (statement: string, limit: number) => (lease: string) =>
          `${statement}('${lease}', 5000, 'ada', '{few,nobody}', NULL, ${limit}, 1e9, 1000, -9223372036854775808)`
        const glancing = `few_glance('{few,nobody}', NULL)`
        const nothing = Array.from({ length: 3 }, () => "'{}'").join(",")
        const failing = (claims: string, n: number, fill: (value: string) => string) =>
          `few_fail(${claims}, ${
            ["1", "NULL", "1000", "NULL", "oops", "oops", "false"].map((value) => n === 0 ? "'{}'" : fill(value))
              .join(
                ","
              )
          })`
        yield* session.query(`EXECUTE ${claiming(crypto.randomUUID())}`)
        for (const statement of ["few_all", "few_several"]) {
          yield* session.query(`EXECUTE ${claimingAll(statement, 64)(crypto.randomUUID())}`)
        }
        yield* session.query(`EXECUTE ${glancing}`)
        yield* session.query(`EXECUTE few_settle(${nothing})`)
        yield* session.query(`EXECUTE ${failing(nothing, 0, String)}`)
        yield* fill(session, route)
        const explain = Effect.fnUntraced(function*(call: string, buffersMax: number) {
          const plan = yield* Plans.explain(session.query, `EXECUTE ${call}`)
          assert.isAtMost(Plans.buffersOf(plan), buffersMax, call.slice(0, 12))
          walksNoTable(Plans.nodesOf(plan))
        })
        yield* explain(glancing, 20)
        const take = Effect.fnUntraced(function*(call: (lease: string) => string) {
          const lease = crypto.randomUUID()
          yield* explain(call(lease), 3_000)
          const rows = yield* session.query<{ id: string }>(
            `SELECT id FROM deadman.job WHERE lease = $1::uuid`,
            [lease]
          )
          assert.lengthOf(rows, 64)
          const list = (each: (id: string) => string) => `'{${rows.map(({ id }) => each(id)).join(",")}}'`
          return { list, claims: `${list((id) => id)}, ${list(() => "1")}, ${list(() => lease)}` }
        })
        const locksNothing = Effect.fnUntraced(function*(call: string) {
          const plan = yield* Plans.explain(session.query, `EXECUTE ${call}`)
          assert.isAtMost(Plans.buffersOf(plan), 1_000)
          walksNoTable(Plans.nodesOf(plan))
          const locks = Plans.nodesOf(plan).filter((node) => node["Node Type"] === "LockRows")
          assert.deepStrictEqual(locks.map((node) => node["Actual Loops"]), [0], call)
        })
        yield* explain(`few_settle(${(yield* take(claiming)).claims})`, 2_000)
        const { claims, list } = yield* take(claimingAll("few_all", 64))
        yield* explain(failing(claims, 64, (value) => list(() => value)), 4_000)
        // What they may not take they do not lock: there are other routes, or more than so many jobs in them.
        const other = yield* session.query<{ id: number }>(
          `INSERT INTO deadman.route (type, queue) VALUES ('nobody', 'nobody') RETURNING id`
        )
        yield* fill(session, other[0]!.id)
        yield* locksNothing(claimingAll("few_all", 64)(crypto.randomUUID()))
        yield* locksNothing(claimingAll("few_several", 64)(crypto.randomUUID()))
        const kept = yield* session.query<{ name: string; generic: number; custom: number }>(
          `SELECT name, generic_plans::int AS generic, custom_plans::int AS custom FROM pg_prepared_statements
             WHERE name LIKE 'few%' ORDER BY name`
        )
        assert.deepStrictEqual(kept, [
          { name: "few_all", generic: 3, custom: 0 },
          { name: "few_claim", generic: 2, custom: 0 },
          { name: "few_fail", generic: 2, custom: 0 },
          { name: "few_glance", generic: 2, custom: 0 },
          { name: "few_settle", generic: 2, custom: 0 },
          { name: "few_several", generic: 2, custom: 0 }
        ])
      }), { deadlineMs: 30_000 })
  })

for (const analyzed of [false, true]) {
  const tables = analyzed ? "analyzed when they were empty" : "never analyzed"
  it.layer(Postgres.layer, { excludeTestServices: true, timeout: "2 minutes" })(
    `JobStorePostgres: kept plans, tables ${tables}`,
    (it) => {
      it.effect(
        "the plans of statements about a few jobs, made for empty tables, find them one by one in full ones",
        () => keptPlans(analyzed)
      )
    }
  )
}

it.layer(Postgres.layer, { excludeTestServices: true, timeout: "2 minutes" })("JobStorePostgres: kept plans", (it) => {
  it.effect("a plan that was made for empty tables finds jobs one by one in full ones", () =>
    Effect.gen(function*() {
      const database = yield* Database.Database
      const route = yield* Rows.route("kept")
      // One connection for all of it, as in a worker that was there before the jobs.
      const nodes = yield* database.transaction("hot", (session) =>
        Effect.gen(function*() {
          yield* session.query(`PREPARE kept_claim AS ${claim}`)
          yield* session.query(`PREPARE kept_settle AS ${settles.many.completed}`)
          const taken = (lease: string) =>
            `kept_claim('${lease}', 5000, 'ada', '{kept,nobody}', NULL, 500, 1e9, 1000, -9223372036854775808, NULL)`
          yield* session.query(`EXECUTE ${taken(crypto.randomUUID())}`)
          yield* session.query(`EXECUTE kept_settle('{}', '{}', '{}')`)
          yield* fill(session, route)
          const explain = Effect.fnUntraced(function*(call: string) {
            const plan = yield* Plans.explain(session.query, `EXECUTE ${call}`)
            assert.isAtMost(Plans.buffersOf(plan), 25_000, call)
            return Plans.nodesOf(plan)
          })
          const lease = crypto.randomUUID()
          const claimed = yield* explain(taken(lease))
          const ids = yield* session.query<{ id: string }>(`SELECT id FROM deadman.job WHERE lease = $1::uuid`, [lease])
          assert.lengthOf(ids, 500)
          const list = (each: (id: string) => string) => `'{${ids.map(({ id }) => each(id)).join(",")}}'`
          const settled = yield* explain(`kept_settle(${list((id) => id)}, ${list(() => "1")}, ${list(() => lease)})`)
          return [...claimed, ...settled]
        }), { deadlineMs: 30_000 })
      walksNoTable(nodes)
    }))
})

it.layer(Postgres.layer, { excludeTestServices: true })("JobStorePostgres: planning", (it) => {
  it.effect("a submit is planned once a connection, as is what one job costs, and claims and settles of many each time", () =>
    Effect.gen(function*() {
      const url = yield* Postgres.Url
      yield* Effect.gen(function*() {
        const store = yield* JobStore
        const database = yield* Database.Database
        const type = yield* Jobs.freshType
        const run = Effect.fnUntraced(function*(count: number, glances: boolean) {
          yield* store.submit(yield* Jobs.jobs(count, { type }), { atomic: false })
          const lease = yield* Jobs.freshLease
          const taken = yield* store.claim({
            lease,
            leaseMs: 5_000,
            worker: "ada",
            types: [type],
            // One that comes back full is followed by the statement for many.
            limit: count + 1,
            freeSlots: count + 1,
            bytes: 1e9,
            glance: glances
          })
          assert.lengthOf(taken, count)
          yield* store.settle(taken.map((job) => settlement(claimOf(lease, job), "complete", { result: null })))
        })
        // The first submit of a type makes its route.
        yield* run(1, false)
        yield* Effect.forEach([1, 2, 3], () => run(1, true), { discard: true })
        yield* run(300, false)
        yield* run(300, false)
        const planned = (lane: Database.Lane) =>
          Effect.map(
            database.query<{ calls: number; custom: number }>(
              lane,
              `SELECT (generic_plans + custom_plans)::int AS calls, custom_plans::int AS custom
               FROM pg_prepared_statements
               WHERE statement ~ 'INSERT INTO deadman.job |INSERT INTO deadman.lease |SELECT EXISTS|SET state '
                 AND statement !~ 'pg_prepared_statements'
               ORDER BY calls`
            ),
            (rows) => rows.map(({ calls, custom }) => [calls, custom])
          )
        assert.deepStrictEqual(
          yield* planned("quick"),
          [[3, 0], [4, 0], [4, 0], [7, 0]],
          "glances, claims, settles, submits"
        )
        assert.deepStrictEqual(yield* planned("hot"), [[2, 2], [2, 2]])
      }).pipe(Effect.provide(Layer.provideMerge(storeLayer, Database.layer({ url, storePool: 1 }))))
    }))
})

it.layer(Postgres.layer, { excludeTestServices: true })("JobStorePostgres: updates", (it) => {
  it.effect("every settle of a completed job is a HOT update", () =>
    Effect.gen(function*() {
      const url = yield* Postgres.Url
      const count = 3_000
      const updates = Effect.map(
        Rows.query(
          `SELECT n_tup_upd::float8 AS all, n_tup_hot_upd::float8 AS hot FROM pg_stat_user_tables
           WHERE schemaname = 'deadman' AND relname = 'job'`
        ),
        ([row]) => ({ all: Number(row?.["all"]), hot: Number(row?.["hot"]) })
      )
      // Connections of its own, because a server process tells its counters when it ends.
      const drained = Effect.gen(function*() {
        const store = yield* JobStore
        const type = yield* Jobs.freshType
        for (let from = 0; from < count; from += 500) {
          // Those with terms have more columns and more indexes, none of which a settle touches.
          const terms = from < count / 2 ? {} : { retainMs: 60_000, startByMs: 253_402_300_799_999 }
          yield* store.submit(yield* Jobs.jobs(500, { type, payload: `{"n":${from}}`, ...terms }), { atomic: false })
        }
        const drain = Effect.gen(function*() {
          for (;;) {
            const lease = yield* Jobs.freshLease
            const taken = yield* store.claim({
              lease,
              leaseMs: 5_000,
              // As long as the names that workers draw: it is what each update adds.
              worker: "worker-0123456789abcdef",
              types: [type],
              queues: [queueDefault],
              limit: 250,
              freeSlots: 250,
              bytes: 1e9
            })
            if (taken.length === 0) return
            const answers = yield* store.settle(
              taken.map((job) => settlement(claimOf(lease, job), "complete", { result: null }))
            )
            assert.isTrue(answers.every((answer) => answer._tag === "Settled" && !answer.repeated))
          }
        })
        // Side by side: what one still sees, the other cannot clean away to make room.
        yield* Effect.all([drain, drain], { concurrency: 2 })
      }).pipe(Effect.provide(Layer.provide(storeLayer, Database.layer({ url }))))
      yield* drained
      // The claim takes the job out of the ready index, so it cannot be one.
      yield* eventually("two updates a job are counted", Effect.map(updates, ({ all }) => all === 2 * count))
      assert.strictEqual((yield* updates).hot, count)
    }))
})
