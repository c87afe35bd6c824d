/**
 * Redis: where its program is, how it is started, and whether it answers.
 *
 * Debian's `redis-tools` holds the server's program under the name of its file checker; the package `redis-server`
 * adds a link of the right name and a service that starts by itself. So `redis-tools` is what is installed here, with
 * a link of our own: nothing is ever started that would have to be stopped again.
 */
import { Effect, Option } from "effect"
import { spawnSync } from "node:child_process"
import { existsSync, mkdirSync, symlinkSync } from "node:fs"
import { delimiter, join } from "node:path"
import * as Daemon from "./Daemon.ts"
import * as Exchange from "./Exchange.ts"
import * as Packages from "./Packages.ts"
import { attempt, ServiceFailed } from "./ServiceFailed.ts"

const onPath = (): string | undefined => {
  const folders = (process.env["PATH"] ?? "").split(delimiter).filter((folder) => folder !== "")
  return folders.map((folder) => join(folder, "redis-server")).find((program) => existsSync(program))
}

const checker = "/usr/bin/redis-check-rdb"

/** The checker is the server only where the package was built that way: asked for its version, it answers as one. */
const linked = (): string | undefined => {
  if (!existsSync(checker)) return undefined
  const folder = join(Packages.cache(), "redis")
  const link = join(folder, "redis-server")
  mkdirSync(folder, { recursive: true })
  if (!existsSync(link)) symlinkSync(checker, link)
  const { stdout } = spawnSync(link, ["--version"], { encoding: "utf8", timeout: 5_000 })
  return stdout?.startsWith("Redis server v=") ? link : undefined
}

/** The program, if the machine has it. */
export const find: Effect.Effect<Option.Option<string>, ServiceFailed> = attempt(
  "look for redis-server",
  () => Option.fromNullishOr(onPath() ?? linked())
)

export const advice = "Redis is not installed: install it (Debian: apt-get install redis-server; macOS: brew install " +
  "redis), or run this as root on Debian, which installs redis-tools by itself"

/** The program, installed if need be and possible. */
export const program: Effect.Effect<string, ServiceFailed> = Effect.gen(function*() {
  const found = yield* find
  if (Option.isSome(found)) return found.value
  if (!Packages.canInstall()) return yield* new ServiceFailed({ message: advice })
  yield* Packages.install(["redis-tools"])
  const installed = yield* find
  if (Option.isSome(installed)) return installed.value
  return yield* new ServiceFailed({ message: `redis-tools brought no server. ${advice}` })
})

export interface Settings {
  readonly port: number
  /** On top of ours, as in redis.conf. */
  readonly settings?: Readonly<Record<string, string>> | undefined
}

export const command = (program: string, { port, settings }: Settings): Daemon.Command => ({
  program,
  args: Object.entries({
    bind: "127.0.0.1",
    port: String(port),
    dir: ".",
    // Throwaway: nothing is written to disk unless a test asks for it.
    save: "",
    appendonly: "no",
    daemonize: "no",
    "enable-debug-command": "local",
    ...settings
  }).flatMap(([name, value]) => [`--${name}`, value])
})

export interface Answer {
  readonly version: string
  readonly pid: number
  readonly runId: string
}

const fieldOf = (info: string, name: string) => new RegExp(`^${name}:(.*?)\\r?$`, "m").exec(info)?.[1]

/** What the Redis on this port says of itself, or none within a second. */
export const ask = (port: number): Effect.Effect<Option.Option<Answer>> =>
  Exchange.ask(port, Buffer.from("INFO server\r\n"), (said) => {
    const info = said.toString()
    const version = fieldOf(info, "redis_version")
    const pid = fieldOf(info, "process_id")
    const runId = fieldOf(info, "run_id")
    return version === undefined || pid === undefined || runId === undefined || !info.includes("config_file:")
      ? undefined
      : { version, pid: Number(pid), runId }
  })

/** Starts it in `place`, whose folder exists and holds no live server, and waits until it answers. */
export const start = Effect.fn("Redis.start")(function*(place: Daemon.Place, program: string, settings: Settings) {
  yield* Daemon.launch(place, command(program, settings))
  yield* Daemon.awaitReady(place, Effect.map(ask(settings.port), Option.isSome), "30 seconds")
})
