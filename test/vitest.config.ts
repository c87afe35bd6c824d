/**
 * How the tests run.
 *
 * Two files at once: many start processes and servers of their own, and what waits for a clock must not wait for a core
 * of a machine with two as well. Nothing is
 * retried: a test that fails now and then is a defect of the code or of the test. With `CI` set, a skipped test fails
 * the run, and the counts are written where `.ci/run` reads them.
 */
import { fileURLToPath } from "node:url"
import { defineConfig } from "vitest/config"
import { NoSkips } from "./house/NoSkips.ts"

const ci = process.env["CI"] !== undefined

export default defineConfig({
  // Examples that tests import say what their readers say.
  resolve: {
    alias: [{ find: /^deadman$/, replacement: fileURLToPath(new URL("../src/programs/deadman.ts", import.meta.url)) }]
  },
  test: {
    root: fileURLToPath(new URL("..", import.meta.url)),
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/support/globalSetup.ts"],
    pool: "forks",
    maxWorkers: 2,
    // The tests of one file start in order: a suite that wants its tests side by side says `concurrent` itself.
    sequence: { concurrent: false },
    // No test is about these: they end what hangs, and a machine that is busy with other things takes its time.
    testTimeout: 120_000,
    hookTimeout: 180_000,
    teardownTimeout: 60_000,
    retry: 0,
    allowOnly: false,
    reporters: ci
      ? ["default", new NoSkips(), ["json", {
        outputFile: fileURLToPath(new URL("../.test-report/results.json", import.meta.url))
      }]]
      : ["default"]
  }
})
