import { assert, describe, it } from "@effect/vitest"
import { Effect, Schedule } from "effect"
import { spawn, spawnSync } from "node:child_process"
import { existsSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs"
import { createServer, type Server } from "node:net"
import { join } from "node:path"
import * as Members from "../../support/EmbeddedMembers.ts"

const gone = (pid: number) => Members.eventually(`process ${pid} is gone`, () => !Members.exists(pid))

const setUp = Effect.map(Members.folder(), (folder) => join(folder, "data"))

const occupy = (port: number) =>
  Effect.acquireRelease(
    Effect.callback<Server>((resume) => {
      const server = createServer()
      // Whoever took it meanwhile has it, which is as good.
      server.on("error", () => resume(Effect.succeed(server)))
      server.listen({ host: "127.0.0.1", port }, () => resume(Effect.succeed(server)))
    }),
    (server) => Effect.sync(() => server.close())
  )

/** Takes a second to remove the file that says it is a member. */
const slowToGo = `--import=data:text/javascript,${
  encodeURIComponent(`
    import fs from "node:fs"
    import { syncBuiltinESMExports } from "node:module"
    const remove = fs.rmSync
    fs.rmSync = (path, options) => {
      if (/members.*json$/.test(path)) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1000)
      remove(path, options)
    }
    syncBuiltinESMExports()`)
}`

const groupOf = (pid: number) => {
  const group = spawnSync("ps", ["-o", "pgid=", "-p", String(pid)], { encoding: "utf8" }).stdout.trim()
  assert.match(group, /^\d+$/)
  return group
}

