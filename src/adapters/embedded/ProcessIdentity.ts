/**
 * Which process wrote a file, and whether it is still alive.
 *
 * A pid alone is reused, so an identity holds the start time as well; a start time alone repeats after a reboot, so
 * it holds the boot id. A pid means nothing in another pid namespace or on another host, where "not found" would be
 * read as "dead" although the process works on. Of another namespace of this machine the sign of life tells; what is
 * left is `elsewhere`, and nobody may act on it.
 */
import { Schema } from "effect"
import { spawnSync } from "node:child_process"
import { readFileSync, readlinkSync } from "node:fs"
import { hostname } from "node:os"
import { join } from "node:path"
import { codeOf } from "./EmbeddedPostgresFailed.ts"
import * as SignOfLife from "./SignOfLife.ts"

export const ProcessIdentity = Schema.Struct({
  pid: Schema.Int,
  started: Schema.String,
  boot: Schema.String,
  host: Schema.String,
  namespace: Schema.String,
  /** The file of its sign of life, in the data folder's `members/`. */
  sign: Schema.optionalKey(Schema.String)
})
export type ProcessIdentity = typeof ProcessIdentity.Type

export type Life = "alive" | "dead" | "elsewhere"

const linux = process.platform === "linux"

const output = (command: string, args: ReadonlyArray<string>): string => {
  const { status, stdout } = spawnSync(command, args, {
    encoding: "utf8",
    timeout: 5_000,
    // Whoever asks is told the same: ps says when a process started in the language and the time zone of the asker.
    env: { ...process.env, LC_ALL: "C", TZ: "UTC" }
  })
  return status === 0 ? stdout.trim() : ""
}

/** Whether the pid is taken, be it by a zombie. */
export const exists = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch (cause) {
    return codeOf(cause) !== "ESRCH"
  }
}

/** `undefined` where the process is gone or a zombie, `""` where it exists but may not be looked at. */
export const startOf = (pid: number): string | undefined => {
  if (!exists(pid)) return undefined
  if (!linux) {
    const line = output("ps", ["-o", "stat=,lstart=", "-p", String(pid)])
    return line.startsWith("Z") ? undefined : line.replace(/^\S+\s+/, "")
  }
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8")
    // The name in parentheses may itself hold blanks and parentheses.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
    // Nobody may ever reap a zombie: pid 1 of a container often does not.
    return fields[0] === "Z" || fields[0] === "X" ? undefined : fields[19] ?? ""
  } catch {
    // Gone between the two looks, or hidden by a `hidepid` mount, where only the signal tells.
    return exists(pid) ? "" : undefined
  }
}

/** The arguments a process was started with, or `undefined` where they cannot be seen. */
export const argumentsOf = (pid: number): ReadonlyArray<string> | undefined => {
  if (!linux) return output("ps", ["-ww", "-o", "command=", "-p", String(pid)]).split(/\s+/)
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0")
  } catch {
    return undefined
  }
}

const bootId = (): string =>
  linux
    ? readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim()
    : output("sysctl", ["-n", "kern.bootsessionuuid"])

const namespace = (): string => linux ? readlinkSync("/proc/self/ns/pid") : "none"

let own: ProcessIdentity | undefined

/** Who we are. Read once: none of it changes while a process lives. */
export const self = (): ProcessIdentity =>
  own ??= {
    pid: process.pid,
    started: startOf(process.pid) ?? "",
    boot: bootId(),
    host: hostname(),
    namespace: namespace()
  }

/** The life of who signed in `dataDir`. */
export const lifeOf = (identity: ProcessIdentity, dataDir: string): Life => {
  const here = self()
  // Another boot of the same host: whatever ran then is gone, whichever namespace it was in.
  if (identity.boot !== here.boot) {
    if (identity.host !== here.host) return "elsewhere"
    // Unknown to one of the two, which had no way to the program that tells it: then the start has to do.
    if (identity.boot !== "" && here.boot !== "") return "dead"
  }
  if (identity.namespace !== here.namespace) {
    const seen = identity.sign === undefined ? "unknown" : SignOfLife.look(join(dataDir, "members", identity.sign))
    return seen === "free" ? "dead" : "elsewhere"
  }
  const started = startOf(identity.pid)
  if (started === undefined) return "dead"
  return started === "" || identity.started === "" || started === identity.started ? "alive" : "dead"
}

export const describe = (identity: ProcessIdentity): string => `process ${identity.pid} on ${identity.host}`
