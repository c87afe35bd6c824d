/**
 * The processes of a chaos run: each in a group of its own, hurt and ended by that group.
 *
 * A process belongs to the scope that started it. Where this process is itself killed, no scope closes: a guard then
 * notices the end of its pipe, ends what is on its list, and deletes the folder. It looks at start times, so that a pid
 * which was given away in between is left alone.
 */
import { Effect, type Scope } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import { appendFileSync, closeSync, openSync, readFileSync } from "node:fs"
import { join } from "node:path"
import * as GuardedFolder from "./GuardedFolder.ts"

const guardScript = `
[ -f "$1/pids" ] || exit 0
for signal in CONT QUIT KILL; do
  while read -r pid started; do
    now=$(sed 's/.*) //' "/proc/$pid/stat" 2> /dev/null | cut -d ' ' -f 20)
    [ -n "$now" ] && [ "$now" = "$started" ] && kill -s $signal -- "-$pid"
  done < "$1/pids"
  [ $signal = CONT ] || sleep 2
done
rm -rf "$1"`

/** The start of a process in ticks since the boot; Linux only. */
const startOf = (pid: number): string => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8")
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? ""
  } catch {
    return ""
  }
}

export interface Place {
  readonly folder: string
  /** Puts a process on the guard's list. */
  readonly watch: (pid: number) => void
}

/** A temporary folder that goes with the scope, and its guard. */
export const place: Effect.Effect<Place, never, Scope.Scope> = Effect.map(
  GuardedFolder.make("deadman-chaos-", guardScript),
  (folder) => ({
    folder,
    watch: (pid) => {
      const started = startOf(pid)
      if (started !== "") appendFileSync(join(folder, "pids"), `${pid} ${started}\n`)
    }
  })
)

export interface Child {
  readonly pid: number
  readonly alive: () => boolean
  /** To its whole group. */
  readonly signal: (name: NodeJS.Signals) => Effect.Effect<void>
  readonly exited: Effect.Effect<number | NodeJS.Signals>
}

const signalGroup = (child: ChildProcess, name: NodeJS.Signals) => {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
  try {
    process.kill(-child.pid, name)
  } catch {
    // It ended by itself.
  }
}

/** Starts a Node program, its output appended to `log`. */
export const start = (options: {
  readonly place: Place
  readonly script: string
  readonly env: Readonly<Record<string, string>>
  readonly log: string
}): Effect.Effect<Child, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => {
        const log = openSync(options.log, "a")
        try {
          const child = spawn(process.execPath, [options.script], {
            cwd: options.place.folder,
            env: { PATH: process.env["PATH"] ?? "", HOME: process.env["HOME"] ?? "", ...options.env },
            stdio: ["ignore", log, log],
            detached: true
          })
          if (child.pid !== undefined) options.place.watch(child.pid)
          return child
        } finally {
          closeSync(log)
        }
      }),
      (child) =>
        Effect.sync(() => {
          signalGroup(child, "SIGKILL")
        })
    ),
    (child) => {
      const exited = new Promise<number | NodeJS.Signals>((resolve) => {
        child.on("exit", (code, signal) => resolve(code ?? signal ?? 0))
        child.on("error", () => resolve(-1))
      })
      return {
        pid: child.pid ?? -1,
        alive: () => child.pid !== undefined && child.exitCode === null && child.signalCode === null,
        signal: (name) => Effect.sync(() => signalGroup(child, name)),
        exited: Effect.promise(() => exited)
      }
    }
  )
