/**
 * A sign of life that the kernel gives: a named pipe that a process, or a server with all its children, holds open for
 * reading. Opening it for writing without waiting fails exactly when nobody does.
 *
 * It ends with its holder however that ends, and it is seen from every pid namespace of the machine. That is what
 * tells a container that was killed from one that works on, where a pid tells nothing.
 */
import { spawnSync } from "node:child_process"
import { closeSync, constants, lstatSync, openSync } from "node:fs"
import * as Account from "./Account.ts"
import { codeOf } from "./EmbeddedPostgresFailed.ts"

/** Makes the pipe, and says whether it is there: not where there are no named pipes. */
export const make = (path: string, dataDir: string): boolean => {
  if (lstatSync(path, { throwIfNoEntry: false }) === undefined) {
    const { status } = spawnSync("mkfifo", ["-m", "600", path], { timeout: 5_000, stdio: "ignore" })
    if (status === 0) Account.give(path, dataDir)
  }
  return lstatSync(path, { throwIfNoEntry: false })?.isFIFO() === true
}

/** Gives the open pipe, or nothing where there are no named pipes: those who look then cannot tell. */
export const hold = (path: string, dataDir: string): number | undefined =>
  make(path, dataDir) ? openSync(path, constants.O_RDONLY | constants.O_NONBLOCK) : undefined

export const look = (path: string): "held" | "free" | "unknown" => {
  if (lstatSync(path, { throwIfNoEntry: false })?.isFIFO() !== true) return "unknown"
  try {
    closeSync(openSync(path, constants.O_WRONLY | constants.O_NONBLOCK))
    return "held"
  } catch (cause) {
    return codeOf(cause) === "ENXIO" ? "free" : "unknown"
  }
}
