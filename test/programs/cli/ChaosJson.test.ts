/** `deadman chaos --json`, whole: one document on stdout, all that is for people on stderr, and an exit code by the verdict. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Cli from "../../support/Cli.ts"

const size = "--jobs 40 --workers 2 --threads-per-worker 24 --kill-rate 0.05 --kill-interval-sec 2 --lease-ms 1000"

it.live("a siege answers with its report, whatever it has come to", () =>
  Effect.gen(function*() {
    const folder = yield* Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "deadman-cli-chaos-"))),
      (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
    )
    const ran = yield* Cli.run([
      "chaos",
      "--json",
      "--seed",
      "as-json",
      ...size.split(" "),
      "--timeout-sec",
      "150",
      "--out",
      folder
    ], { killAfterMs: 280_000 })
    const report = JSON.parse(ran.out)
    assert.deepStrictEqual(report, JSON.parse(readFileSync(join(folder, "report.json"), "utf8")))
    assert.deepStrictEqual([report.plan.seed, report.plan.jobs, report.judgement.figures.jobs], ["as-json", 40, 40])
    assert.include(["held", "proved nothing"], report.verdict, ran.err)
    assert.strictEqual(ran.code, report.verdict === "held" ? 0 : 1, ran.err)
    for (const said of ["seed as-json: 40 jobs in", "40 submitted", "judging", "The report is "]) {
      assert.include(ran.err, said)
    }
    assert.notInclude(ran.out, "judging")
  }).pipe(Effect.scoped), 300_000)
