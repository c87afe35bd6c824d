/** `deadman.submit`, as whoever has nothing but a connection calls it. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Fiber, Layer, Queue, Redacted } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import * as ApiError from "../../../src/adapters/http/ApiError.ts"
import * as SubmitBody from "../../../src/adapters/http/SubmitBody.ts"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import type { Job, NewJob } from "../../../src/domain/Job.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import * as JsonText from "../../../src/domain/JsonText.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import * as Steps from "../../contracts/JobStoreContractSteps.ts"
import * as Backends from "../../support/Backends.ts"
import { eventually } from "../../support/Eventually.ts"
import * as Jobs from "../../support/Jobs.ts"
import * as Postgres from "../../support/Postgres.ts"
import * as Rows from "../../support/Rows.ts"

type Fields = Readonly<Record<string, unknown>>

/** A connection as a user has one, of whatever role. */
const connected = (user?: string) =>
  Effect.gen(function*() {
    const url = new URL(Redacted.value(yield* Postgres.Url))
    if (user !== undefined) {
      url.username = user
      url.password = "secret"
    }
    const context = yield* Layer.build(
      PgClient.layer({ url: Redacted.make(url.href), maxConnections: 1, applicationName: "a-shop" })
    )
    return (yield* SqlClient.SqlClient.pipe(Effect.provideContext(context)))
  })

const call = (sql: SqlClient.SqlClient, type: unknown, payload: unknown, options: unknown = {}) =>
  Effect.map(
    sql.unsafe<{ readonly id: string }>(
      "SELECT deadman.submit($1::text, $2::text::jsonb, $3::text::jsonb) AS id",
      [type, payload === undefined ? null : JSON.stringify(payload), JSON.stringify(options)]
    ),
    ([row]) => row!.id as JobId
  )

const saidOf = (error: SqlError.SqlError) => {
  const cause = error.reason.cause as { readonly code?: string; readonly message?: string }
  return { code: cause.code ?? "", message: cause.message ?? "" }
}

const insertedBy = (body: Fields, change: Partial<NewJob> = {}) =>
  Effect.gen(function*() {
    const store = yield* JobStore
    const draft = SubmitBody.decode(body, "", null)
    if (draft instanceof ApiError.ApiError) return assert.fail(draft.message)
    const id = yield* Jobs.freshId
    const { answers } = yield* store.submit([{ ...draft, id, ...change }], { atomic: false })
    return answers[0]!
  })

/** What two jobs from one request have in common. */
const asked = ({ createdAtMs: _c, id: _i, runAtMs: _r, ...rest }: Job) => rest

const settled = { idempotency_key: "k-1", queue: "q", priority: -3, tags: ["a", "b c"] }

const good: ReadonlyArray<readonly [payload: unknown, options: Fields]> = [
  [{ to: "ada", n: [1, 2.5, 1e21, -0.000001, "é😀\n"] }, {}],
  [null, { queue: "mail.out", priority: -1000, max_attempts: 1, timeout_ms: 604_800_000 }],
  [[], { priority: 1000, max_attempts: 1000, timeout_ms: null, run_at_ms: null, tags: [] }],
  ["text", { tags: ["a", "x:y z", "!".repeat(64)], run_at_ms: 253_402_300_799_999 }],
  [0, { backoff: { kind: "fixed", delay_ms: 0 } }],
  [0, { backoff: { kind: "exponential", base_ms: 1_000, cap_ms: 900_000 } }],
  [0, { backoff: { kind: "exponential", base_ms: 86_400_000, cap_ms: 1 } }],
  [{ a: 1, b: 2 }, { unique: {} }],
  [{ a: 1, b: 3 }, { unique: { fields: ["b", "a"], window_ms: 60_000 } }],
  [{ a: 1, b: 4 }, { unique: { fields: null, window_ms: null, states: ["dead", "pending"], on_conflict: "replace" } }],
  [{ a: 1 }, { start_by_ms: 253_402_300_799_999, retain_ms: 0, unique: null }],
  [{ a: 1 }, { start_by_ms: null, retain_ms: 3_155_760_000_000, run_at_ms: 0 }],
  [{ a: 1 }, { run_at_ms: 999_999_999, start_by_ms: 100_000_000_000 }],
  [0, { delay_ms: 3_155_760_000_000, run_at_ms: null }],
  [0, { delay_ms: 0, start_by_ms: 100_000_000_000 }]
]

