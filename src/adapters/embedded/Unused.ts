/**
 * What the watcher does in the end: stops a server that nobody uses, and no other one. Gently only: one that does not
 * stop is left to the next start.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Duration, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { closeSync, existsSync } from "node:fs"
import { join, resolve } from "node:path"
import * as Cluster from "./Cluster.ts"
import * as EmbeddedPostgres from "./EmbeddedPostgres.ts"
import { attempt, type EmbeddedPostgresFailed } from "./EmbeddedPostgresFailed.ts"
import * as FolderLock from "./FolderLock.ts"
import * as Members from "./Members.ts"
import * as Postmaster from "./Postmaster.ts"
import * as Watcher from "./Watcher.ts"

const lookLimit = Duration.seconds(10)

/** Nobody but us is connected. Where that cannot be told, somebody may be. */
const isIdle = (port: number, password: string): Effect.Effect<boolean> =>
  Layer.build(PgClient.layer({
    url: EmbeddedPostgres.urlOf(port, password),
    maxConnections: 1,
    applicationName: "deadman-embedded"
  })).pipe(
    Effect.flatMap((context) =>
      Context.get(context, SqlClient.SqlClient)<{ readonly others: number }>`
        SELECT count(*)::int AS others FROM pg_stat_activity
        WHERE backend_type IN ('client backend', 'walsender') AND pid <> pg_backend_pid()`
    ),
    Effect.map(([row]) => row?.others === 0),
    Effect.scoped,
    Effect.timeoutOrElse({ duration: lookLimit, orElse: () => Effect.succeed(false) }),
    Effect.orElseSucceed(() => false)
  )

// The password is there when a server is: where the database is only being made, there are users, but no password yet.
const stopIdle = (place: Pick<Cluster.Cluster, "dataDir" | "data">) =>
  Postmaster.stopIdle(
    place,
    (port) =>
      Effect.flatMap(Cluster.password(place), (password) => isIdle(port, password)).pipe(
        Effect.orElseSucceed(() => false)
      )
  )

/** Called with the watcher's end of the pipe as standard input. */
export const stop = Effect.fn("Unused.stop")(function*(folder: string): Effect.fn.Return<void, EmbeddedPostgresFailed> {
  const dataDir = resolve(folder)
  const place = { dataDir, data: Cluster.dataOf(dataDir) }
  // A folder that was removed is not made again.
  if (!existsSync(join(dataDir, "members"))) return
  yield* FolderLock.withLock(dataDir)(Effect.gen(function*() {
    const users = yield* attempt("look for its users", () => Members.countOthers(dataDir, undefined))
    const stopped = users === 0 && (yield* stopIdle(place))
    if (!stopped) yield* Watcher.handOver(dataDir)
    // Whoever gets the lock next must not take this process for one that watches.
    yield* attempt("let go", () => closeSync(0))
  }))
})
