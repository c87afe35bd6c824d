/**
 * A temporary folder that does not outlive its process, however that ends.
 *
 * A guard waits for the end of a pipe from this process, which comes even when this process is killed. Then it runs its
 * script, which ends what lives in the folder and deletes it.
 */
import { Effect, type Scope } from "effect"
import { spawn } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

/** `script` is given the folder as `$1`, once standard input has ended; it deletes it. */
export const make = (prefix: string, script: string): Effect.Effect<string, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => {
        const folder = mkdtempSync(join(tmpdir(), prefix))
        const guard = spawn("sh", ["-c", `cat > /dev/null\n${script}`, "sh", folder], {
          stdio: ["pipe", "ignore", "ignore"],
          // Ctrl-C goes to our whole group, and the guard is what must survive it.
          detached: true
        })
        guard.unref()
        return { folder, guard }
      }),
      ({ folder, guard }) =>
        Effect.sync(() => {
          rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
          guard.stdin.destroy()
        })
    ),
    ({ folder }) => folder
  )
