/**
 * Fails a run in which a test was skipped.
 *
 * A suite that skips itself because a server is missing would pass for ever without having run; on CI nothing may be
 * missing.
 */
import type { Reporter, TestModule } from "vitest/node"

export class NoSkips implements Reporter {
  onTestRunEnd(modules: ReadonlyArray<TestModule>): void {
    const skipped = modules.flatMap((module) => [...module.children.allTests("skipped")])
    if (skipped.length === 0) return
    for (const test of skipped) process.stderr.write(`skipped: ${test.module.relativeModuleId} > ${test.fullName}\n`)
    process.stderr.write(`${skipped.length} skipped: every test has to run on CI. Start what it needs, or delete it.\n`)
    process.exitCode = 1
  }
}
