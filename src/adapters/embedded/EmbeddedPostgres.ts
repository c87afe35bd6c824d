/**
 * A real Postgres in a data folder, shared by every process started with that folder, kept between runs.
 *
 * Having it is being a member. Whoever comes first starts the server; the others join; the last to leave stops it.
 * All three happen under one lock. The server outlives a killed member: the next start takes it over, or, where none
 * comes soon, the watcher stops it. A killed server is started again, by its members while there are any. Shutdown is
 * the scope closing, upwards: the watch ends, then the member leaves.
 */
import { Duration, Effect, Redacted, Schedule, type Scope } from "effect"
import { statSync, writeFileSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import * as Account from "./Account.ts"
import * as Binaries from "./Binaries.ts"
import * as Cluster from "./Cluster.ts"
import { attempt, EmbeddedPostgresFailed } from "./EmbeddedPostgresFailed.ts"
import * as FolderLock from "./FolderLock.ts"
import * as Folders from "./Folders.ts"
import * as Members from "./Members.ts"
import * as Postmaster from "./Postmaster.ts"
import * as Watcher from "./Watcher.ts"

export { EmbeddedPostgresFailed }

export interface Options {
  readonly dataDir: string
  /** Server settings on top of ours, for tests. */
  readonly settings?: Readonly<Record<string, string>> | undefined
  /** Where the npm package with the programs is, if not where npm put it. */
  readonly programs?: string | undefined
  /** Where copies of the programs go that cannot be run where they are, if not to the usual places. */
  readonly programsCache?: string | undefined
  /** How long the server may go on without a user before it is stopped, if not for as long as usual. */
  readonly linger?: Duration.Duration | undefined
}

export interface EmbeddedPostgres {
  readonly url: Redacted.Redacted
  readonly port: number
  /** The server's process when it was acquired; a watch may have replaced it since. */
  readonly pid: number
  /** Whether this process started it, rather than joined it. */
  readonly started: boolean
}

// Elsewhere a look at a process takes another process.
const watchEvery = Duration.seconds(process.platform === "linux" ? 1 : 10)

const prepareFolder = (dataDir: string) =>
  attempt(`use the folder ${dataDir}`, () => {
    let parent = dirname(dataDir)
    while (statSync(parent, { throwIfNoEntry: false }) === undefined) parent = dirname(parent)
    if (!Folders.make(dataDir, 0o700)) return
    // Made by root inside somebody's project, it is still that somebody's.
    Account.give(dataDir, parent)
    // It holds a password, and lies in a project's folder by default.
    writeFileSync(join(dataDir, ".gitignore"), "*\n")
    Account.give(join(dataDir, ".gitignore"), dataDir)
  })

/** What is on disk, without starting anything. */
export const open = Effect.fn("EmbeddedPostgres.open")(function*(
  options: Options
): Effect.fn.Return<Cluster.Cluster, EmbeddedPostgresFailed> {
  const dataDir = resolve(options.dataDir)
  yield* prepareFolder(dataDir)
  const data = Cluster.dataOf(dataDir)
  const account = yield* attempt(`use the folder ${dataDir}`, () => Account.choose(dataDir, data))
  const binaries = yield* Binaries.prepare({
    account,
    dataDir,
    root: options.programs,
    cache: options.programsCache
  })
  return { dataDir, data, log: join(dataDir, "postgres.log"), account, binaries, settings: options.settings ?? {} }
})

export const urlOf = (port: number, password: string): Redacted.Redacted =>
  Redacted.make(`postgres://${Cluster.role}:${password}@127.0.0.1:${port}/${Cluster.database}`)

const leave = (cluster: Cluster.Cluster, member: Members.Member, held: number | undefined) =>
  FolderLock.withLock(cluster.dataDir, member.identity)(Effect.gen(function*() {
    const others = yield* attempt("leave", () => Members.countOthers(cluster.dataDir, member))
    if (others === 0) yield* Postmaster.stop(cluster)
    // Still under the lock: whoever leaves next would count this one, and of two that leave at once none stop it.
    yield* attempt("leave", () => Members.strike(member))
    if (others === 0) yield* Watcher.dismiss(cluster.dataDir, held)
  })).pipe(
    // The folder may be gone by now; whatever is left running, the next start takes over, or the watcher stops it.
    Effect.catch((error) => Effect.logWarning(`Postgres may be left running: ${error.message}`))
  )

/** Starts again what died while it has members. Its url cannot change under them, so its port may not either. */
const watch = (cluster: Cluster.Cluster, member: Members.Member, port: number) =>
  Effect.gen(function*() {
    yield* Postmaster.boundLog(cluster)
    const now = yield* Postmaster.running(cluster)
    if (now._tag === "Some") return
    yield* Effect.logWarning(`the Postgres of ${cluster.dataDir} is gone; starting it again`)
    const again = yield* FolderLock.withLock(cluster.dataDir, member.identity)(Postmaster.ensure(cluster))
    if (again.port !== port) {
      yield* Effect.logError(`Postgres came back on port ${again.port} instead of ${port}: restart this process`)
    }
  }).pipe(
    Effect.catch((error) => Effect.logError(error.message)),
    Effect.repeat(Schedule.spaced(watchEvery))
  )

export const acquire = Effect.fn("EmbeddedPostgres.acquire")(function*(
  options: Options
): Effect.fn.Return<EmbeddedPostgres, EmbeddedPostgresFailed, Scope.Scope> {
  const cluster = yield* open(options)
  const member = yield* Effect.acquireRelease(
    attempt(`use the folder ${cluster.dataDir}`, () => Members.register(cluster.dataDir)),
    (member) => Effect.ignore(attempt("leave", () => Members.unregister(member)))
  )
  const running = yield* FolderLock.withLock(cluster.dataDir, member.identity)(Effect.gen(function*() {
    yield* attempt(`use the folder ${cluster.dataDir}`, () => Members.countOthers(cluster.dataDir, member))
    const held = yield* Effect.acquireRelease(Watcher.hold(cluster.dataDir, options.linger), Watcher.letGo)
    yield* Effect.addFinalizer(() => leave(cluster, member, held))
    yield* Cluster.ensure(cluster)
    return yield* Postmaster.ensure(cluster)
  }))
  const password = yield* Cluster.password(cluster)
  yield* Effect.forkScoped(watch(cluster, member, running.port))
  return { ...running, url: urlOf(running.port, password) }
})
