/** A folder of a test file's own, deleted after the last of its tests, and files in it. */
import { afterAll } from "@effect/vitest"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

export const make = () => {
  const folder = mkdtempSync(join(tmpdir(), "deadman-test-files-"))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  return {
    folder,
    /** Writes it, and answers its path. */
    file: (name: string, text: string): string => {
      const path = join(folder, name)
      writeFileSync(path, text)
      return path
    }
  }
}
