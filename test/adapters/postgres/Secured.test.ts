/** A Postgres as most are run: over TLS, with an authority of somebody's own, and logins that are not let in otherwise. */
import { assert, it } from "@effect/vitest"
import { ConfigProvider, Effect, Queue, Redacted, Schema } from "effect"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Checkup from "../../../src/adapters/postgres/Checkup.ts"
import * as Database from "../../../src/adapters/postgres/Database.ts"
import * as Migrations from "../../../src/adapters/postgres/Migrations.ts"
import type * as Target from "../../../src/adapters/postgres/Target.ts"
import * as CliChecks from "../../../src/programs/CliChecks.ts"
import { Deadman, Job } from "../../../src/programs/deadman.ts"
import * as Certificates from "../../support/Certificates.ts"
import { freshDatabase } from "../../support/Database.ts"
import * as Files from "../../support/Files.ts"
import * as PostgresServer from "../../support/PostgresServer.ts"
import * as TlsServer from "../../support/TlsServer.ts"

const { file } = Files.make()

const password = "p@ss/word#1 %:"

const secured = Effect.gen(function*() {
  const authority = Certificates.authority("Deadman test authority")
  const server = yield* PostgresServer.start({
    tls: { ...authority.issue("postgres", ["localhost"]), ca: authority.cert },
    hba: [
      "hostssl all eve 127.0.0.1/32 cert",
      "hostssl all all 127.0.0.1/32 scram-sha-256"
    ]
  })
  const folder = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "deadman-test-postgres-tls-"))),
    (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
  )
  const file = (name: string, text: string) => {
    writeFileSync(join(folder, name), text)
    return join(folder, name)
  }
  /** The server by another name, with parameters, as somebody else. */
  const url = (host: string, parameters: Readonly<Record<string, string>>, login?: readonly [string, string]) => {
    const url = new URL(Redacted.value(server.url))
    url.hostname = host
    if (login !== undefined) {
      url.username = login[0]
      url.password = encodeURIComponent(login[1])
    }
    for (const [name, value] of Object.entries(parameters)) {
      url.searchParams.set(name, value)
    }
    return Redacted.make(url.href)
  }
  const eve = authority.issue("eve")
  return {
    authority,
    file,
    url,
    ca: { ca: authority.cert, own: null },
    eve: { ca: authority.cert, own: { cert: eve.cert, key: Redacted.make(eve.key) } }
  }
})

const lanes = ["hot", "quick", "vital", "read", "handler"] as const
const encrypted = `SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()`

/** Every kind of connection there is. */
const used = (server: Target.Server) =>
  Effect.gen(function*() {
    yield* Migrations.migrate(server.url, server.pem)
    yield* Effect.gen(function*() {
      const database = yield* Database.Database
      for (const lane of lanes) {
        assert.deepStrictEqual<unknown>(yield* database.query(lane, encrypted), [{ ssl: true }], lane)
      }
      const inside = yield* database.transaction("handler", (session) => session.query(encrypted))
      assert.deepStrictEqual<unknown>(inside, [{ ssl: true }])
      const { notifications, ping } = yield* database.listen("deadman_secured")
      yield* ping(5_000)
      yield* database.query("read", `SELECT pg_notify('deadman_secured', 'hello')`)
      assert.strictEqual((yield* Queue.take(notifications)).payload, "hello")
    }).pipe(Effect.provide(Database.layer(server)))
    const facts = yield* Checkup.look(server.url, server.pem)
    assert.isTrue(facts.keepsSettings)
  }).pipe(Effect.scoped)

it.live("each sslmode does what psql does with it, on every connection", () =>
  Effect.gen(function*() {
    const { ca, eve, url } = yield* secured
    const admin = Database.layer({ url: url("localhost", { sslmode: "require" }) })
    yield* Effect.gen(function*() {
      const { query } = yield* Database.Database
      for (const role of ["eve", "ada"]) {
        yield* query("read", `CREATE ROLE ${role} LOGIN SUPERUSER PASSWORD '${password}'`)
      }
    }).pipe(Effect.provide(admin))
    const right: ReadonlyArray<Target.Server> = [
      { url: url("localhost", { sslmode: "require" }) },
      { url: url("127.0.0.1", { sslmode: "require" }, ["ada", password]) },
      { url: url("127.0.0.1", { sslmode: "require" }), pem: ca },
      { url: url("127.0.0.1", { sslmode: "verify-ca" }), pem: ca },
      { url: url("localhost", { sslmode: "verify-full" }), pem: ca },
      { url: url("localhost", { sslmode: "verify-full" }, ["eve", ""]), pem: eve },
      { url: url("127.0.0.1", { sslmode: "require" }, ["eve", ""]), pem: { ...eve, ca: null } }
    ]
    yield* Effect.forEach(right, used, { discard: true })
  }).pipe(Effect.scoped), 180_000)

