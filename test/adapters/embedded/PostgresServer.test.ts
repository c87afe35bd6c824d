import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Option, Redacted, Scope } from "effect"
import { SqlClient } from "effect/sql"
import { spawn } from "node:child_process"
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"
import * as Database from "../../support/Database.ts"
import * as Members from "../../support/EmbeddedMembers.ts"
import { live } from "../../support/Eventually.ts"
import * as PostgresServer from "../../support/PostgresServer.ts"

const query = (url: Redacted.Redacted, statement: string) => Members.query(Redacted.value(url), statement)

describe("PostgresServer", { timeout: 300_000 }, () => {
  it.effect("a frozen server answers nothing until it is thawed, whatever the test's clock says", () =>
    Effect.gen(function*() {
      const server = yield* PostgresServer.start()
      yield* live(
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          yield* sql`SELECT 1`
          yield* server.freeze
          const asking = yield* Effect.forkChild(sql`SELECT 1`)
          yield* Effect.sleep("300 millis")
          assert.isUndefined(asking.pollUnsafe())
          yield* server.thaw
          yield* Fiber.join(asking)
        }).pipe(Effect.provide(PgClient.layer({ url: server.url, maxConnections: 1 })))
      )
    }))

  it.live("comes back at the same url with what was committed, after a crash and after kill -9", () =>
    Effect.gen(function*() {
      const server = yield* PostgresServer.start()
      const before = yield* server.pid
      yield* query(server.url, "CREATE TABLE kept AS SELECT 1 AS n")
      yield* server.restart
      yield* query(server.url, "INSERT INTO kept VALUES (2)")
      yield* server.kill
      assert.isTrue(Option.isNone(yield* server.pid))
      assert.isTrue(Exit.isFailure(yield* Effect.exit(query(server.url, "SELECT 1"))))
      yield* server.start
      assert.deepStrictEqual(yield* query(server.url, "SELECT n FROM kept ORDER BY n"), [{ n: 1 }, { n: 2 }])
      assert.notDeepEqual(yield* server.pid, before)
    }))

  it.live("closing stops it and deletes its files, frozen or not", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const server = yield* Scope.provide(PostgresServer.start(), scope)
      const pid = Option.getOrThrow(yield* server.pid)
      yield* server.freeze
      yield* Scope.close(scope, Exit.void)
      assert.isFalse(existsSync(server.dataDir))
      yield* Members.eventually("it is gone", () => !Members.exists(pid))
    }))

  it.live("nothing of it outlives a killed test", () =>
    Effect.gen(function*() {
      const program = fileURLToPath(new URL("../../support/serverHolder.ts", import.meta.url))
      const child = yield* Effect.acquireRelease(
        Effect.sync(() => spawn(process.execPath, [program], { stdio: ["pipe", "pipe", "inherit"] })),
        (child) => Effect.sync(() => child.kill("SIGKILL"))
      )
      let text = ""
      child.stdout.on("data", (chunk) => {
        text += String(chunk)
      })
      const line = () => text.split("\n").slice(0, -1).find((line) => line.startsWith("{"))
      yield* Members.eventually("a server", () => line() !== undefined)
      const { dataDir, pid }: { readonly dataDir: string; readonly pid: number } = JSON.parse(line() ?? "")
      assert.isTrue(Members.exists(pid))
      child.kill("SIGKILL")
      yield* Members.eventually("nothing runs and nothing is left", () => !Members.exists(pid) && !existsSync(dataDir))
    }))
})

describe("freshDatabase", () => {
  it.effect("each is migrated and a suite's own, and is dropped with its connections", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const one = yield* Scope.provide(Database.freshDatabase, scope)
      const two = yield* Database.freshDatabase
      yield* query(one.url, "CREATE TABLE mine (n int)")
      const present =
        "SELECT to_regclass('mine') IS NOT NULL AS mine, to_regclass('deadman.meta') IS NOT NULL AS migrated"
      assert.deepStrictEqual(yield* query(one.url, present), [{ mine: true, migrated: true }])
      assert.deepStrictEqual(yield* query(two.url, present), [{ mine: false, migrated: true }])

      yield* Effect.gen(function*() {
        yield* (yield* SqlClient.SqlClient)`SELECT 1`
        yield* Scope.close(scope, Exit.void)
      }).pipe(Effect.provide(PgClient.layer({ url: one.url, maxConnections: 1 })))
      const left = `SELECT count(*)::int AS n FROM pg_database WHERE datname = '${one.name}'`
      assert.deepStrictEqual(yield* query(two.url, left), [{ n: 0 }])
    }))
})
