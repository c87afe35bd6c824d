import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect } from "effect"
import { spawnSync } from "node:child_process"
import { existsSync, readFileSync, rmSync } from "node:fs"
import { join } from "node:path"
import { Client, type ClientConfig } from "pg"
import * as Register from "../../../src/adapters/embedded/Members.ts"
import * as Watcher from "../../../src/adapters/embedded/Watcher.ts"
import * as Members from "../../support/EmbeddedMembers.ts"

const setUp = Effect.map(Members.folder(), (folder) => join(folder, "data"))

const soon = { env: { TEST_LINGER_MS: "300" } }

/** Processes, other than members and servers, that know the folder by name. */
const watchersOf = (dataDir: string): ReadonlyArray<number> => {
  const found = spawnSync("ps", ["-A", "-ww", "-o", "pid=,ppid=,args="], { encoding: "utf8" }).stdout.split("\n")
    .filter((line) => line.includes(dataDir) && /embedded-stop/.test(line))
    .map((line) => line.trim().split(/\s+/).slice(0, 2).map(Number))
  // What a shell begins is called like the shell, until it is the `sleep` or the Node that it was begun for.
  return found.flatMap(([pid, parent]) => found.some(([other]) => other === parent) ? [] : [pid!])
}

const gone = (pid: number) => Members.eventually(`process ${pid} is gone`, () => !Members.exists(pid))

const watcherOf = (dataDir: string): number => {
  const [pid, ...more] = watchersOf(dataDir)
  assert.isDefined(pid)
  assert.deepStrictEqual(more, [])
  return pid!
}

const alone = (dataDir: string) => Members.eventually("nobody watches any more", () => watchersOf(dataDir).length === 0)

describe("Watcher", { timeout: 300_000 }, () => {
  it.live("a server whose last user was killed is shut down in order; who leaves sends the watcher away", () =>
    Effect.gen(function*() {
      const dataDir = yield* setUp
      const first = yield* Members.start(dataDir)
      yield* Members.serverOf(first)
      watcherOf(dataDir)
      yield* first.leave
      assert.deepStrictEqual(watchersOf(dataDir), [])

      const second = yield* Members.start(dataDir, soon)
      yield* Members.serverOf(second)
      const killed = watcherOf(dataDir)
      process.kill(killed, "SIGKILL")
      yield* gone(killed)
      // Who comes next is watched, and so is who was there.
      const third = yield* Members.start(dataDir, soon)
      const { pid } = yield* Members.serverOf(third)
      const watcher = watcherOf(dataDir)
      yield* third.kill
      assert.strictEqual(watcherOf(dataDir), watcher)
      const log = join(dataDir, "postgres.log")
      const before = readFileSync(log, "utf8").length
      yield* second.kill
      yield* gone(pid)
      assert.include(readFileSync(log, "utf8").slice(before), "database system is shut down")
      yield* alone(dataDir)
    }).pipe(Effect.scoped))

  it.live("a server that is used goes on: by who joined meanwhile, or by a connection of who is no member", () =>
    Effect.gen(function*() {
      const dataDir = yield* setUp
      const first = yield* Members.start(dataDir, { env: { TEST_LINGER_MS: "3000" } })
      yield* Members.serverOf(first)
      const watcher = watcherOf(dataDir)
      yield* first.kill
      // While the watcher lets a restart come first, one comes and leaves, and another one comes.
      const second = yield* Members.start(dataDir, soon)
      yield* Members.serverOf(second)
      yield* second.leave
      const third = yield* Members.start(dataDir, soon)
      const { pid, url } = yield* Members.serverOf(third)
      yield* gone(watcher)
      const next = watcherOf(dataDir)
      assert.notStrictEqual(next, watcher)
      yield* Members.query(url, "SELECT 1")
      yield* third.leave
      yield* gone(pid)
      assert.deepStrictEqual(watchersOf(dataDir), [])

      const fourth = yield* Members.start(dataDir, soon)
      const used = yield* Members.serverOf(fourth)
      const looks = watcherOf(dataDir)
      yield* Members.connected(used.url, (query) =>
        Effect.gen(function*() {
          yield* query("SELECT 1")
          yield* fourth.kill
          yield* gone(looks)
          yield* query("SELECT 1")
        }))
      // It looks again later.
      process.kill(watcherOf(dataDir), "SIGKILL")
      yield* alone(dataDir)
      assert.isTrue(Members.exists(used.pid))

      const fifth = yield* Members.start(dataDir, soon)
      yield* Members.serverOf(fifth)
      const looksToo = watcherOf(dataDir)
      // Who copies the database is no ordinary client.
      const copies = yield* Effect.acquireRelease(
        Effect.sync(() => new Client({ connectionString: used.url, replication: "database" } as ClientConfig)),
        (client) => Effect.promise(() => client.end())
      )
      yield* Effect.promise(() => copies.connect())
      yield* fifth.kill
      yield* gone(looksToo)
      yield* Effect.promise(() => copies.query("IDENTIFY_SYSTEM"))
      watcherOf(dataDir)
    }).pipe(Effect.scoped))

  it.live("who is making the database, where the one before was killed at it, is watched", () =>
    Effect.gen(function*() {
      const dataDir = yield* Members.folder()
      const member = yield* Effect.acquireRelease(
        Effect.sync(() => Register.register(dataDir)),
        (member) => Effect.sync(() => Register.unregister(member))
      )
      yield* Effect.flatMap(Watcher.hold(dataDir, Duration.millis(100)), Watcher.letGo)
      const watcher = watcherOf(dataDir)
      yield* gone(watcher)
      process.kill(watcherOf(dataDir), "SIGKILL")
      assert.isTrue(existsSync(member.file))
    }).pipe(Effect.scoped))

  it.live("a program that Node is only a part of is not started by the shell", () =>
    Effect.gen(function*() {
      const dataDir = yield* Members.folder()
      const node = process.execPath
      yield* Effect.acquireRelease(
        Effect.sync(() => {
          process.execPath = "/opt/Shop/Shop"
        }),
        () =>
          Effect.sync(() => {
            process.execPath = node
          })
      )
      assert.isUndefined(yield* Watcher.hold(dataDir))
      assert.deepStrictEqual(watchersOf(dataDir), [])
    }).pipe(Effect.scoped))

  it.live("a folder that was removed is not made again", () =>
    Effect.gen(function*() {
      const dataDir = yield* setUp
      const member = yield* Members.start(dataDir, soon)
      const { pid } = yield* Members.serverOf(member)
      process.kill(pid, "SIGKILL")
      yield* member.kill
      // The watcher may just make its lock in it.
      rmSync(dataDir, { recursive: true, force: true, maxRetries: 10 })
      yield* alone(dataDir)
      assert.isFalse(existsSync(dataDir))
    }).pipe(Effect.scoped))

  it("knows Node by the names that it has, and no application that begins like it", () => {
    const names = ["node", "nodejs", "node22", "node-22", "node22.3", "node.exe", "node-agent", "nodered", "electron"]
    assert.deepStrictEqual(names.filter(Watcher.isNode), names.slice(0, 6))
  })
})