const bad: ReadonlyArray<readonly [field: string, payload: unknown, options: unknown]> = [
  ["colour", 0, { colour: "red" }],
  ["key", 0, { key: "red" }],
  ["debounce", 0, { debounce: 1 }],
  ["queue", 0, { queue: "no spaces" }],
  ["queue", 0, { queue: null }],
  ["queue", 0, { queue: "x".repeat(129) }],
  ["priority", 0, { priority: 1001 }],
  ["priority", 0, { priority: 0.5 }],
  ["priority", 0, { priority: "1" }],
  ["priority", 0, { priority: null }],
  ["max_attempts", 0, { max_attempts: 0 }],
  ["max_attempts", 0, { max_attempts: 1001 }],
  ["run_at_ms", 0, { run_at_ms: -1 }],
  ["run_at_ms", 0, { run_at_ms: 253_402_300_800_000 }],
  ["run_at_ms", 0, { run_at_ms: 1_000_000_000 }],
  ["run_at_ms", 0, { run_at_ms: 99_999_999_999 }],
  ["delay_ms", 0, { delay_ms: -1 }],
  ["delay_ms", 0, { delay_ms: 0.5 }],
  ["delay_ms", 0, { delay_ms: "1" }],
  ["delay_ms", 0, { delay_ms: 3_155_760_000_001 }],
  ["delay_ms", 0, { delay_ms: 1, run_at_ms: 1 }],
  ["delay_ms", 0, { delay_ms: 0, run_at_ms: 0 }],
  ["timeout_ms", 0, { timeout_ms: 0 }],
  ["timeout_ms", 0, { timeout_ms: 604_800_001 }],
  ["backoff", 0, { backoff: null }],
  ["backoff", 0, { backoff: { kind: "fixed", delay_ms: 86_400_001 } }],
  ["backoff", 0, { backoff: { kind: "fixed", delay_ms: 1, cap_ms: 2 } }],
  ["backoff", 0, { backoff: { kind: "linear", delay_ms: 1 } }],
  ["backoff", 0, { backoff: { kind: "exponential", base_ms: 1 } }],
  ["tags", 0, { tags: "a" }],
  ["tags", 0, { tags: [" a"] }],
  ["tags", 0, { tags: ["é"] }],
  ["tags", 0, { tags: ["x".repeat(65)] }],
  ["tags", 0, { tags: Array.from({ length: 33 }, () => "a") }],
  ["idempotency_key", 0, { idempotency_key: "" }],
  ["idempotency_key", 0, { idempotency_key: "a b" }],
  ["idempotency_key", 0, { idempotency_key: "x".repeat(256) }],
  ["start_by_ms", 0, { start_by_ms: 1.5 }],
  ["start_by_ms", 0, { start_by_ms: 1_700_000_000 }],
  ["start_by_ms", 0, { start_by_ms: 10, run_at_ms: 11 }],
  ["retain_ms", 0, { retain_ms: -1 }],
  ["retain_ms", 0, { retain_ms: 3_155_760_000_001 }],
  ["unique", 0, { unique: true }],
  ["unique.colour", 0, { unique: { colour: 1 } }],
  ["unique.fields", {}, { unique: { fields: [] } }],
  ["unique.fields", {}, { unique: { fields: ["a", "a"] } }],
  ["unique.fields", {}, { unique: { fields: [""] } }],
  ["unique.fields", {}, { unique: { fields: Array.from({ length: 17 }, (_, n) => `f${n}`) } }],
  ["unique.fields", [1], { unique: { fields: ["a"] } }],
  ["unique.window_ms", 0, { unique: { window_ms: 0 } }],
  ["unique.window_ms", 0, { unique: { window_ms: 31_622_400_001 } }],
  ["unique.states", 0, { unique: { states: [] } }],
  ["unique.states", 0, { unique: { states: null } }],
  ["unique.states", 0, { unique: { states: ["gone"] } }],
  ["unique.states", 0, { unique: { states: ["dead", "dead"] } }],
  ["unique.on_conflict", 0, { unique: { on_conflict: "merge" } }]
]

