/** What a connection that failed means: an end, an outage, or words of the server's. */
import { assert, describe, it } from "@effect/vitest"
import { Redacted } from "effect"
import { SqlError } from "effect/sql"
import { fromSqlError } from "../../../src/adapters/postgres/DatabaseFailed.ts"
import { isHopeless, MigrationFailed } from "../../../src/adapters/postgres/Migrations.ts"
import * as Target from "../../../src/adapters/postgres/Target.ts"

describe("Target", () => {
  it("takes for a refusal what no waiting cures", () => {
    const said: ReadonlyArray<readonly [code: string | null, message: string, refusal: boolean]> = [
      ["28P01", "no", true],
      ["57P03", "the database system is starting up", false],
      ["CERT_HAS_EXPIRED", "certificate has expired", true],
      // A machine that has just started may be behind by years until it has asked for the time.
      ["CERT_NOT_YET_VALID", "certificate is not yet valid", false],
      [null, "certificate is not yet valid", false],
      ["EPIPE", "write EPIPE", false],
      ["ECONNREFUSED", "connect ECONNREFUSED 127.0.0.1:5432", false]
    ]
    for (const [code, message, refusal] of said) {
      assert.strictEqual(Target.isRefusal(code, message), refusal, message)
    }
    assert.match(String(Target.adviceOf("CERT_NOT_YET_VALID", "certificate is not yet valid")), /this machine's clock/)
  })

  it("a server that is too old to be asked for its version is told by what it does not know", () => {
    for (const name of ["idle_session_timeout", "client_connection_check_interval"]) {
      const error = new MigrationFailed({ code: "42704", reason: `unrecognized configuration parameter "${name}"` })
      assert.isTrue(isHopeless(error))
      assert.match(
        error.message,
        /^The database cannot be used: unrecognized .*Postgres that is too old: .*needs 15 or/
      )
    }
  })

  it("says first that nobody answers, and where, where that is what it is", () => {
    const said = (code: string | null, reason: string, place?: string | null) =>
      new MigrationFailed({ code, reason, ...(place === undefined ? {} : { place }) }).message
    for (const code of ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "ENOENT", "EPIPE"]) {
      assert.strictEqual(said(code, `it is ${code}`, "db:5432"), `Postgres at db:5432 does not answer: it is ${code}`)
    }
    assert.strictEqual(said(null, "Connection timed out", null), "Postgres does not answer: Connection timed out")
    assert.match(said(null, "Connection closed unexpectedly"), /^Postgres does not answer: /)
    // It answered.
    for (
      const [code, reason] of [
        ["57P03", "the database system is starting up"],
        ["ERR_TLS_X", "handshake"],
        [null, "Unexpected ReadyForQuery message during startup"]
      ] as const
    ) {
      assert.match(said(code, reason, "db:5432"), /^The database schema could not be brought up to date: /, reason)
    }
    assert.match(said("28P01", "no", "db:5432"), /^The database cannot be used: no\. Mend the user or the password/)
  })

  const places: ReadonlyArray<readonly [address: string, place: string | null]> = [
    ["postgres://me:hunter2@db/name", "db:5432"],
    ["postgresql://db.example:6432/name?user=me&password=hunter2", "db.example:6432"],
    ["postgres://me:hunter2@[::1]:5433/name", "[::1]:5433"],
    ["postgres://me@/name?host=::1", "[::1]:5432"],
    ["postgres://me:hunter2@db/name?host=other&port=7000", "other:7000"],
    ["postgres://me@/name?host=/run/postgresql", "/run/postgresql/.s.PGSQL.5432"],
    ["postgres://me@%2Frun%2Fpostgresql/name", "/run/postgresql/.s.PGSQL.5432"],
    // Its host would be the user, and its port a piece of the password.
    ["postgres://me:12/hunter2@db/name", null],
    ["mysql://db/name", null]
  ]

  it.each(places)("of %s it says where that is, and nothing of the login", (address, place) => {
    assert.strictEqual(Target.placeOf(Redacted.make(address)), place)
  })

  it("a socket that is cut while it is written to is an outage, whatever its code looks like", () => {
    for (const code of ["EPIPE", "ECONNRESET"]) {
      const cause = Object.assign(new Error(`write ${code}`), { code })
      const error = fromSqlError(new SqlError.SqlError({ reason: new SqlError.ConnectionError({ cause }) }))
      assert.deepStrictEqual([error.kind, error.code], ["unavailable", code])
    }
  })
})
