/** Runs the built `chaos.js` to its end and reads its report. */
import { Effect } from "effect"
import { spawn } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import type { Report } from "../../../src/programs/chaos/Report.ts"

export interface Ran {
  readonly exit: number | null
  readonly output: string
  /** `null` where it came to none. */
  readonly report: Report | null
}

export const chaos = (args: ReadonlyArray<string>, nodeOptions?: string): Effect.Effect<Ran> =>
  Effect.acquireUseRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "deadman-test-chaos-"))),
    (out) =>
      Effect.callback<Ran>((resume) => {
        const child = spawn(process.execPath, [resolve("dist/chaos.js"), ...args, "--out", out], {
          env: {
            PATH: process.env["PATH"] ?? "",
            HOME: process.env["HOME"] ?? "",
            ...(nodeOptions === undefined ? {} : { NODE_OPTIONS: nodeOptions })
          },
          stdio: ["ignore", "pipe", "pipe"]
        })
        let output = ""
        const keep = (chunk: Buffer) => {
          output = (output + chunk.toString()).slice(-20_000)
        }
        child.stdout.on("data", keep)
        child.stderr.on("data", keep)
        child.on("close", (exit) => {
          let report: Report | null = null
          try {
            report = JSON.parse(readFileSync(join(out, "report.json"), "utf8")) as Report
          } catch {
            // It says why.
          }
          resume(Effect.succeed({ exit, output, report }))
        })
        return Effect.sync(() => void child.kill("SIGINT"))
      }),
    (out) => Effect.sync(() => rmSync(out, { recursive: true, force: true }))
  )