const badTypes = ["", "no spaces", ".dot", "x".repeat(129), null]

/** JSON text that is refused, or taken, at the edges of what can be stored. */
const texts: ReadonlyArray<readonly [text: string, taken: boolean]> = [
  ["9007199254740993", false],
  ["9007199254740992", true],
  ["1152921504606846976", true],
  ["12345678901234567890", false],
  ["1e22", true],
  ["1e400", false],
  ["1e-400", false],
  ["2e-320", true],
  ["0.1234567890123456789", true],
  [`${"[".repeat(255)}${"]".repeat(255)}`, true],
  [`${"[".repeat(256)}${"]".repeat(256)}`, false],
  [`${"[".repeat(255)}1${"]".repeat(255)}`, true],
  [JSON.stringify("x".repeat(1_048_574)), true],
  [JSON.stringify("x".repeat(1_048_575)), false],
  // As it stands in a table it has a space behind each comma, which no limit speaks of.
  [JSON.stringify(Array.from({ length: 400_000 }, () => 1)), true],
  [JSON.stringify(Array.from({ length: 524_288 }, () => 1)), false],
  [JSON.stringify(Object.fromEntries(Array.from({ length: 90_000 }, (_, n) => [`k${n}`, 1]))), true]
]

const layer = Layer.provideMerge(JobStorePostgres.layer({ wake: true, keyTtlMs: 60_000 }), Postgres.layer)

