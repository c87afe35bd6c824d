/**
 * Deadman on a database that somebody else administers: the schema is made beforehand, one role migrates it and another
 * uses it, roles have settings of their own, and the encoding is another. What is granted is what docs/operations.md shows.
 */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Redacted, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { randomBytes } from "node:crypto"
import { readFileSync } from "node:fs"
import * as Checkup from "../../../src/adapters/postgres/Checkup.ts"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as JobStorePostgres from "../../../src/adapters/postgres/JobStorePostgres.ts"
import * as Migrations from "../../../src/adapters/postgres/Migrations.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import { Deadman, Job } from "../../../src/programs/deadman.ts"
import { claimOf, request, settlement, written } from "../../contracts/JobStoreContractSteps.ts"
import { freshDatabase } from "../../support/Database.ts"
import * as Jobs from "../../support/Jobs.ts"

const on = (url: Redacted.Redacted, ...statements: ReadonlyArray<string>) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => Effect.forEach(statements, (statement) => sql.unsafe<Record<string, unknown>>(statement))
  ).pipe(
    Effect.map((all) => all.at(-1) ?? []),
    Effect.provide(PgClient.layer({ url, maxConnections: 1, applicationName: "deadman-tests" }))
  )

/** A managed database: nobody but its owner may make anything in it. With two roles, and addresses for each. */
const managed = Effect.gen(function*() {
  const { name, url } = yield* freshDatabase
  yield* on(
    url,
    `DROP SCHEMA deadman CASCADE`,
    `REVOKE ALL ON DATABASE ${name} FROM PUBLIC`,
    `REVOKE ALL ON SCHEMA public FROM PUBLIC`
  )
  const as = (role: string) => {
    const parsed = new URL(Redacted.value(url))
    parsed.username = role
    parsed.password = "test"
    return Redacted.make(parsed.href)
  }
  const suffix = randomBytes(4).toString("hex")
  const role = (what: string) =>
    Effect.acquireRelease(
      Effect.gen(function*() {
        const role = `${what}_${suffix}`
        yield* on(url, `CREATE ROLE ${role} LOGIN PASSWORD 'test'`, `GRANT CONNECT ON DATABASE ${name} TO ${role}`)
        return role
      }),
      (role) => Effect.orDie(on(url, `DROP OWNED BY ${role} CASCADE`, `DROP ROLE ${role}`))
    )
  return { name, url, as, owner: yield* role("deadman_owner"), app: yield* role("app") }
})

/** The statements of docs/operations.md, for these roles. */
const documented = (
  heading: string,
  roles: { readonly owner: string; readonly app: string }
): ReadonlyArray<string> => {
  const text = readFileSync("docs/operations.md", "utf8")
  const from = text.indexOf(heading)
  assert.isAbove(from, 0, heading)
  const block = /```sql\n([\s\S]+?)```/.exec(text.slice(from))?.[1] ?? ""
  const statements = block.replaceAll(/--.*$/gm, "").split(";").map((one) => one.trim()).filter((one) => one !== "")
  assert.isAbove(statements.length, 1, block)
  return statements.map((one) => one.replaceAll(/\bdeadman_owner\b/g, roles.owner).replaceAll(/\bapp\b/g, roles.app))
}

/** A job from submit to settle, and the doctor finds no right missing. */
const worked = (url: Redacted.Redacted) =>
  Effect.gen(function*() {
    yield* Migrations.migrate(url)
    const store = yield* JobStore
    const job = yield* Jobs.job({
      type: yield* Jobs.freshType,
      key: { key: yield* Jobs.freshKey, fingerprint: "f" },
      startByMs: (yield* store.now) + 60_000
    })
    const { answers } = yield* store.submit([job], { atomic: true })
    assert.strictEqual(answers[0]?._tag, "Created")
    const asked = yield* request(job)
    const [taken] = yield* store.claim(asked)
    assert.deepStrictEqual(yield* store.settle([settlement(claimOf(asked.lease, taken!), "complete")]), [written])
    const facts = yield* Checkup.look(url)
    assert.deepStrictEqual(facts.missingRights, [])
    assert.strictEqual(facts.schemaVersion, Migrations.schemaVersion)
  }).pipe(
    Effect.provide(Layer.provideMerge(
      JobStorePostgres.layer({ wake: true, keyTtlMs: 60_000 }),
      Database.layer({ url })
    ))
  )

it.live("a schema that was made for the owner, and a role that may only use it", () =>
  Effect.gen(function*() {
    const { app, as, owner, url } = yield* managed
    const refused = yield* Effect.flip(Migrations.migrate(as(owner)))
    assert.match(refused.message, /permission denied for database .*docs\/operations\.md lists the rights/)
    assert.isTrue(Migrations.isHopeless(refused))
    const [made, ...granted] = documented("**Rights.**", { owner, app })
    assert.include(made, "CREATE SCHEMA")
    yield* on(url, made!)
    yield* Migrations.migrate(as(owner))
    yield* on(as(owner), ...granted)
    yield* worked(as(app))
    yield* worked(as(owner))
    // What an upgrade adds belongs to the same role, and needs no second grant.
    yield* on(as(owner), `CREATE TABLE deadman.added (n int)`)
    yield* on(as(app), `INSERT INTO deadman.added VALUES (1)`, `DROP TABLE IF EXISTS deadman.nothing`)
    const denied = yield* Effect.flip(on(as(app), `CREATE TABLE deadman.mine (n int)`))
    assert.include(String(denied.reason.cause), "permission denied")
    yield* on(as(owner), `DROP TABLE deadman.added`)
  }).pipe(Effect.scoped), 180_000)