it.live("what is wrong ends a start at once, with what to do and without the password", () =>
  Effect.gen(function*() {
    const { ca, eve, url } = yield* secured
    const plain = Redacted.value((yield* freshDatabase).url)
    const guess = "nobody-has-this"
    const others = { ca: Certificates.authority("Somebody else's authority").cert, own: null }
    const wrong: ReadonlyArray<readonly [Target.Server, RegExp]> = [
      [
        { url: url("localhost", { sslmode: "verify-full" }) },
        /authority's by sslrootcert=FILE in DEADMAN_DATABASE_URL/
      ],
      [{ url: url("localhost", { sslmode: "verify-ca" }) }, /authority's by sslrootcert=FILE/],
      [{ url: url("localhost", { sslmode: "prefer" }) }, /authority's by sslrootcert=FILE/],
      [{ url: url("localhost", { sslmode: "verify-ca" }), pem: others }, /authority's by sslrootcert=FILE/],
      [{ url: url("localhost", { sslmode: "require" }), pem: others }, /authority's by sslrootcert=FILE/],
      [{ url: url("127.0.0.1", { sslmode: "verify-full" }), pem: ca }, /as its certificate does.*sslmode=verify-ca/],
      [{ url: url("localhost", {}) }, /over TLS, add sslmode=verify-full/],
      [{ url: url("localhost", { sslmode: "disable" }) }, /over TLS, add sslmode=verify-full/],
      [{ url: url("localhost", { sslmode: "require" }, ["deadman", guess]) }, /Mend the user or the password/],
      [{ url: url("localhost", { sslmode: "require" }, ["deadman", ""]) }, /Name the password in DEADMAN_DATABASE_URL/],
      [{ url: url("localhost", { sslmode: "require" }, ["eve", guess]) }, /pg_hba\.conf does not let this user in/],
      [
        { url: url("localhost", { sslmode: "require" }, ["mallory", guess]), pem: eve },
        /Mend the user or the password/
      ],
      [{ url: Redacted.make(`${plain}?sslmode=require`) }, /does not support TLS.*ssl = on/]
    ]
    yield* Effect.forEach(wrong, ([{ pem, url }, words], n) =>
      Effect.gen(function*() {
        const error = yield* Effect.flip(Migrations.migrate(url, pem))
        assert.match(error.message, words, String(n))
        assert.match(error.message, /^The database cannot be used: .+\. .+\.$/)
        assert.isTrue(Migrations.isHopeless(error), String(n))
        const seen = yield* Effect.flip(Checkup.look(url, pem))
        assert.match(`${seen.message}. ${seen.advice}`, words, String(n))
        assert.notInclude(error.message + seen.message, guess)
      }), { concurrency: 4 })
  }).pipe(Effect.scoped), 180_000)

it.live("a program of one's own names the files in the address, and its jobs run", () =>
  Effect.gen(function*() {
    const { authority, eve, file, url } = yield* secured
    const databaseUrl = Redacted.value(url("localhost", {
      sslmode: "verify-full",
      sslrootcert: file("ca.pem", authority.cert),
      sslcert: file("own.pem", eve.own.cert),
      sslkey: file("own.key", Redacted.value(eve.own.key))
    }))
    const twice = Job.define({ type: "secured.twice", payload: Schema.Finite, result: Schema.Finite })
    const deadman = yield* Effect.acquireRelease(
      Effect.promise(() =>
        Deadman.start({ databaseUrl, logLevel: "none", handlers: [twice.handle((number) => number * 2)] })
      ),
      (deadman) => Effect.promise(() => deadman.stop())
    )
    const job = yield* Effect.promise(() => deadman.submit(twice, 21).then((job) => deadman.wait(job)))
    assert.strictEqual(job.result, 42)
    yield* Effect.promise(() =>
      Deadman.start({ databaseUrl: databaseUrl.replace("ca.pem", "none.pem"), logLevel: "none" }).then(
        (deadman) => deadman.stop().then(() => assert.fail("it started")),
        ({ message }) => assert.match(message, /^sslrootcert in databaseUrl names a file that cannot be read: ENOENT/)
      )
    )
  }).pipe(Effect.scoped), 180_000)

it.live("a certificate that is not valid yet is waited for, and `deadman migrate` does not call it refused", () =>
  Effect.gen(function*() {
    const authority = Certificates.authority("Deadman test authority")
    const early = authority.issue("postgres", ["localhost"], ["400101000000Z", "450101000000Z"])
    const at = `postgres://me:hunter2@localhost:${yield* TlsServer.startPostgres(early)}/name`
    const url = `${at}?sslmode=verify-full&sslrootcert=${file("authority.pem", authority.cert)}`
    const silent = () => Effect.void
    const look = { color: false, columns: 80 } as never
    const answer = { json: true, look, line: silent, show: silent, note: silent }
    const configured = ConfigProvider.layer(ConfigProvider.fromEnvRecord({ DEADMAN_DATABASE_URL: url }))
    const error = yield* CliChecks.migrate(false, answer).pipe(
      Effect.flip,
      Effect.provide(configured)
    )
    assert.deepStrictEqual([error._tag, "code" in error && error.code, "exit" in error && error.exit], [
      "CliFailed",
      "unavailable",
      3
    ])
    assert.match(
      error.message,
      /^The database does not answer: certificate is not yet valid\. .*this machine's clock.*\.$/
    )
  }).pipe(Effect.scoped))

it.live("a certificate that is over ends a start at once", () =>
  Effect.gen(function*() {
    const authority = Certificates.authority("Deadman test authority")
    const old = authority.issue("postgres", ["localhost"], ["200101000000Z", "210101000000Z"])
    const at = `postgres://me:hunter2@localhost:${yield* TlsServer.startPostgres(old)}/name`
    const ca = file("authority.pem", authority.cert)
    for (const mode of ["verify-full", "verify-ca", "require"]) {
      const databaseUrl = `${at}?sslmode=${mode}&sslrootcert=${ca}`
      const said = yield* Effect.promise(() =>
        Deadman.start({ databaseUrl, logLevel: "none" }).then(
          (deadman) => deadman.stop().then(() => assert.fail("it started")),
          ({ message }) => String(message)
        )
        // It would be tried again for two minutes.
      ).pipe(Effect.timeout("30 seconds"))
      assert.match(said, /^The database cannot be used: certificate has expired\. .* over or not valid yet: renew it/)
      const seen = yield* Effect.flip(Checkup.look(Redacted.make(databaseUrl), { ca: authority.cert, own: null }))
      assert.match(String(seen.advice), /renew it/)
    }
  }).pipe(Effect.scoped))
