import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { spawnSync } from "node:child_process"
import { existsSync, readFileSync, rmSync } from "node:fs"
import { join } from "node:path"
import * as Members from "../../support/EmbeddedMembers.ts"

const setUp = Effect.map(Members.folder(), (folder) => join(folder, "data"))

const soon = { env: { TEST_LINGER_MS: "300" } }

/** Processes, other than members and servers, that know the folder by name. */
const watchersOf = (dataDir: string): ReadonlyArray<number> =>
  spawnSync("ps", ["-A", "-ww", "-o", "pid=,args="], { encoding: "utf8" }).stdout.split("\n")
    .filter((line) => line.includes(dataDir) && /embedded-stop/.test(line))
    .map((line) => Number.parseInt(line.trim(), 10))

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
      watcherOf(dataDir)
      assert.isTrue(Members.exists(used.pid))
    }).pipe(Effect.scoped))

  it.live("a folder that was removed is not made again", () =>
    Effect.gen(function*() {
      const dataDir = yield* setUp
      const member = yield* Members.start(dataDir, soon)
      const { pid } = yield* Members.serverOf(member)
      process.kill(pid, "SIGKILL")
      yield* member.kill
      rmSync(dataDir, { recursive: true, force: true })
      yield* alone(dataDir)
      assert.isFalse(existsSync(dataDir))
    }).pipe(Effect.scoped))
})
