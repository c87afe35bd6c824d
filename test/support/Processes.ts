/**
 * The built programs as real processes, ended with real signals.
 *
 * A process belongs to the scope that started it: what is left of it when the
 * scope closes is killed, by its pid, whatever happened to the test.
 */
import { Clock, Duration, Effect, Schema } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import { fileURLToPath } from "node:url"
import { freePort } from "./FreePort.ts"

export { freePort }

export class ProgramFailed extends Schema.TaggedError<ProgramFailed>()("ProgramFailed", {
  message: Schema.String
}) {}

const root = fileURLToPath(new URL("../..", import.meta.url))

export interface Program {
  readonly pid: number
  readonly signal: (signal: NodeJS.Signals) => Effect.Effect<void>
  /** The exit code, or the signal that ended it; fails if it takes longer than `within`. */
  readonly exit: (within: Duration.Input) => Effect.Effect<number | NodeJS.Signals, ProgramFailed>
  readonly alive: () => boolean
  /** What it has written so far, both streams. */
  readonly output: () => string
  /** Milliseconds of CPU it has used, children not included. Linux only. */
  readonly cpuMs: Effect.Effect<number>
}

const outputMax = 2_000_000

/** The exit code, or the signal that ended it. */
const exitOf = (child: ChildProcess): Promise<number | NodeJS.Signals> =>
  new Promise((resolve) => {
    child.on("exit", (code, signal) => resolve(code ?? signal ?? 0))
    child.on("error", () => resolve(-1))
  })

/** Starts `command` in the project's folder, with `env` on top of a clean environment. */
export const run = Effect.fn("Processes.run")(function*(
  command: string,
  args: ReadonlyArray<string>,
  env: Readonly<Record<string, string>>
) {
  const { child, exited } = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const child: ChildProcess = spawn(command, args, {
        cwd: root,
        env: { PATH: process.env["PATH"] ?? "", HOME: process.env["HOME"] ?? "", ...env },
        stdio: ["ignore", "pipe", "pipe"]
      })
      return { child, exited: exitOf(child) }
    }),
    ({ child, exited }) =>
      Effect.sync(() => {
        if (child.exitCode === null && child.signalCode === null) {
          child.kill("SIGCONT")
          child.kill("SIGKILL")
        }
      }).pipe(
        // What comes next has the machine, and the database, to itself.
        Effect.andThen(Effect.timeoutOption(Effect.promise(() => exited), "20 seconds"))
      )
  )
  let output = ""
  const keep = (chunk: Buffer | string) => {
    output = (output + chunk.toString()).slice(-outputMax)
  }
  child.stdout?.on("data", keep)
  child.stderr?.on("data", keep)
  child.on("error", (error) => keep(`${error.message}: the tests need ${command}\n`))
  const program: Program = {
    pid: child.pid ?? -1,
    signal: (signal) => Effect.sync(() => void child.kill(signal)),
    exit: (within) =>
      Effect.promise(() => exited).pipe(
        Effect.timeoutOrElse({
          duration: within,
          orElse: () =>
            Effect.fail(
              new ProgramFailed({
                message: `${args.join(" ")} did not exit in time; it said:\n${output.slice(-3_000)}`
              })
            )
        })
      ),
    alive: () => child.exitCode === null && child.signalCode === null,
    output: () => output,
    cpuMs: cpuOf(child.pid ?? -1)
  }
  return program
})

/** Starts `node dist/<name>.js`. */
export const start = (
  name: "server" | "worker" | "load",
  env: Readonly<Record<string, string>>,
  args: ReadonlyArray<string> = []
) => run(process.execPath, [`dist/${name}.js`, ...args], { DEADMAN_LOG_FORMAT: "json", ...env })

/** Milliseconds of CPU of a process of ours. */
export const cpuOf = (pid: number): Effect.Effect<number> =>
  Effect.promise(() => import("node:fs/promises")).pipe(
    Effect.flatMap((fs) => Effect.promise(() => fs.readFile(`/proc/${pid}/stat`, "utf8"))),
    Effect.map((stat) => {
      const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
      return (Number(fields[11]) + Number(fields[12])) * 10
    })
  )

/** Asked so often at least: a bound that ends while this very process stands still says nothing of what it waits for. */
const asksMin = 10
/** How long one answer may take, also when the bound is nearly over. */
const answerMs = 2_000

/** Waits until `ready` holds, asking every `every`; fails with `what` after `within`. */
export const eventually = <E, R>(
  what: string | (() => string),
  ready: Effect.Effect<boolean, E, R>,
  within: Duration.Input = "60 seconds",
  every: Duration.Input = "50 millis"
): Effect.Effect<void, ProgramFailed, R> =>
  Effect.gen(function*() {
    const until = (yield* Clock.currentTimeMillis) + Duration.toMillis(Duration.fromInputUnsafe(within))
    for (let asks = 1;; asks++) {
      const leftMs = until - (yield* Clock.currentTimeMillis)
      const holds = yield* ready.pipe(
        Effect.catchCause(() => Effect.succeed(false)),
        Effect.timeoutOrElse({ duration: Math.max(answerMs, leftMs), orElse: () => Effect.succeed(false) })
      )
      if (holds) return
      if (asks >= asksMin && (yield* Clock.currentTimeMillis) > until) {
        return yield* new ProgramFailed({
          message: `did not come true within ${Duration.format(Duration.fromInputUnsafe(within))}: ` +
            (typeof what === "string" ? what : what())
        })
      }
      yield* Effect.sleep(every)
    }
  })
