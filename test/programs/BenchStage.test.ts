/** The server that the bench is told to use is read as any program reads its own. */
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import * as BenchStage from "../../src/programs/BenchStage.ts"
import * as Certificates from "../support/Certificates.ts"
import * as Files from "../support/Files.ts"

const { file } = Files.make()
const authority = Certificates.authority("an authority").cert
const ca = file("ca.pem", authority)

it.effect("the databases of its cases are where it is, over TLS or a socket too", () =>
  Effect.gen(function*() {
    for (
      const [address, url] of [
        ["postgres://me:pw@host:5433/name", "postgres://me:pw@host:5433/case"],
        ["postgres://me@host?dbname=name&options=-c%20a=b", "postgres://me@host/case?options=-c+a%3Db"],
        ["postgres:///name?host=/run/postgresql&user=me", "postgres://localhost/case?host=%2Frun%2Fpostgresql&user=me"],
        ["postgres://me@%2Frun%2Fpostgresql/name", "postgres://me@%2Frun%2Fpostgresql/case"]
      ] as const
    ) {
      const server = yield* BenchStage.serverOf(address)
      const parsed = new URL(BenchStage.at(Redacted.value(server.url), "case"))
      // As every reader of it takes them.
      parsed.search = parsed.searchParams.toString()
      assert.strictEqual(parsed.href, url)
    }
    const secured = yield* BenchStage.serverOf(`postgres://me@host/name?sslmode=verify-full&sslrootcert=${ca}`)
    assert.strictEqual(secured.pem?.ca, authority)
  }))

it.effect("what is wrong with it is said of its own variable", () =>
  Effect.gen(function*() {
    const { message } = yield* Effect.flip(BenchStage.serverOf("postgres://me:hunter2@host/name?sslmode=no"))
    assert.match(message, /^DEADMAN_BENCH_DATABASE_URL has sslmode=no: it is one of/)
    assert.notInclude(message, "hunter2")
  }))
