/** What is done with each of the three servers, whatever stands behind it. */
import { type Effect, Option } from "effect"
import { spawnSync } from "node:child_process"
import { readFileSync } from "node:fs"
import { type ServiceFailed } from "./ServiceFailed.ts"

export interface Status {
  readonly state: "up" | "down" | "not answering"
  readonly version: string
  readonly port: number
  readonly pid: Option.Option<number>
  readonly log: string
}

export interface Service {
  readonly name: "postgres" | "redis" | "kafka"
  /** Brings to the machine what starting needs, unless the server runs. Takes as long as the network does. */
  readonly prepare: Effect.Effect<void, ServiceFailed>
  /** Starts it and waits until it answers; says whether it ran already. */
  readonly up: Effect.Effect<"started" | "already up", ServiceFailed>
  /** Stops it in order, deletes its data, and says whether it ran. */
  readonly down: Effect.Effect<boolean, ServiceFailed>
  readonly status: Effect.Effect<Status, ServiceFailed>
  /** The variable that names it to Deadman, and its value once it runs. */
  readonly variable: Effect.Effect<readonly [name: string, value: string], ServiceFailed>
}

const pssOf = (pid: number): number | undefined => {
  try {
    return Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"))?.[1])
  } catch {
    return undefined
  }
}

/** MiB of a process and its children; what they share is counted once where the system tells. */
export const memoryOf = (pid: number): number => {
  const { stdout } = spawnSync("ps", ["-A", "-o", "pid=,ppid=,rss="], { encoding: "utf8", timeout: 5_000 })
  const kilobytes = (stdout ?? "").trim().split("\n")
    .map((line) => line.trim().split(/\s+/).map(Number))
    .filter(([id, parent]) => id === pid || parent === pid)
    .reduce((sum, [id = 0, , rss = 0]) => sum + (pssOf(id) ?? rss), 0)
  return Math.round(kilobytes / 1024)
}

/** One line for people. */
export const lineOf = (name: string, { log, pid, port, state, version }: Status): string => {
  const process = Option.match(pid, {
    onNone: () => [],
    onSome: (pid) => [`pid ${pid}`, `${memoryOf(pid)} MiB`]
  })
  return [`${name}: ${state}`, version, `port ${port}`, ...process, `log ${log}`].join(", ")
}
