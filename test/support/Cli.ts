/** The built command line as a child process: what it wrote on each stream, and how it ended. */
import { Effect } from "effect"
import { spawn } from "node:child_process"
import { fileURLToPath } from "node:url"

const root = fileURLToPath(new URL("../..", import.meta.url))

export interface Ran {
  readonly code: number | NodeJS.Signals
  readonly out: string
  readonly err: string
}

export interface Options {
  readonly env?: Readonly<Record<string, string>> | undefined
  /** What it reads on stdin; nothing is an empty stdin. */
  readonly input?: string | undefined
  /** Told all that came on stdout so far, each time that more comes. */
  readonly onOutput?: ((out: string) => void) | undefined
  /** Sent once, when what came on stdout says so. */
  readonly signal?: { readonly name: NodeJS.Signals; readonly when: (out: string) => boolean } | undefined
  /** Closes its stdout once so much was read, as `head` does. */
  readonly closeAfter?: number | undefined
  /** When it is taken for one that does not end. */
  readonly killAfterMs?: number | undefined
}

const killAfterMs = 120_000

/** Runs `node dist/cli.js` with `args` in a clean environment. It is killed, by its pid, if it does not end. */
export const run = (args: ReadonlyArray<string>, options: Options = {}): Effect.Effect<Ran> =>
  Effect.callback<Ran>((resume) => {
    const child = spawn(process.execPath, ["dist/cli.js", ...args], {
      cwd: root,
      env: { PATH: process.env["PATH"] ?? "", HOME: process.env["HOME"] ?? "", ...options.env },
      stdio: ["pipe", "pipe", "pipe"]
    })
    const kill = () => void child.kill("SIGKILL")
    const timer = setTimeout(kill, options.killAfterMs ?? killAfterMs)
    let out = ""
    let err = ""
    let sent = false
    child.stdout.on("data", (chunk: Buffer) => {
      out += chunk.toString()
      options.onOutput?.(out)
      if (options.closeAfter !== undefined && out.length >= options.closeAfter) {
        child.stdout.destroy()
      }
      if (!sent && options.signal?.when(out) === true) {
        sent = true
        child.kill(options.signal.name)
      }
    })
    child.stderr.on("data", (chunk: Buffer) => (err += chunk.toString()))
    child.stdin.on("error", () => {})
    child.stdin.end(options.input ?? "")
    child.on("close", (code, signal) => {
      clearTimeout(timer)
      resume(Effect.succeed({ code: code ?? signal ?? -1, out, err }))
    })
    return Effect.sync(() => {
      clearTimeout(timer)
      kill()
    })
  })
