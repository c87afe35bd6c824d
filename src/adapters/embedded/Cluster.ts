/**
 * The database files of a data folder: where they are, how they are made, and the settings they run with.
 *
 * `<dataDir>/postgres/` holds `data/` and `password`, and appears by a rename when both are complete, so a process
 * killed in the middle of initdb leaves a draft that nobody takes for a database. `<dataDir>/port` is chosen once
 * and kept, as long as nobody else takes it.
 */
import { Duration, Effect } from "effect"
import { spawn } from "node:child_process"
import { randomBytes, randomInt } from "node:crypto"
import {
  chmodSync,
  chownSync,
  closeSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync
} from "node:fs"
import { createServer } from "node:net"
import { join } from "node:path"
import * as Account from "./Account.ts"
import { type Binaries } from "./Binaries.ts"
import { attempt, codeOf, EmbeddedPostgresFailed, failed, reasonIn } from "./EmbeddedPostgresFailed.ts"
import * as Folders from "./Folders.ts"

export const role = "deadman"
export const database = "deadman"

export interface Cluster {
  readonly dataDir: string
  readonly data: string
  readonly log: string
  readonly account: Account.Account
  readonly binaries: Binaries
  /** On top of our settings, for tests. */
  readonly settings: Readonly<Record<string, string>>
}

export const dataOf = (dataDir: string): string => join(dataDir, "postgres", "data")

const initLimit = Duration.minutes(3)

/** A clean environment: `PGDATA`, `PGPORT` and friends of the caller must not reach the server. */
export const environment = (): Record<string, string> => ({ PATH: process.env["PATH"] ?? "", LC_ALL: "C", TZ: "UTC" })

/** Runs a program to its end and fails with the last line it said. */
const run = (
  cluster: Cluster,
  program: string,
  args: ReadonlyArray<string>,
  options: { readonly cwd: string; readonly stdin: number | string }
): Effect.Effect<void, EmbeddedPostgresFailed> =>
  Effect.callback<void, EmbeddedPostgresFailed>((resume) => {
    const fail = (reason: string) =>
      resume(Effect.fail(
        new EmbeddedPostgresFailed({
          message: `The embedded Postgres cannot set up its files in ${cluster.dataDir}: ${reason}`
        })
      ))
    const child = spawn(program, args, {
      ...cluster.account.as,
      cwd: options.cwd,
      env: environment(),
      stdio: [typeof options.stdin === "number" ? options.stdin : "pipe", "ignore", "pipe"],
      // A group of its own: Ctrl-C must not cut it short behind our back.
      detached: true
    })
    let said = ""
    child.stderr?.on("data", (chunk) => {
      said = (said + String(chunk)).slice(-4_000)
    })
    child.on("error", (cause) => fail(cause.message))
    child.on("close", (code, signal) => {
      if (code === 0) return resume(Effect.void)
      fail(said.trim() === "" ? `it ended with ${code ?? signal}` : reasonIn(said))
    })
    child.stdin?.on("error", () => {})
    if (typeof options.stdin === "string") child.stdin?.end(options.stdin)
    return Effect.sync(() => {
      if (child.exitCode === null) child.kill("SIGTERM")
    })
  }).pipe(Effect.timeoutOrElse({
    duration: initLimit,
    orElse: () =>
      new EmbeddedPostgresFailed({
        message: `Setting up the Postgres files in ${cluster.dataDir} has taken three minutes. Is the disk working?`
      })
  }))

const ownedBy = ({ as }: Account.Account, path: string): void => {
  if (as !== undefined) chownSync(path, as.uid, as.gid)
}

/**
 * The built-in provider sorts by code point on every platform and survives a change of libc. It came with Postgres 17; the
 * tests run with older programs too.
 */
