/**
 * The example worker in Python as a real process. It belongs to the scope that started it, like the built programs.
 *
 * Without `python3` the tests fail and say so: an example that nobody runs is no example.
 */
import { type Duration, Effect } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import { fileURLToPath } from "node:url"
import { ProgramFailed } from "./Processes.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))

export interface Python {
  readonly signal: (signal: NodeJS.Signals) => Effect.Effect<void>
  readonly exit: (within: Duration.Input) => Effect.Effect<number | NodeJS.Signals, ProgramFailed>
  readonly alive: () => boolean
  readonly output: () => string
}

export const start = Effect.fn("Python.start")(function*(script: string, env: Readonly<Record<string, string>>) {
  const child = yield* Effect.acquireRelease(
    Effect.sync((): ChildProcess =>
      spawn("python3", ["-B", script], {
        cwd: root,
        env: { PATH: process.env["PATH"] ?? "", HOME: process.env["HOME"] ?? "", ...env },
        stdio: ["ignore", "pipe", "pipe"]
      })
    ),
    (child) =>
      Effect.sync(() => {
        if (child.exitCode === null && child.signalCode === null) {
          child.kill("SIGKILL")
        }
      })
  )
  let output = ""
  const keep = (chunk: Buffer) => {
    output = (output + chunk.toString()).slice(-200_000)
  }
  child.stdout?.on("data", keep)
  child.stderr?.on("data", keep)
  const exited = new Promise<number | NodeJS.Signals>((resolve) => {
    child.on("exit", (code, signal) => resolve(code ?? signal ?? 0))
    child.on("error", (error) => {
      output += `${error.message}: install python3, the tests run docs/examples/worker.py with it`
      resolve(-1)
    })
  })
  return {
    signal: (signal) => Effect.sync(() => void child.kill(signal)),
    exit: (within) =>
      Effect.promise(() => exited).pipe(
        Effect.timeoutOrElse({
          duration: within,
          orElse: () =>
            Effect.fail(new ProgramFailed({ message: `${script} did not exit in time; it said:\n${output}` }))
        })
      ),
    alive: () => child.exitCode === null && child.signalCode === null,
    output: () => output
  } satisfies Python
})
