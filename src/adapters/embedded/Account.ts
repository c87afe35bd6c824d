/**
 * Who the Postgres runs as. It refuses to run as root, so for root another user is chosen: whoever owns the data
 * already, else the owner of the data folder, else `postgres` or `nobody`.
 *
 * That user often cannot reach the folder by its path, below a home of mode 700 for example. Nothing is opened up for
 * it: the processes are started inside the folder and know it as `/proc/self/cwd`, which leads there without a walk
 * through the parents. That is Linux only; elsewhere the path itself has to be reachable.
 */
import { spawnSync } from "node:child_process"
import { chownSync, statSync } from "node:fs"
import { EmbeddedPostgresFailed } from "./EmbeddedPostgresFailed.ts"

export interface Account {
  /** Undefined for an ordinary user, who stays who he is. */
  readonly as: { readonly uid: number; readonly gid: number } | undefined
}

export const isRoot = (): boolean => process.getuid?.() === 0

const idOf = (flag: "-u" | "-g", user: string): number | undefined => {
  const { status, stdout } = spawnSync("id", [flag, user], { encoding: "utf8", timeout: 5_000 })
  return status === 0 ? Number(stdout.trim()) : undefined
}

// initdb looks its user up, and an id that only exists as an owner of files has no entry.
const known = (user: string): Account["as"] => {
  const uid = idOf("-u", user)
  const gid = idOf("-g", user)
  return uid === undefined || gid === undefined || uid === 0 ? undefined : { uid, gid }
}

const ownerOf = (path: string): { readonly uid: number; readonly gid: number } | undefined => {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat === undefined || stat.uid === 0 ? undefined : { uid: stat.uid, gid: stat.gid }
}

const knownOwnerOf = (path: string): Account["as"] => {
  const owner = ownerOf(path)
  return owner === undefined ? undefined : known(String(owner.uid)) ?? undefined
}

export const choose = (dataDir: string, data: string): Account => {
  if (!isRoot()) {
    const owner = statSync(data, { throwIfNoEntry: false })?.uid
    if (owner !== undefined && owner !== process.getuid?.()) {
      throw new EmbeddedPostgresFailed({
        message:
          `The Postgres data in ${dataDir} belongs to the user with id ${owner}. Start as that user or as root, ` +
          `or set DEADMAN_DATA_DIR to a folder of your own`
      })
    }
    return { as: undefined }
  }
  const as = ownerOf(data) ?? knownOwnerOf(dataDir) ?? known("postgres") ?? known("nobody")
  if (as === undefined) {
    throw new EmbeddedPostgresFailed({
      message: "Postgres does not run as root, and there is no user postgres or nobody to run it as. Start as an " +
        "ordinary user, or set DEADMAN_DATABASE_URL"
    })
  }
  return { as }
}

/** Makes what root created beside the data belong to the owner of the folder, who may start without root next time. */
export const give = (path: string, dataDir: string): void => {
  const owner = isRoot() ? ownerOf(dataDir) : undefined
  if (owner !== undefined) chownSync(path, owner.uid, owner.gid)
}

/** How the processes of `account` call the folder they were started in. */
export const here = (account: Account, folder: string): string =>
  account.as !== undefined && process.platform === "linux" ? "/proc/self/cwd" : folder