it.live("a schema of somebody else's, in which the migrating role may make things", () =>
  Effect.gen(function*() {
    const { as, owner, url } = yield* managed
    yield* on(url, `CREATE SCHEMA deadman`, `GRANT USAGE, CREATE ON SCHEMA deadman TO ${owner}`)
    yield* worked(as(owner))
  }).pipe(Effect.scoped), 180_000)

const lanes = ["hot", "quick", "vital", "read", "handler"] as const

it.live("options of the address reach each session, and take nothing away from it", () =>
  Effect.gen(function*() {
    const { url } = yield* freshDatabase
    const address = new URL(Redacted.value(url))
    address.searchParams.set("options", "-c search_path=nowhere -c statement_timeout=1ms -c work_mem=5MB")
    address.searchParams.set("application_name", "billing")
    const at = Redacted.make(address.href)
    yield* worked(at)
    yield* Effect.gen(function*() {
      const database = yield* Database.Database
      const [row] = yield* database.query(
        "read",
        `SELECT current_setting('work_mem') AS memory, current_setting('application_name') AS name`
      )
      assert.deepStrictEqual<unknown>(row, { memory: "5MB", name: "billing" })
    }).pipe(Effect.provide(Database.layer({ url: at, applicationName: "deadman-server" })))
  }).pipe(Effect.scoped), 180_000)

/** What administrators set for roles, and what nobody here may depend on. */
const settings = [
  "statement_timeout = '50ms'",
  "lock_timeout = '1ms'",
  "idle_in_transaction_session_timeout = '1ms'",
  "idle_session_timeout = '300ms'",
  "search_path = nowhere",
  "default_transaction_isolation = 'serializable'",
  "default_transaction_deferrable = on",
  "row_security = off",
  "bytea_output = 'escape'",
  "DateStyle = 'German'",
  "IntervalStyle = 'sql_standard'",
  "TimeZone = 'Asia/Kathmandu'",
  "extra_float_digits = -3",
  "standard_conforming_strings = off",
  "escape_string_warning = off",
  "client_encoding = 'LATIN1'",
  "quote_all_identifiers = on",
  "xmloption = 'document'"
]

it.live("settings of a role's own change nothing of it", () =>
  Effect.gen(function*() {
    const { as, name, owner, url } = yield* managed
    yield* on(url, `CREATE SCHEMA deadman AUTHORIZATION ${owner}`)
    yield* on(url, ...settings.map((setting) => `ALTER ROLE ${owner} IN DATABASE ${name} SET ${setting}`))
    const [server] = yield* on(url, `SELECT current_setting('server_version_num')::int AS number`)
    if (Number(server!["number"]) >= 170_000) {
      // The first step makes ten tables, and how long it idles in between is the machine's affair.
      yield* on(
        url,
        `CREATE FUNCTION public.slowly() RETURNS event_trigger LANGUAGE plpgsql
         AS $$ BEGIN
           PERFORM pg_sleep(0.15);
           IF current_setting('idle_in_transaction_session_timeout') = '1ms' THEN RAISE 'it may not idle'; END IF;
         END $$`,
        `GRANT USAGE ON SCHEMA public TO ${owner}`,
        `CREATE EVENT TRIGGER slowly ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION public.slowly()`,
        `ALTER ROLE ${owner} IN DATABASE ${name} SET transaction_timeout = '1s'`
      )
    }
    yield* worked(as(owner))
    yield* Effect.gen(function*() {
      const database = yield* Database.Database
      const { ping } = yield* database.listen("deadman_roles")
      for (const lane of lanes) {
        const [row] = yield* database.query(lane, `SELECT current_setting('idle_session_timeout') AS ms`)
        assert.deepStrictEqual<unknown>(row, { ms: "0" }, lane)
      }
      // Longer than the role lets a session be idle.
      yield* Effect.sleep(1_000)
      yield* ping(5_000)
    }).pipe(Effect.scoped, Effect.provide(Database.layer({ url: as(owner) })))
    const echo = Job.define({ type: "roles.echo", payload: Schema.Json, result: Schema.Json })
    const text = "žluťoučký kůň 🐎 \\ ' 1e-7"
    const deadman = yield* Effect.acquireRelease(
      Effect.promise(() =>
        Deadman.start({
          databaseUrl: Redacted.value(as(owner)),
          logLevel: "none",
          handlers: [echo.handle((payload) => payload)]
        })
      ),
      (deadman) => Effect.promise(() => deadman.stop())
    )
    const payload = { text, n: 0.1 + 0.2 }
    const job = yield* Effect.promise(() => deadman.submit(echo, payload).then((job) => deadman.wait(job)))
    assert.deepStrictEqual(job.result, payload)
  }).pipe(Effect.scoped), 180_000)

it.live(
  "a database that cannot hold every character is refused before anything is made in it",
  () =>
    Effect.gen(function*() {
      const { url } = yield* freshDatabase
      const name = `deadman_latin_${randomBytes(4).toString("hex")}`
      const latin = new URL(Redacted.value(url))
      latin.pathname = `/${name}`
      yield* Effect.acquireRelease(
        on(url, `CREATE DATABASE ${name} ENCODING 'LATIN1' LOCALE_PROVIDER 'libc' LOCALE 'C' TEMPLATE template0`),
        () => Effect.orDie(on(url, `DROP DATABASE ${name} WITH (FORCE)`))
      )
      const error = yield* Effect.flip(Migrations.migrate(Redacted.make(latin.href)))
      assert.match(error.message, /encoding LATIN1 .* CREATE DATABASE name ENCODING 'UTF8'/)
      assert.isTrue(Migrations.isHopeless(error))
      const facts = yield* Checkup.look(Redacted.make(latin.href))
      assert.strictEqual(facts.settings["server_encoding"], "LATIN1")
      assert.isNull(facts.schemaVersion)
    }).pipe(Effect.scoped),
  180_000
)