it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })("deadman.submit", (it) => {
  it.effect("stores what the same request over HTTP would store", () =>
    Effect.gen(function*() {
      const sql = yield* connected()
      for (const [payload, options] of good) {
        const type = yield* Jobs.freshType
        const bySql = yield* call(sql, type, payload, options)
        const other = yield* Jobs.freshType
        const answer = yield* insertedBy({ type: other, payload, ...options })
        if (answer._tag !== "Created") return assert.fail(answer._tag)
        assert.deepStrictEqual(
          asked(yield* Steps.read(bySql)),
          { ...asked(yield* Steps.read(answer.id)), type },
          JSON.stringify(options)
        )
      }
    }))

  it.effect("refuses what HTTP refuses, and names the field", () =>
    Effect.gen(function*() {
      const sql = yield* connected()
      for (const [field, payload, options] of bad) {
        const byHttp = SubmitBody.decode({ type: "t", payload, ...(options as Fields) }, "", null)
        const bySql = saidOf(yield* Effect.flip(call(sql, "t", payload, options)))
        const shown = JSON.stringify(options)
        assert.strictEqual(byHttp instanceof ApiError.ApiError && byHttp.field, field, shown)
        assert.strictEqual(bySql.code, "22023", shown)
        assert.isTrue(bySql.message.startsWith(`${field} `), `${shown}: ${bySql.message}`)
      }
      for (const type of badTypes) {
        assert.instanceOf(SubmitBody.decode({ type }, "", null), ApiError.ApiError)
        assert.match(saidOf(yield* Effect.flip(call(sql, type, 0))).message, /^type must be/)
      }
      for (const options of [[], "text", 1]) {
        assert.match(saidOf(yield* Effect.flip(call(sql, "t", 0, options))).message, /^options must be/)
      }
    }))

  it.effect("takes and refuses the same payloads as HTTP", () =>
    Effect.gen(function*() {
      const sql = yield* connected()
      for (const [text, taken] of texts) {
        const shown = text.slice(0, 60)
        assert.strictEqual(
          SubmitBody.decodeText(`{"type":"t","payload":${text}}`, null) instanceof ApiError.ApiError,
          !taken,
          shown
        )
        const bySql = yield* Effect.exit(sql.unsafe("SELECT deadman.submit('t', $1::text::jsonb)", [text]))
        assert.strictEqual(bySql._tag, taken ? "Success" : "Failure", shown)
      }
    }))

  it.effect("writes JSON in one spelling, the same as the server does", () =>
    Effect.gen(function*() {
      const sql = yield* connected()
      const draw = (function*() {
        for (let state = 1;; state = (state * 48_271) % 2_147_483_647) yield state / 2_147_483_647
      })()
      const next = () => draw.next().value as number
      const numbers = Array.from({ length: 2_000 }, () => {
        const value = (next() - 0.5) * 10 ** Math.floor(next() * 60 - 30)
        return next() < 0.3 ? Math.round(value) + 0 : value
      })
      const edges = [
        0,
        1e15,
        1e16,
        1e20,
        123456789012345680000,
        1e21,
        1e-6,
        1e-7,
        1.5e-7,
        5e-324,
        1.7976931348623157e308
      ]
      const text = {
        "": null,
        b: [true, "a\"\\/\b\f\n\r\t\u0001\u001f\u007fé😀"],
        a: { z: {}, "A": [], "é": 1, "_": 0 }
      }
      for (const value of [...numbers, ...edges, ...edges.map((edge) => -edge), text]) {
        const json = JSON.stringify(value)
        const [row] = yield* sql.unsafe<{ text: string }>("SELECT deadman.canonical($1::text::jsonb) AS text", [json])
        assert.strictEqual(row?.text, JsonText.canonical(JSON.parse(json)), json)
      }
    }))

  it.effect("I10: one Idempotency-Key is one job, whichever way it comes", () =>
    Effect.gen(function*() {
      const sql = yield* connected()
      const type = yield* Jobs.freshType
      const key = yield* Jobs.freshKey
      const payload = { n: 1, at: [1.5, 1e21] }
      const options = { ...settled, idempotency_key: key }
      const first = yield* call(sql, type, payload, options)

      const again = yield* call(sql, type, { at: [1.50, 1000000000000000000000], n: 1 }, options)
      const byHttp = yield* insertedBy({ ...options, payload, type })
      const other = saidOf(yield* Effect.flip(call(sql, type, { n: 2 }, options)))
      const otherByHttp = yield* insertedBy({ type, payload: { n: 2 }, idempotency_key: key })

      assert.strictEqual(again, first)
      assert.deepStrictEqual(byHttp, { _tag: "Replayed", id: first })
      assert.strictEqual(other.code, "DM003")
      assert.match(other.message, /^idempotency_key was used/)
      assert.deepStrictEqual(otherByHttp, { _tag: "KeyMismatch", id: first })
      assert.lengthOf(yield* Steps.take({ type }), 1)
    }))

  it.effect("a delay counts from the call, and its key knows it again however much later", () =>
    Effect.gen(function*() {
      const sql = yield* connected()
      const type = yield* Jobs.freshType
      const delayed = { delay_ms: 60_000, idempotency_key: yield* Jobs.freshKey }
      const first = yield* call(sql, type, 1, delayed)
      const { createdAtMs, runAtMs } = yield* Steps.read(first)
      assert.strictEqual(runAtMs - createdAtMs, 60_000)
      yield* Effect.sleep("20 millis")
      assert.strictEqual(yield* call(sql, type, 1, delayed), first)
      assert.deepStrictEqual(yield* insertedBy({ type, payload: 1, ...delayed }), { _tag: "Replayed", id: first })
      assert.strictEqual(saidOf(yield* Effect.flip(call(sql, type, 1, { ...delayed, delay_ms: 60_001 }))).code, "DM003")

      const idempotency_key = yield* Jobs.freshKey
      const plain = yield* insertedBy({ type, payload: 2, idempotency_key })
      for (const delay_ms of [0, null]) {
        const none = { delay_ms, idempotency_key }
        assert.deepStrictEqual(
          { id: yield* call(sql, type, 2, none), ...yield* insertedBy({ type, payload: 2, ...none }) },
          { _tag: "Replayed", id: plain._tag === "Created" ? plain.id : assert.fail(plain._tag) }
        )
      }
    }))

  it.effect("what must be unique is so, whichever way it comes", () =>
    Effect.gen(function*() {
      const sql = yield* connected()
      const type = yield* Jobs.freshType
      const options = { unique: { fields: ["to"] } }
      const first = yield* call(sql, type, { to: { b: 1, a: [2] }, n: 1 }, options)

      const bySql = yield* call(sql, type, { n: 2, to: { a: [2], b: 1 } }, options)
      const byHttp = yield* insertedBy({ type, payload: { to: { a: [2.0], b: 1 } }, ...options })
      const replacing = yield* call(sql, type, { to: { b: 1, a: [2] } }, {
        unique: { fields: ["to"], on_conflict: "replace" }
      })

      assert.deepStrictEqual([bySql, byHttp], [first, { _tag: "Skipped", id: first }])
      assert.include(yield* Steps.read(first), { state: "dead", reason: "cancelled" })
      assert.deepStrictEqual(Steps.idsOf(yield* Steps.take({ type })), [replacing])
      assert.deepStrictEqual(yield* Rows.untallied, [])
    }))

  it.effect("commits and wakes with the caller's transaction, and leaves nothing where that rolls back", () =>
    Effect.gen(function*() {
      const sql = yield* connected()
      const store = yield* JobStore
      const { notifications } = yield* (yield* Database.Database).listen("deadman_wake")
      const all = Rows.query(
        `SELECT (SELECT count(*)::int FROM deadman.job) AS job, (SELECT count(*)::int FROM deadman.body) AS body,
                (SELECT count(*)::int FROM deadman.key) AS key, (SELECT count(*)::int FROM deadman.route) AS route,
                (SELECT count(*)::int FROM deadman.uniqueness) AS uniqueness,
                (SELECT sum(n)::int FROM deadman.tally) AS tally`
      )
      const before = yield* all
      const type = yield* Jobs.freshType
      const options = { idempotency_key: yield* Jobs.freshKey, unique: {} }
      const undone = yield* Effect.flip(sql.withTransaction(Effect.gen(function*() {
        const id = yield* call(sql, type, 1, options)
        assert.lengthOf(yield* store.get([id]), 0, "nobody sees it before the commit")
        return yield* Effect.fail(id)
      })))
      assert.deepStrictEqual(yield* all, before)
      assert.lengthOf(yield* store.get([undone as JobId]), 0)
      const done = yield* sql.withTransaction(call(sql, type, 1, options))
      assert.notStrictEqual(done, undone)
      assert.strictEqual((yield* Queue.take(notifications)).payload, "r")
      yield* sql.unsafe("SELECT pg_notify('deadman_wake', 'end')")
      assert.strictEqual((yield* Queue.take(notifications)).payload, "end", "the one rolled back woke nobody")
      assert.deepStrictEqual(Steps.idsOf(yield* Steps.take({ type })), [done])
      assert.deepStrictEqual(yield* Rows.untallied, [])
    }))

  it.effect("many in one transaction are many jobs, in the order of their priority", () =>
    Effect.gen(function*() {
      const sql = yield* connected()
      const type = yield* Jobs.freshType
      yield* sql.unsafe(
        `SELECT deadman.submit($1::text, to_jsonb(n), jsonb_build_object('priority', n % 3)) FROM generate_series(1, 300) n`,
        [type]
      )
      const taken = yield* Steps.take({ type }, { limit: 1_000 })

      assert.lengthOf(taken, 300)
      assert.deepStrictEqual(taken.slice(0, 100).map(({ payload }) => Number(payload) % 3), Array(100).fill(2))
    }))

  it.effect("I11: draws ids with 74 random bits", () =>
    Effect.gen(function*() {
      const sql = yield* connected()
      const [row] = yield* sql.unsafe<{ ids: Array<string>; now: number }>(
        `SELECT array_agg(deadman.new_id()) AS ids, deadman.now_ms()::float8 AS now FROM generate_series(1, 20000)`
      )
      const ids = row!.ids
      assert.strictEqual(new Set(ids).size, 20_000)
      for (const id of ids) {
        assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
      }
      assert.isBelow(Math.abs(Number.parseInt(ids[0]!.replaceAll("-", "").slice(0, 12), 16) - row!.now), 10_000)
      // Each random bit is set about as often as not: 20,000 draws, and eight standard deviations.
      for (let bit = 0; bit < 128; bit++) {
        if (bit < 52 || (bit >= 64 && bit < 66)) continue
        const set = ids.filter((id) => (BigInt(`0x${id.replaceAll("-", "")}`) >> BigInt(127 - bit)) % 2n === 1n).length
        assert.isBelow(Math.abs(set - 10_000), 600, `bit ${bit}`)
      }
    }))

  it.effect("a role needs the use of the schema and of the function, and can do nothing else with them", () =>
    Effect.gen(function*() {
      const owner = yield* connected()
      const role = `shop_${crypto.randomUUID().slice(0, 8)}`
      yield* Effect.acquireRelease(
        owner.unsafe(`CREATE ROLE ${role} LOGIN PASSWORD 'secret'`),
        () => Effect.ignore(Effect.andThen(owner.unsafe(`DROP OWNED BY ${role}`), owner.unsafe(`DROP ROLE ${role}`)))
      )
      yield* owner.unsafe(`GRANT USAGE ON SCHEMA deadman TO ${role}`)
      const sql = yield* connected(role)
      const type = yield* Jobs.freshType
      const refused = saidOf(yield* Effect.flip(call(sql, type, 1)))
      yield* owner.unsafe(`GRANT EXECUTE ON FUNCTION deadman.submit(text, jsonb, jsonb) TO ${role}`)

      const id = yield* call(sql, type, { a: 1 }, { idempotency_key: yield* Jobs.freshKey, unique: {} })

      assert.strictEqual(refused.code, "42501")
      assert.strictEqual((yield* Steps.read(id)).state, "pending")
      const others = [
        "SELECT * FROM deadman.job",
        "INSERT INTO deadman.route (type, queue) VALUES ('a', 'b')",
        "DELETE FROM deadman.key",
        `SELECT deadman.cancel_waiting('${id}')`,
        "SELECT deadman.store_job(gen_random_uuid(), 'a', 'b', '1', 1, 0, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
      ]
      for (const statement of others) {
        assert.strictEqual(saidOf(yield* Effect.flip(sql.unsafe(statement))).code, "42501", statement)
      }
    }))

  it.effect("names of a caller's own shadow nothing that the function uses", () =>
    Effect.gen(function*() {
      const sql = yield* connected()
      yield* sql.withTransaction(Effect.gen(function*() {
        yield* sql.unsafe(`CREATE TEMP TABLE job (id int)`)
        yield* sql.unsafe(`CREATE FUNCTION public.jsonb_typeof(jsonb) RETURNS text LANGUAGE sql AS $$ SELECT 'null' $$`)
        yield* sql.unsafe(`SET LOCAL search_path = public, pg_catalog`)
        const id = yield* call(sql, yield* Jobs.freshType, { a: 1 }, { tags: ["a"] })
        assert.match(id, /^[0-9a-f-]{36}$/)
        yield* sql.unsafe(`DROP FUNCTION public.jsonb_typeof(jsonb)`)
      }))
    }))

  it.effect("a transaction that stays open holds up only who wants the same key, place or new type", () =>
    Effect.gen(function*() {
      const store = yield* JobStore
      const [mine, theirs] = [yield* connected(), yield* connected()]
      const known = yield* Steps.submitted()
      const key = yield* Jobs.freshKey
      const type = yield* Jobs.freshType
      const from = yield* Clock.monotonicTimeNanos
      const msSince = (nanos: bigint) =>
        Effect.map(Clock.monotonicTimeNanos, (now) => Number((now - nanos) / 1_000_000n))

      yield* mine.withTransaction(Effect.gen(function*() {
        const held = yield* call(mine, type, 1, { idempotency_key: key, unique: {} })
        const free = yield* Jobs.jobs(50, { type: known.type })
        const fingerprint = { key, fingerprint: "f" }
        const unique = { fields: null, window_ms: null, states: ["pending"], on_conflict: "skip" } as const
        const answers = yield* Effect.forEach(
          [
            free,
            [yield* Jobs.job({ type: known.type, key: fingerprint })],
            [yield* Jobs.job({ type, payload: "1", unique })],
            [yield* Jobs.job({ type })]
          ],
          (jobs) => store.submit(jobs, { atomic: false }),
          { concurrency: 4 }
        )
        const tags = answers.map(({ answers }) => Array.from(new Set(answers.map(({ _tag }) => _tag))))
        assert.deepStrictEqual(tags, [["Created"], ["KeyLocked"], ["KeyLocked"], ["Undecided"]])
        assert.lengthOf(yield* Steps.take(known, { limit: 51 }), 51)
        yield* call(theirs, known.type, 2, { unique: {} })

        const waiting = yield* Clock.monotonicTimeNanos
        const refused = saidOf(yield* Effect.flip(call(theirs, known.type, 1, { idempotency_key: key })))
        assert.strictEqual(refused.code, "55P03", "nobody waits without end")
        assert.isAtLeast(yield* msSince(waiting), 2_900)
        assert.isAtMost(yield* msSince(waiting), 10_000)
        assert.lengthOf(yield* store.get([held]), 0)
      }))
      assert.isAtMost(yield* msSince(from), 25_000)
      const [timeout] = yield* theirs.unsafe<{ lock_timeout: string }>("SHOW lock_timeout")
      assert.strictEqual(timeout?.lock_timeout, "0", "the caller's own setting is as it was")
      const { answers } = yield* store.submit([yield* Jobs.job({ type })], { atomic: false })
      assert.strictEqual(answers[0]?._tag, "Created")
    }))

  it.effect("who waits for a key gets the job of the transaction that committed, or its own where that rolled back", () =>
    Effect.gen(function*() {
      const [mine, theirs] = [yield* connected(), yield* connected()]
      const type = yield* Jobs.freshType
      yield* call(mine, type, 0)
      for (const commits of [true, false]) {
        const options = { idempotency_key: yield* Jobs.freshKey }
        const ids = yield* Effect.exit(mine.withTransaction(Effect.gen(function*() {
          const first = yield* call(mine, type, 1, options)
          const fiber = yield* Effect.forkDetach(call(theirs, type, 1, options))
          yield* eventually(
            "the other one waits",
            Effect.map(Backends.counted(`application_name = 'a-shop' AND wait_event_type = 'Lock'`), (n) => n > 0)
          )
          return yield* commits ? Effect.succeed({ first, fiber }) : Effect.fail({ first, fiber })
        })))
        const { fiber, first } = ids._tag === "Success"
          ? ids.value
          : yield* Effect.flip(Effect.flatMap(ids, () => Effect.die("committed"))).pipe(
            Effect.flatMap((error) => "fiber" in error ? Effect.succeed(error) : Effect.die(error))
          )
        const second = yield* Fiber.join(fiber)
        assert.strictEqual(second === first, commits)
      }
    }))
})
