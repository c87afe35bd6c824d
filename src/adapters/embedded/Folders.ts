/**
 * Makes folders, one after the other from the top.
 *
 * Node's own `recursive` never ends where nothing can be made, as below `/proc`: it is told there that a parent is
 * missing, and makes that parent, which is there, again and again.
 */
import { mkdirSync, statSync } from "node:fs"
import { dirname, resolve } from "node:path"
import { codeOf, EmbeddedPostgresFailed } from "./EmbeddedPostgresFailed.ts"

const isFolder = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isDirectory() === true

const makeOne = (path: string, mode: number): boolean => {
  try {
    mkdirSync(path, { mode })
    return true
  } catch (cause) {
    // Another process was faster.
    if (codeOf(cause) === "EEXIST" && isFolder(path)) return false
    if (codeOf(cause) !== "ENOENT") throw cause
    throw new EmbeddedPostgresFailed({
      message: `The embedded Postgres needs a folder for its data, and none can be made in ${dirname(path)}: that is ` +
        `no place for files. Set DEADMAN_DATA_DIR (or --data-dir, dataDir) to a folder on a disk`
    })
  }
}

/** Whether it was made now. `mode` is the last one's; those above it are as the process makes them. */
export const make = (path: string, mode: number): boolean => {
  const whole = resolve(path)
  if (isFolder(whole)) return false
  // A root is there, or nothing is.
  if (dirname(whole) !== whole) make(dirname(whole), 0o777)
  return makeOne(whole, mode)
}