const localeOf = ({ major }: Binaries): ReadonlyArray<string> => [
  "--locale=C",
  ...(Number(major) < 17 ? [] : ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"])
]

const initialise = Effect.fn("Cluster.initialise")(function*(cluster: Cluster) {
  const { account, binaries, dataDir } = cluster
  const draft = join(dataDir, `postgres.${randomBytes(4).toString("hex")}.tmp`)
  const data = join(draft, "data")
  const passwordFile = join(draft, "password")
  yield* Effect.logInfo(`creating a Postgres ${binaries.major} database in ${dataDir}`)

  const stdin = yield* attempt(`write to ${dataDir}`, () => {
    Folders.make(draft, 0o700)
    Folders.make(data, 0o700)
    ownedBy(account, data)
    writeFileSync(passwordFile, randomBytes(24).toString("base64url"), { mode: 0o600, flush: true })
    ownedBy(account, passwordFile)
    return openSync(passwordFile, "r")
  })
  // initdb gets the password as an open file, because its user may not be able to walk to it.
  yield* run(
    cluster,
    binaries.initdb,
    [
      "-D",
      Account.here(account, data),
      `--username=${role}`,
      "--pwfile=/dev/stdin",
      "--auth=scram-sha-256",
      "--encoding=UTF8",
      ...localeOf(binaries),
      "--no-instructions"
    ],
    { cwd: data, stdin }
  ).pipe(Effect.ensuring(Effect.sync(() => closeSync(stdin))))
  yield* run(
    cluster,
    binaries.postgres,
    ["--single", "-D", Account.here(account, data), "postgres"],
    { cwd: data, stdin: `CREATE DATABASE ${database};\n` }
  )

  yield* attempt(`write to ${dataDir}`, () => {
    writeFileSync(join(data, "pg_hba.conf"), "host all all 127.0.0.1/32 scram-sha-256\n")
    writeFileSync(
      join(data, "postgresql.conf"),
      "# Deadman writes deadman.conf at every start. What is set below it here wins.\ninclude 'deadman.conf'\n"
    )
    Account.give(draft, dataDir)
    if (account.as !== undefined) {
      // The password is the folder owner's to read; Postgres keeps its own hash of it.
      chownSync(passwordFile, 0, 0)
      Account.give(passwordFile, dataDir)
    }
    renameSync(draft, join(dataDir, "postgres"))
  })
})

/**
 * We hold the lock, so drafts are leftovers of the killed. An initdb that outlived whoever started it may still be
 * filling one: it fails on what is missing, and the next start removes the rest.
 */
const sweepDrafts = (cluster: Cluster): Effect.Effect<void> =>
  Effect.ignore(attempt("tidy up", () => {
    for (const name of readdirSync(cluster.dataDir)) {
      if (/^postgres\.[0-9a-f]+\.tmp$/.test(name)) {
        rmSync(join(cluster.dataDir, name), { recursive: true, force: true })
      }
    }
  }))

/** Creates the files if there are none, and refuses those of another Postgres. */
export const ensure = Effect.fn("Cluster.ensure")(function*(cluster: Cluster) {
  yield* sweepDrafts(cluster)
  const version = yield* attempt(`read ${cluster.data}`, () => {
    const folder = join(cluster.dataDir, "postgres")
    if (statSync(folder, { throwIfNoEntry: false }) === undefined) return undefined
    try {
      return readFileSync(join(cluster.data, "PG_VERSION"), "utf8").trim()
    } catch (cause) {
      if (codeOf(cause) !== "ENOENT" && codeOf(cause) !== "ENOTDIR") throw cause
      throw new EmbeddedPostgresFailed({
        message: `${folder} is not a Postgres data folder (it has no data/PG_VERSION). Move it away to start with an ` +
          `empty database, or set DEADMAN_DATA_DIR to another folder`
      })
    }
  })
  if (version === undefined) return yield* Effect.onError(initialise(cluster), () => sweepDrafts(cluster))
  if (version !== cluster.binaries.major) {
    return yield* new EmbeddedPostgresFailed({
      message: `The data in ${cluster.dataDir} were made by Postgres ${version}, and this Deadman brings Postgres ` +
        `${cluster.binaries.major}. Set DEADMAN_DATA_DIR to a new folder, or serve the old one with a Postgres ${version} ` +
        `and set DEADMAN_DATABASE_URL`
    })
  }
})

export const password = (cluster: Pick<Cluster, "dataDir">): Effect.Effect<string, EmbeddedPostgresFailed> =>
  attempt(
    `read the password in ${join(cluster.dataDir, "postgres", "password")}`,
    () => readFileSync(join(cluster.dataDir, "postgres", "password"), "utf8").trim()
  )

/** `port` if it is free, or for 0 any port that is. */
const free = (port: number): Effect.Effect<number | undefined, EmbeddedPostgresFailed> =>
  Effect.callback<number | undefined, EmbeddedPostgresFailed>((resume) => {
    const server = createServer()
    server.on(
      "error",
      (cause) =>
        resume(codeOf(cause) === "EADDRINUSE" ? Effect.succeed(undefined) : Effect.fail(failed("find a port", cause)))
    )
    server.listen({ host: "127.0.0.1", port, exclusive: true }, () => {
      const address = server.address()
      const port = address === null || typeof address === "string" ? undefined : address.port
      server.close(() => resume(Effect.succeed(port)))
    })
  })

/**
 * Below the range that systems draw the near end of a connection from: a port in it can be lost to any connection
 * that is opened while the server is down, and the members' urls with it.
 */
const draw = Effect.gen(function*() {
  for (let attempts = 0; attempts < 50; attempts++) {
    const port = yield* free(randomInt(15_000, 32_000))
    if (port !== undefined) return port
  }
  return yield* free(0)
})

/** The port of this folder: the one on record while it is free, else a new one, which is then on record. */
export const choosePort = Effect.fn("Cluster.choosePort")(function*(cluster: Cluster) {
  const file = join(cluster.dataDir, "port")
  const recorded = yield* attempt(`read ${file}`, () => {
    const text = statSync(file, { throwIfNoEntry: false }) === undefined ? "" : readFileSync(file, "utf8").trim()
    return /^\d{1,5}$/.test(text) && Number(text) > 0 && Number(text) < 65_536 ? Number(text) : undefined
  })
  if (recorded !== undefined && (yield* free(recorded)) !== undefined) return recorded
  const port = yield* draw
  if (port === undefined) {
    return yield* new EmbeddedPostgresFailed({
      message: "The embedded Postgres finds no free port on 127.0.0.1. Stop something, or set DEADMAN_DATABASE_URL"
    })
  }
  yield* attempt(`write to ${cluster.dataDir}`, () => {
    writeFileSync(`${file}.tmp`, `${port}\n`, { mode: 0o644 })
    Account.give(`${file}.tmp`, cluster.dataDir)
    renameSync(`${file}.tmp`, file)
  })
  return port
})

const settings = {
  listen_addresses: "127.0.0.1",
  // A socket file would be one more way in, and its path may be longer than the 107 bytes it is allowed.
  unix_socket_directories: "",
  max_connections: "300",
  password_encryption: "scram-sha-256",
  shared_buffers: "128MB",
  max_wal_size: "2GB",
  min_wal_size: "256MB",
  jit: "off",
  // Job rows die young: a table that is vacuumed once a minute has grown by then.
  autovacuum_naptime: "10s",
  // What SQL did wrong is told to who sent it; this log is for what happens to the server.
  log_min_messages: "log",
  log_checkpoints: "off",
  log_line_prefix: "%m [%p] ",
  log_timezone: "UTC",
  timezone: "UTC"
}

export const configure = (cluster: Cluster, port: number): Effect.Effect<void, EmbeddedPostgresFailed> =>
  attempt(`write its settings to ${cluster.data}`, () => {
    const file = join(cluster.data, "deadman.conf")
    const lines = Object.entries({ ...settings, port: String(port), ...cluster.settings })
      .map(([name, value]) => `${name} = '${value.replaceAll("'", "''")}'\n`)
    writeFileSync(file, `# Written by Deadman at every start.\n${lines.join("")}`)
    chmodSync(file, 0o600)
    ownedBy(cluster.account, file)
  })
