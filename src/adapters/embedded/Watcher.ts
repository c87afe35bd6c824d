/**
 * Ends a Postgres whose users are all gone and none of whom could leave: killed, crashed, ended by a Ctrl-C that they
 * do not handle.
 *
 * A shell reads a named pipe that every member holds open for writing. The kernel closes a process's end however the
 * process ended, so the shell waits, at no cost and without a look, until the last of them is gone. It lets a restart
 * come first, and then becomes `dist/embedded-stop.js`, which counts again under the folder's lock. A last member that
 * leaves by itself sends the shell away.
 *
 * Where there is no shell, no named pipe or no such file (a program that has Deadman bundled into it), or no Node of its
 * own to become, nobody watches, and the next start takes the server over.
 */
import { Duration, Effect, Schedule } from "effect"
import { spawn } from "node:child_process"
import { closeSync, constants, existsSync, openSync, readSync, writeSync } from "node:fs"
import { basename, join } from "node:path"
import { fileURLToPath } from "node:url"
import * as Cluster from "./Cluster.ts"
import { attempt, codeOf } from "./EmbeddedPostgresFailed.ts"
import * as SignOfLife from "./SignOfLife.ts"

/** How long a supervisor, or `node --watch`, may take to start again what ended. */
export const linger = Duration.seconds(10)
/** While somebody who is no member is connected, or members are there that hold no pipe. */
export const again = Duration.seconds(60)

const dismissLimit = Duration.seconds(1)

const pipeOf = (dataDir: string) => join(dataDir, "users.alive")

/** Fedora and its kin call it `node-22`. */
export const isNode = (program: string): boolean => /^node(js)?(-?\d[\d.]*)?(\.exe)?$/.test(program)

/**
 * Beside the bundle, or in the sources; none where Node is inside another program (Electron, an application in one file):
 * that would begin once more, as itself.
 */
const program = (): string | undefined =>
  !isNode(basename(process.execPath)) ?
    undefined :
    ["./embedded-stop.js", "../../programs/embedded-stop.ts"]
      .map((path) => fileURLToPath(new URL(path, import.meta.url)))
      .find((path) => existsSync(path))

// A line is the word to go; the end of the file is the end of the last member. Nothing else may hold the pipe
// meanwhile: whoever comes to the folder takes a pipe that is held for a shell that waits.
const script = `if read -r line; then exit 0; fi
sleep "$1" <&-
exec "$2" "$3" "$4"`

/** What was said to the shell before this one. */
const drain = (pipe: number): void => {
  const buffer = Buffer.alloc(512)
  try {
    while (readSync(pipe, buffer, 0, buffer.length, null) > 0);
  } catch (cause) {
    if (codeOf(cause) !== "EAGAIN") throw cause
  }
}

/** Starts a shell that waits from now on, and gives the end to hold. */
const start = (path: string, dataDir: string, patience: Duration.Duration): number | undefined => {
  const stop = program()
  if (stop === undefined) return undefined
  const first = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    drain(first)
    const held = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK)
    // Opened as one that waits, which it does not here: it has a writer.
    const input = openSync(path, constants.O_RDONLY)
    try {
      const shell = spawn(
        "/bin/sh",
        ["-c", script, "deadman-embedded", String(Duration.toSeconds(patience)), process.execPath, stop, dataDir],
        // In a session of its own: what ends its starter and all that it started must not end it.
        { cwd: "/", env: Cluster.environment(), stdio: [input, "ignore", "ignore"], detached: true }
      )
      shell.on("error", () => {})
      shell.unref()
    } finally {
      closeSync(input)
    }
    return held
  } finally {
    closeSync(first)
  }
}

/** Under the folder's lock: is watched from now on. Gives the end to hold, where there can be a watcher. */
export const hold = (dataDir: string, patience: Duration.Duration = linger): Effect.Effect<number | undefined> =>
  attempt("be watched", () => {
    const path = pipeOf(dataDir)
    if (!SignOfLife.make(path, dataDir)) return undefined
    try {
      return openSync(path, constants.O_WRONLY | constants.O_NONBLOCK)
    } catch (cause) {
      if (codeOf(cause) !== "ENXIO") throw cause
      return start(path, dataDir, patience)
    }
  }).pipe(Effect.catch((error) => Effect.as(Effect.logDebug(error.message), undefined)))

export const letGo = (held: number | undefined): Effect.Effect<void> =>
  Effect.ignore(attempt("let go", () => held === undefined ? undefined : closeSync(held)))

/** Under the folder's lock, when the server is stopped: the shell need not wait any longer. */
export const dismiss = (dataDir: string, held: number | undefined): Effect.Effect<void> =>
  held === undefined
    ? Effect.void
    : attempt("send the watcher away", () => writeSync(held, "\n")).pipe(
      // Whoever gets the lock next must not take one that is about to go for one that watches.
      Effect.andThen(
        Effect.sync(() => SignOfLife.look(pipeOf(dataDir)) !== "held").pipe(
          Effect.repeat({ until: (gone) => gone, schedule: Schedule.spaced("5 millis") }),
          Effect.timeoutOption(dismissLimit)
        )
      ),
      Effect.ignore
    )

/** Under the folder's lock, by a watcher that found users: another one goes on in its place. */
export const handOver = (dataDir: string): Effect.Effect<void> =>
  attempt("be watched", () => start(pipeOf(dataDir), dataDir, again)).pipe(
    Effect.flatMap(letGo),
    Effect.ignore
  )
