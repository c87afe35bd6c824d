/**
 * Which processes use the Postgres of a data folder: one file each, in `members/`.
 *
 * A member registers before it takes the lock, so a process that is about to stop the Postgres either sees the
 * newcomer and leaves it running, or stops it before the newcomer gets the lock and starts it again.
 */
import { Option, Schema } from "effect"
import { randomUUID } from "node:crypto"
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { codeOf, EmbeddedPostgresFailed } from "./EmbeddedPostgresFailed.ts"
import * as ProcessIdentity from "./ProcessIdentity.ts"

const decode = Schema.decodeUnknownOption(Schema.fromJsonString(ProcessIdentity.ProcessIdentity))

const folderOf = (dataDir: string) => join(dataDir, "members")

/** Registers this process and returns its file. A process may do so more than once. */
export const register = (dataDir: string): string => {
  const folder = folderOf(dataDir)
  mkdirSync(folder, { recursive: true, mode: 0o755 })
  const file = join(folder, `${process.pid}.${randomUUID().slice(0, 8)}.json`)
  // Renamed into place, so that a reader never takes a half-written file for a dead member's.
  writeFileSync(`${file}.tmp`, JSON.stringify(ProcessIdentity.self()), { mode: 0o644 })
  renameSync(`${file}.tmp`, file)
  return file
}

export const unregister = (file: string): void => rmSync(file, { force: true })

/** How many members live, apart from the one of `own`. Removes the files of the dead. */
export const countOthers = (dataDir: string, own: string): number => {
  let live = 0
  for (const name of readdirSync(folderOf(dataDir))) {
    const file = join(folderOf(dataDir), name)
    if (file === own || !name.endsWith(".json")) continue
    let text: string
    try {
      text = readFileSync(file, "utf8")
    } catch (cause) {
      if (codeOf(cause) === "ENOENT") continue
      throw cause
    }
    const member = decode(text)
    const life = Option.isNone(member) ? "dead" : ProcessIdentity.lifeOf(member.value)
    if (life === "alive") live++
    if (life === "dead") rmSync(file, { force: true })
    if (life === "elsewhere" && Option.isSome(member)) {
      throw new EmbeddedPostgresFailed({
        message:
          `${dataDir} is used by ${ProcessIdentity.describe(member.value)}, in another container or on another ` +
          `host, and can be shared only within one. Stop it, set DEADMAN_DATA_DIR to a folder of your own, or use a ` +
          `Postgres server through DEADMAN_DATABASE_URL. If it is gone for certain, delete ${file}`
      })
    }
  }
  return live
}
