/** What a connection that failed means: an end, an outage, or words of the server's. */
import { assert, describe, it } from "@effect/vitest"
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

  it("a socket that is cut while it is written to is an outage, whatever its code looks like", () => {
    for (const code of ["EPIPE", "ECONNRESET"]) {
      const cause = Object.assign(new Error(`write ${code}`), { code })
      const error = fromSqlError(new SqlError.SqlError({ reason: new SqlError.ConnectionError({ cause }) }))
      assert.deepStrictEqual([error.kind, error.code], ["unavailable", code])
    }
  })
})
