/**
 * Which processes use the Postgres of a data folder: one file each, in `members/`.
 *
 * A member registers before it takes the lock, so a process that is about to stop the Postgres either sees the
 * newcomer and leaves it running, or stops it before the newcomer gets the lock and starts it again.
 */
import { Option, Schema } from "effect"
import { randomUUID } from "node:crypto"
import { closeSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as Account from "./Account.ts"
import { codeOf, EmbeddedPostgresFailed } from "./EmbeddedPostgresFailed.ts"
import * as Folders from "./Folders.ts"
import * as ProcessIdentity from "./ProcessIdentity.ts"
import * as SignOfLife from "./SignOfLife.ts"

const decode = Schema.decodeUnknownOption(Schema.fromJsonString(ProcessIdentity.ProcessIdentity))

const folderOf = (dataDir: string) => join(dataDir, "members")

export interface Member {
  readonly file: string
  readonly identity: ProcessIdentity.ProcessIdentity
  readonly sign: number | undefined
}

/** Registers this process. It may do so more than once. */
export const register = (dataDir: string): Member => {
  const folder = folderOf(dataDir)
  Folders.make(folder, 0o755)
  Account.give(folder, dataDir)
  const name = `${process.pid}.${randomUUID().slice(0, 8)}`
  const file = join(folder, `${name}.json`)
  const sign = SignOfLife.hold(join(folder, `${name}.alive`), dataDir)
  const identity = sign === undefined ? ProcessIdentity.self() : { ...ProcessIdentity.self(), sign: `${name}.alive` }
  // Renamed into place, so that a reader never takes a half-written file for a dead member's.
  writeFileSync(`${file}.tmp`, JSON.stringify(identity), { mode: 0o644 })
  renameSync(`${file}.tmp`, file)
  return { file, identity, sign }
}

const remove = (file: string): void => {
  rmSync(file, { force: true })
  rmSync(file.replace(/json$/, "alive"), { force: true })
}

/** Is no longer counted. */
export const strike = (member: Member): void => remove(member.file)

export const unregister = (member: Member): void => {
  strike(member)
  if (member.sign !== undefined) closeSync(member.sign)
}

/** How many members live, apart from `own`. Removes the files of the dead. */
export const countOthers = (dataDir: string, own: Pick<Member, "file"> | undefined): number => {
  let live = 0
  for (const name of readdirSync(folderOf(dataDir))) {
    const file = join(folderOf(dataDir), name)
    if (file === own?.file || !name.endsWith(".json")) continue
    let text: string
    try {
      text = readFileSync(file, "utf8")
    } catch (cause) {
      if (codeOf(cause) === "ENOENT") continue
      throw cause
    }
    const member = decode(text)
    const life = Option.isNone(member) ? "dead" : ProcessIdentity.lifeOf(member.value, dataDir)
    if (life === "alive") live++
    if (life === "dead") remove(file)
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
