/** Real processes that share an embedded Postgres, to be stopped and killed, and a look at what they leave behind. */
import { PgClient } from "@effect/sql-pg"
import { Deferred, Effect, Predicate, Redacted, Schedule, Schema, type Scope } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { spawn, spawnSync } from "node:child_process"
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as ProcessIdentity from "../../src/adapters/embedded/ProcessIdentity.ts"

const program = fileURLToPath(new URL("embeddedMember.ts", import.meta.url))

const Line = Schema.fromJsonString(Schema.Union([
  Schema.Struct({ pid: Schema.Int, port: Schema.Int, started: Schema.Boolean, url: Schema.String }),
  Schema.Struct({ failed: Schema.String })
]))

export interface Member {
  /** Its own process. */
  readonly pid: number
  /** What it said: the server that it has, or why it has none. */
  readonly said: Effect.Effect<typeof Line.Type>
  readonly leave: Effect.Effect<void>
  readonly kill: Effect.Effect<void>
}

/** A zombie, which whoever started it has not reaped, is gone. */
export const exists = (pid: number): boolean => ProcessIdentity.startOf(pid) !== undefined

/** Waits for a condition, for 90 s at most: a server is as slow to start and to stop as its machine. */
export const eventually = (what: string, check: () => boolean): Effect.Effect<void> =>
  Effect.sync(check).pipe(
    Effect.repeat({ until: (yes) => yes, schedule: Schedule.spaced("20 millis") }),
    Effect.timeoutOrElse({ duration: "90 seconds", orElse: () => Effect.die(new Error(`never happened: ${what}`)) }),
    Effect.asVoid
  )

const container = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]

/** Whether members can be `contained` here. */
export const canContain = (): boolean => spawnSync(container[0]!, [...container.slice(1), "true"]).status === 0

/** Starts a process that becomes a member; does not wait until it is. */
export const start = (
  dataDir: string,
  options: {
    readonly programs?: string
    readonly programsCache?: string
    readonly as?: { readonly uid: number; readonly gid: number }
    /** In a pid namespace of its own, which ends with it. */
    readonly contained?: boolean
    readonly env?: Readonly<Record<string, string>>
  } = {}
): Effect.Effect<Member, never, Scope.Scope> =>
  Effect.gen(function*() {
    const before = options.contained === true ? container : []
    const said = Deferred.makeUnsafe<typeof Line.Type>()
    const child = yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn(before[0] ?? process.execPath, [
          ...before.slice(1),
          ...(before.length > 0 ? [process.execPath] : []),
          program,
          dataDir,
          ...[options.programs, options.programsCache].filter(Predicate.isString)
        ], {
          ...options.as,
          env: { ...process.env, ...options.env },
          stdio: ["pipe", "pipe", "inherit"]
        })
      ),
      (child) =>
        Effect.sync(() => child.kill("SIGKILL")).pipe(
          Effect.andThen(eventually("the member is dead", () => child.exitCode !== null || child.signalCode !== null))
        )
    )
    let text = ""
    child.stdout.on("data", (chunk) => {
      text += String(chunk)
      // Log lines come on the same stream.
      for (const line of text.split("\n").slice(0, -1)) {
        if (line.startsWith("{")) Deferred.doneUnsafe(said, Effect.orDie(Schema.decodeUnknownEffect(Line)(line)))
      }
    })
    const ended = eventually("the member ends", () => child.exitCode !== null || child.signalCode !== null)
    return {
      pid: child.pid ?? 0,
      said: Deferred.await(said).pipe(
        Effect.timeoutOrElse({
          duration: "100 seconds",
          orElse: () => Effect.die(new Error(`the member says nothing, but: ${text}`))
        })
      ),
      leave: Effect.andThen(Effect.sync(() => child.kill("SIGTERM")), ended),
      kill: Effect.andThen(Effect.sync(() => child.kill("SIGKILL")), ended)
    }
  })

/** The server of a member, which must have one. */
export const serverOf = Effect.fnUntraced(function*(member: Member) {
  const said = yield* member.said
  return "failed" in said ? yield* Effect.die(new Error(said.failed)) : said
})

/** Why a member, which must have failed, has no server. */
export const failureOf = Effect.fnUntraced(function*(member: Member) {
  const said = yield* member.said
  return "failed" in said ? said.failed : yield* Effect.die(new Error("it has a server"))
})

export const postmasterOf = (dataDir: string): number =>
  Number(readFileSync(join(dataDir, "postgres", "data", "postmaster.pid"), "utf8").split("\n")[0])

const serverLeftIn = (dataDir: string): number | undefined => {
  try {
    const pid = postmasterOf(dataDir)
    const { dev, ino } = statSync(join(dataDir, "postgres", "data"))
    // The file may be of a contained server, and the pid here somebody else's.
    return ProcessIdentity.argumentsOf(pid)?.includes(`cluster_name=deadman-${dev}-${ino}`) === true ? pid : undefined
  } catch {
    // No file: nothing runs, as it should be.
    return undefined
  }
}

/** A folder below `parent` that takes what still runs in it along when it goes. */
export const folder = (parent: string = tmpdir()): Effect.Effect<string, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const path = mkdtempSync(join(parent, "deadman-embedded-"))
      chmodSync(path, 0o755)
      return path
    }),
    (path) =>
      Effect.gen(function*() {
        const left = serverLeftIn(join(path, "data"))
        if (left !== undefined) {
          process.kill(left, "SIGQUIT")
          yield* eventually("the server that was left is gone", () => !exists(left))
        }
        rmSync(path, { recursive: true, force: true })
      })
  )

export const query = (url: string, statement: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) => sql.unsafe(statement)).pipe(
    Effect.provide(PgClient.layer({ url: Redacted.make(url), maxConnections: 1 }))
  )

/** Runs `use` over one connection, which stays open. */
export const connected = <A, E>(
  url: string,
  use: (query: (statement: string) => Effect.Effect<unknown, SqlError.SqlError>) => Effect.Effect<A, E>
) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) =>
      Effect.scoped(Effect.flatMap(sql.reserve, (connection) =>
        use((statement) =>
          connection.executeUnprepared(statement, [], undefined)
        )))
  ).pipe(
    Effect.provide(PgClient.layer({ url: Redacted.make(url), maxConnections: 1 }))
  )
