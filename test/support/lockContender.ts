/**
 * Takes and releases the lock of a folder until it is killed, and prints `overlap` when it meets another process that
 * is alive inside, and a dot for each turn.
 */
import { NodeRuntime } from "@effect/platform-node"
import { Effect } from "effect"
import { readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as FolderLock from "../../src/adapters/embedded/FolderLock.ts"
import * as ProcessIdentity from "../../src/adapters/embedded/ProcessIdentity.ts"

const folder = process.argv[2] ?? ""
const inside = join(folder, "inside")

const holderInside = (): number | undefined => {
  try {
    return Number(readFileSync(inside, "utf8"))
  } catch {
    return undefined
  }
}

process.stdin.on("end", () => process.exit(0)).resume()

const turn = FolderLock.withLock(folder)(Effect.gen(function*() {
  const other = holderInside()
  // A killed contender is a zombie until the test reaps it, and can still be signalled: it holds nothing any more.
  if (other !== undefined && other > 0 && ProcessIdentity.startOf(other) !== undefined) process.stdout.write("overlap")
  writeFileSync(inside, String(process.pid))
  yield* Effect.sleep("3 millis")
  if (holderInside() !== process.pid) process.stdout.write("overlap")
  rmSync(inside)
  process.stdout.write(".")
}))

NodeRuntime.runMain(Effect.forever(turn))
