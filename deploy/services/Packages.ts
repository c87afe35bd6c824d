/**
 * What can be brought to this machine: Debian's packages when root, and what Maven Central has.
 *
 * Nothing that is installed here starts a service.
 */
import { Duration, Effect } from "effect"
import { spawn, spawnSync } from "node:child_process"
import { homedir } from "node:os"
import { isAbsolute, join } from "node:path"
import { ServiceFailed } from "./ServiceFailed.ts"

/** Kept between runs, shared by every clone: what was once fetched is there for the next start. */
export const cache = (): string => {
  const given = process.env["XDG_CACHE_HOME"]
  // The specification has relative ones ignored.
  return join(given !== undefined && isAbsolute(given) ? given : join(homedir(), ".cache"), "deadman")
}

export const canInstall = (): boolean => process.getuid?.() === 0 && saysOf("apt-get", ["--version"]) !== undefined

/** What a program says on both streams, if it ends well within the deadline. */
export const saysOf = (program: string, args: ReadonlyArray<string>, timeout = 20_000): string | undefined => {
  const { error, status, stderr, stdout } = spawnSync(program, args, {
    encoding: "utf8",
    timeout,
    // A client that waits for its engine may not hear anything else.
    killSignal: "SIGKILL"
  })
  return error === undefined && status === 0 ? `${stdout}\n${stderr}` : undefined
}

/** Runs a program to its end and fails with what it said last. */
export const run = (
  program: string,
  args: ReadonlyArray<string>,
  options: { readonly limit: Duration.Input; readonly cwd?: string; readonly env?: Readonly<Record<string, string>> }
): Effect.Effect<void, ServiceFailed> =>
  Effect.callback<void, ServiceFailed>((resume) => {
    const child = spawn(program, args, {
      cwd: options.cwd,
      env: { ...process.env, ...options.env },
      stdio: ["ignore", "pipe", "pipe"]
    })
    let said = ""
    const keep = (chunk: Buffer) => {
      said = (said + chunk.toString()).slice(-8_000)
    }
    child.stdout.on("data", keep)
    child.stderr.on("data", keep)
    child.on("error", (cause) => resume(new ServiceFailed({ message: `cannot run ${program}: ${cause.message}` })))
    child.on("close", (code, signal) => {
      if (code === 0) return resume(Effect.void)
      const lines = said.trim().split("\n")
      const words = lines.find((line) => /\b(ERROR|E:|error)/.test(line)) ?? lines.at(-1) ?? ""
      resume(
        new ServiceFailed({ message: `${program} ${args[0] ?? ""} ended with ${code ?? signal}: ${words.trim()}` })
      )
    })
    return Effect.sync(() => void child.kill("SIGTERM"))
  }).pipe(Effect.timeoutOrElse({
    duration: options.limit,
    orElse: () =>
      new ServiceFailed({
        message: `${program} ${args[0] ?? ""} has taken ${
          Duration.format(Duration.fromInputUnsafe(options.limit))
        }. Is the network working?`
      })
  }))

const aptGet = (...args: ReadonlyArray<string>) =>
  run("apt-get", ["-o", "DPkg::Lock::Timeout=120", ...args], {
    limit: "10 minutes",
    env: { DEBIAN_FRONTEND: "noninteractive" }
  })

/** Installs Debian's packages. Only for root. */
export const install = Effect.fn("Packages.install")(function*(names: ReadonlyArray<string>) {
  yield* Effect.logInfo(`installing ${names.join(", ")} with apt-get`)
  const install = aptGet("install", "-y", "--no-install-recommends", ...names)
  // A new machine has no package lists, and an old one may have lists of what is no longer served.
  yield* Effect.catch(install, () => Effect.andThen(aptGet("update"), install))
})
