import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as FolderLock from "../../../src/adapters/embedded/FolderLock.ts"
import * as ProcessIdentity from "../../../src/adapters/embedded/ProcessIdentity.ts"
import * as Members from "../../support/EmbeddedMembers.ts"

const program = fileURLToPath(new URL("../../support/lockContender.ts", import.meta.url))

const plant = (folder: string, change: Partial<ProcessIdentity.ProcessIdentity>) =>
  writeFileSync(
    join(folder, "lock"),
    JSON.stringify({ nonce: "planted", holder: { ...ProcessIdentity.self(), ...change } })
  )

const take = (folder: string) => FolderLock.withLock(folder)(Effect.succeed("taken"))

describe("FolderLock", { timeout: 300_000 }, () => {
  it.live("is held by one process at a time, however many of them are killed while they hold or break it", () =>
    Effect.gen(function*() {
      const folder = yield* Members.folder()
      let said = ""
      const contender = Effect.acquireRelease(
        Effect.sync(() => {
          const child = spawn(process.execPath, [program, folder], { stdio: ["pipe", "pipe", "inherit"] })
          child.stdout.on("data", (chunk) => {
            said += String(chunk)
          })
          return child
        }),
        (child: ChildProcess) => Effect.sync(() => child.kill("SIGKILL"))
      )
      const turns = () => said.split(".").length - 1
      const contenders = yield* Effect.forEach([1, 2, 3], () => contender)
      for (let round = 0; round < 6; round++) {
        const before = turns()
        yield* Members.eventually("the lock changes hands", () => turns() > before + 3)
        // The holder, while there is one: its lock and, at times, that of its breaker have to be broken.
        yield* Members.eventually("a holder", () => existsSync(join(folder, "inside")))
        const victim = contenders.find(({ pid }) => String(pid) === readInside(folder)) ?? contenders[0]!
        victim.kill("SIGKILL")
        // Nobody reaps it meanwhile, as in a container whose first process does not: a zombie holds no lock.
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200)
        contenders.splice(contenders.indexOf(victim), 1, yield* contender)
      }
      assert.notInclude(said, "overlap")
    }).pipe(Effect.scoped))

  it.live("a lock whose holder is dead is broken, and nothing of it stays", () =>
    Effect.gen(function*() {
      const folder = yield* Members.folder()
      for (const dead of [{ pid: 2 ** 22 + 1 }, { started: "1" }, { boot: "another" }]) {
        plant(folder, dead)
        assert.strictEqual(yield* take(folder), "taken")
        assert.deepStrictEqual(readdirSync(folder), [])
      }
    }).pipe(Effect.scoped))

  it.live("a lock whose breaker died as well is broken", () =>
    Effect.gen(function*() {
      const folder = yield* Members.folder()
      plant(folder, { started: "1" })
      writeFileSync(
        join(folder, "lock.break.planted"),
        JSON.stringify({ nonce: "breaker", holder: { ...ProcessIdentity.self(), started: "1" } })
      )
      assert.strictEqual(yield* take(folder), "taken")
      assert.deepStrictEqual(readdirSync(folder), [])
    }).pipe(Effect.scoped))

  it.live("who saw a dead holder, and was slow, takes nothing from its successor", () =>
    Effect.gen(function*() {
      const folder = yield* Members.folder()
      const seen = { nonce: "seen", holder: { ...ProcessIdentity.self(), started: "1" } }
      plant(folder, {})
      FolderLock.breakLock(folder, seen, { nonce: "slow", holder: ProcessIdentity.self() })
      assert.deepStrictEqual(readdirSync(folder), ["lock"])
    }).pipe(Effect.scoped))

  it.live("while one breaks a lock, nobody else does", () =>
    Effect.gen(function*() {
      const folder = yield* Members.folder()
      const planted = { nonce: "planted", holder: { ...ProcessIdentity.self(), started: "1" } }
      plant(folder, { started: "1" })
      writeFileSync(
        join(folder, "lock.break.planted"),
        JSON.stringify({ nonce: "other", holder: ProcessIdentity.self() })
      )
      FolderLock.breakLock(folder, planted, { nonce: "mine", holder: ProcessIdentity.self() })
      assert.sameMembers(readdirSync(folder), ["lock", "lock.break.planted"])
    }).pipe(Effect.scoped))

  it.live("a lock of another container or host is left alone, and the refusal says what to do", () =>
    Effect.gen(function*() {
      const folder = yield* Members.folder()
      for (const elsewhere of [{ namespace: "pid:[1]" }, { boot: "another", host: "another" }]) {
        plant(folder, elsewhere)
        const error = yield* Effect.flip(take(folder))
        assert.include(error.message, `delete ${join(folder, "lock")}`)
        assert.include(readFileSync(join(folder, "lock"), "utf8"), "planted")
      }
    }).pipe(Effect.scoped))
})

const readInside = (folder: string): string => {
  try {
    return readFileSync(join(folder, "inside"), "utf8")
  } catch {
    return ""
  }
}
