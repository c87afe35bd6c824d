/**
 * A Postgres of a test's own, in a temporary folder, to be frozen, killed and started again with real signals.
 *
 * Nothing of it outlives the test, however that ends: a guard then stops the server and deletes the folder.
 */
import { Effect, Option, type Redacted, References, type Scope } from "effect"
import { spawnSync } from "node:child_process"
import { chownSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as GuardedFolder from "../../src/adapters/chaos/GuardedFolder.ts"
import * as Cluster from "../../src/adapters/embedded/Cluster.ts"
import * as EmbeddedPostgres from "../../src/adapters/embedded/EmbeddedPostgres.ts"
import { type EmbeddedPostgresFailed } from "../../src/adapters/embedded/EmbeddedPostgresFailed.ts"
import * as Postmaster from "../../src/adapters/embedded/Postmaster.ts"
import type { Certificate } from "./Certificates.ts"
import { live } from "./Eventually.ts"
import { freePort } from "./FreePort.ts"

export interface PostgresServer {
  /** Stays the same over every stop and start. */
  readonly url: Redacted.Redacted
  readonly dataDir: string
  /** The postmaster, or none while the server is stopped. */
  readonly pid: Effect.Effect<Option.Option<number>, EmbeddedPostgresFailed>
  /** SIGSTOP to every process of the server: connections stay open, and nothing answers. */
  readonly freeze: Effect.Effect<void, EmbeddedPostgresFailed>
  readonly thaw: Effect.Effect<void, EmbeddedPostgresFailed>
  /** As in a crash: no checkpoint, connections cut. */
  readonly stopImmediate: Effect.Effect<void, EmbeddedPostgresFailed>
  /** `kill -9` of the postmaster. */
  readonly kill: Effect.Effect<void, EmbeddedPostgresFailed>
  /** Starts it if it is stopped, and waits until it takes connections. */
  readonly start: Effect.Effect<void, EmbeddedPostgresFailed>
  /** A crash and a start. */
  readonly restart: Effect.Effect<void, EmbeddedPostgresFailed>
}

const guardScript = `
if read -r pid < "$1/postgres/data/postmaster.pid" && ps -ww -o args= -p "$pid" | grep -q cluster_name=deadman-; then
  kill -QUIT "$pid" && kill -CONT "$pid"
  for i in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$pid" && sleep 1; done
fi
rm -rf "$1"`

const processesOf = (postmaster: number): ReadonlyArray<number> => {
  const { stdout } = spawnSync("ps", ["-A", "-o", "pid=,ppid="], { encoding: "utf8" })
  return stdout.trim().split("\n")
    .map((line) => line.trim().split(/\s+/).map(Number))
    .filter((ids) => ids.includes(postmaster))
    .map(([pid]) => pid ?? postmaster)
}

export interface Options {
  readonly settings?: Readonly<Record<string, string>> | undefined
  /** What it shows over TLS, and whose clients' certificates it takes. */
  readonly tls?: (Certificate & { readonly ca: string }) | undefined
  /** Lines of `pg_hba.conf`. */
  readonly hba?: ReadonlyArray<string> | undefined
}

const tlsSettings = { ssl: "on", ssl_cert_file: "server.crt", ssl_key_file: "server.key", ssl_ca_file: "clients.crt" }

/** Files beside the data, which the server's own account may read and nobody else. */
const writeFiles = ({ account, data }: Cluster.Cluster, { hba, tls }: Options) => {
  const write = (name: string, text: string) => {
    writeFileSync(join(data, name), text, { mode: 0o600 })
    if (account.as !== undefined) {
      chownSync(join(data, name), account.as.uid, account.as.gid)
    }
  }
  if (tls !== undefined) {
    write("server.crt", tls.cert)
    write("server.key", tls.key)
    write("clients.crt", tls.ca)
  }
  if (hba !== undefined) {
    write("pg_hba.conf", `${hba.join("\n")}\n`)
  }
}

const make = Effect.fn("PostgresServer.make")(function*(
  options: Options
): Effect.fn.Return<PostgresServer, EmbeddedPostgresFailed, Scope.Scope> {
  const folder = yield* GuardedFolder.make("deadman-test-", guardScript)
  // One that no other Postgres draws while this one is stopped.
  writeFileSync(join(folder, "port"), `${yield* freePort}\n`)
  const settings = { ...(options.tls === undefined ? {} : tlsSettings), ...options.settings }
  const cluster = yield* EmbeddedPostgres.open({
    dataDir: join(folder, "."),
    settings,
    // Another version's: docs/contributing.md.
    programs: process.env["DEADMAN_TEST_POSTGRES"]
  })
  yield* Cluster.ensure(cluster)
  yield* Effect.sync(() => writeFiles(cluster, options))

  const pid = Effect.map(Postmaster.running(cluster), Option.map((running) => running.pid))

  const signalAll = (name: NodeJS.Signals) =>
    Effect.flatMap(pid, (found) =>
      Option.isNone(found)
        ? Effect.void
        : Effect.forEach(processesOf(found.value), (process) => Postmaster.signal(process, name), { discard: true }))

  const signalAndWait = (name: NodeJS.Signals) =>
    Effect.flatMap(pid, (found) =>
      Option.isNone(found)
        ? Effect.void
        : Postmaster.signal(found.value, name).pipe(
          Effect.andThen(Postmaster.gone(cluster, found.value, "60 seconds")),
          Effect.filterOrElse((gone) => gone, () => Effect.die(new Error(`Postgres survived ${name}`)))
        ))

  const thaw = signalAll("SIGCONT")
  const start = Effect.asVoid(Postmaster.ensure(cluster))
  const stopImmediate = Effect.andThen(thaw, signalAndWait("SIGQUIT"))

  const { port } = yield* Effect.acquireRelease(
    Postmaster.ensure(cluster),
    () => Effect.orDie(Effect.andThen(thaw, Postmaster.stop(cluster)))
  )
  return {
    url: EmbeddedPostgres.urlOf(port, yield* Cluster.password(cluster)),
    dataDir: folder,
    pid,
    freeze: live(signalAll("SIGSTOP")),
    thaw: live(thaw),
    stopImmediate: live(stopImmediate),
    kill: live(Effect.asVoid(signalAndWait("SIGKILL"))),
    start: live(start),
    restart: live(Effect.andThen(stopImmediate, start))
  }
})

/** Starts a server of its own port and files. The scope's end stops it and deletes the files. */
export const start = (
  options: Options = {}
): Effect.Effect<PostgresServer, EmbeddedPostgresFailed, Scope.Scope> =>
  live(make(options)).pipe(Effect.provideService(References.MinimumLogLevel, "Warn"))