describe("EmbeddedPostgres", { timeout: 300_000 }, () => {
  it.live("two processes share one server, and the last to leave stops it", () =>
    Effect.gen(function*() {
      const dataDir = yield* setUp
      const first = yield* Members.start(dataDir)
      const one = yield* Members.serverOf(first)
      const second = yield* Members.start(dataDir)
      const two = yield* Members.serverOf(second)

      assert.deepStrictEqual({ ...two, started: true }, one)
      assert.isFalse(two.started)

      yield* first.leave
      yield* Members.query(two.url, "SELECT 1")
      assert.isTrue(Members.exists(two.pid))

      yield* second.leave
      yield* gone(two.pid)
      assert.deepStrictEqual(readdirSync(join(dataDir, "members")), [])
      assert.isFalse(existsSync(join(dataDir, "lock")))
    }).pipe(Effect.scoped))

  it.live("the server outlives a killed member, is adopted by the next, and stopped when that one leaves", () =>
    Effect.gen(function*() {
      const dataDir = yield* setUp
      const first = yield* Members.start(dataDir)
      const one = yield* Members.serverOf(first)
      yield* first.kill
      assert.isTrue(Members.exists(one.pid))

      const second = yield* Members.start(dataDir)
      const two = yield* Members.serverOf(second)
      assert.strictEqual(two.pid, one.pid)
      assert.isFalse(two.started)

      yield* second.leave
      yield* gone(two.pid)
    }).pipe(Effect.scoped))

  it.live("committed data survive kill -9 of the server and of its member", () =>
    Effect.gen(function*() {
      const dataDir = yield* setUp
      const first = yield* Members.start(dataDir)
      const one = yield* Members.serverOf(first)
      yield* Members.query(one.url, "CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")
      yield* first.kill
      process.kill(one.pid, "SIGKILL")

      const second = yield* Members.start(dataDir)
      const two = yield* Members.serverOf(second)
      assert.isTrue(two.started)
      assert.strictEqual(two.port, one.port)
      assert.deepStrictEqual(yield* Members.query(two.url, "SELECT count(*)::int AS n FROM kept"), [{ n: 1000 }])
      yield* second.leave
      yield* gone(two.pid)
    }).pipe(Effect.scoped))

  it.live("a killed server is started again under its members", () =>
    Effect.gen(function*() {
      const dataDir = yield* setUp
      const member = yield* Members.start(dataDir)
      const one = yield* Members.serverOf(member)
      process.kill(one.pid, "SIGKILL")
      // Its file is gone for a moment, between the one and the other.
      const isAnother = (): boolean => {
        try {
          return Members.postmasterOf(dataDir) !== one.pid
        } catch {
          return false
        }
      }
      yield* Members.eventually("another server", isAnother)
      yield* Members.query(one.url, "SELECT 1").pipe(
        Effect.retry({ times: 300, schedule: Schedule.spaced("100 millis") })
      )
      const again = Members.postmasterOf(dataDir)
      yield* member.leave
      yield* gone(again)
    }).pipe(Effect.scoped))

  it.live("of ten processes that start at once on an empty folder, one starts a server and nine join it", () =>
    Effect.gen(function*() {
      const dataDir = yield* setUp
      const members = yield* Effect.forEach(Array.from({ length: 10 }), () => Members.start(dataDir))
      const servers = yield* Effect.forEach(members, Members.serverOf, { concurrency: "unbounded" })

      assert.strictEqual(new Set(servers.map(({ pid }) => pid)).size, 1)
      assert.strictEqual(servers.filter(({ started }) => started).length, 1)

      yield* Effect.forEach(members, (member) => member.leave, { concurrency: "unbounded" })
      yield* gone(servers[0]!.pid)
    }).pipe(Effect.scoped))

  it.live("of two that leave at once the second stops the server, however long the first takes to be gone", () =>
    Effect.gen(function*() {
      const dataDir = yield* setUp
      const first = yield* Members.start(dataDir, { env: { NODE_OPTIONS: slowToGo } })
      const { pid } = yield* Members.serverOf(first)
      const second = yield* Members.start(dataDir)
      yield* Members.serverOf(second)
      yield* Effect.all([first.leave, Effect.delay(second.leave, "200 millis")], { concurrency: 2 })
      yield* gone(pid)
    }).pipe(Effect.scoped))

  it.live("a postmaster.pid whose pid is now somebody else's does not keep the server from starting", () =>
    Effect.gen(function*() {
      const dataDir = yield* setUp
      const first = yield* Members.start(dataDir)
      yield* Members.serverOf(first)
      yield* first.leave
      const data = join(dataDir, "postgres", "data")
      // Of the server's own user: Postgres ignores what it may not signal.
      const { gid, uid } = statSync(data)
      const stranger = yield* Effect.acquireRelease(
        Effect.sync(() => spawn("sleep", ["60"], { uid, gid, stdio: "ignore" })),
        (stranger) => Effect.sync(() => stranger.kill())
      )
      const lines = [stranger.pid, data, 1, 1, "", "127.0.0.1", "1 1", "ready"]
      writeFileSync(join(data, "postmaster.pid"), `${lines.join("\n")}\n`)

      const second = yield* Members.start(dataDir)
      const two = yield* Members.serverOf(second)
      assert.notStrictEqual(two.pid, stranger.pid)
      yield* second.leave
      yield* gone(two.pid)
    }).pipe(Effect.scoped))

  it.live("a member that is told to leave while it starts the server leaves none behind", () =>
    Effect.gen(function*() {
      const dataDir = yield* setUp
      for (const round of [1, 2, 3, 4]) {
        const log = join(dataDir, "postgres.log")
        rmSync(log, { force: true })
        const member = yield* Members.start(dataDir)
        // The log is opened right before the server is, and the server takes a while to say that it is there.
        yield* Members.eventually(`start ${round}`, () => existsSync(log))
        yield* member.leave
        const { dev, ino } = statSync(join(dataDir, "postgres", "data"))
        const { stdout } = spawnSync("ps", ["-A", "-ww", "-o", "args="], { encoding: "utf8" })
        assert.include(stdout, "ps -A")
        assert.notInclude(stdout, `deadman-${dev}-${ino}`)
      }
      assert.deepStrictEqual(readdirSync(join(dataDir, "members")), [])
    }).pipe(Effect.scoped))

  it.live("a port that somebody else took is replaced", () =>
    Effect.gen(function*() {
      const dataDir = yield* setUp
      const first = yield* Members.start(dataDir)
      const one = yield* Members.serverOf(first)
      yield* first.leave
      yield* occupy(one.port)

      const second = yield* Members.start(dataDir)
      const two = yield* Members.serverOf(second)
      assert.notStrictEqual(two.port, one.port)
      yield* Members.query(two.url, "SELECT 1")
      yield* second.leave
    }).pipe(Effect.scoped))

  it.live("Ctrl-C to the member's group does not reach the server", () =>
    Effect.gen(function*() {
      const dataDir = yield* setUp
      const member = yield* Members.start(dataDir)
      const { pid } = yield* Members.serverOf(member)
      assert.notStrictEqual(groupOf(pid), groupOf(member.pid))
      yield* member.leave
      yield* gone(pid)
    }).pipe(Effect.scoped))
})
