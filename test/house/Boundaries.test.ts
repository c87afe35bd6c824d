/**
 * The checks that guard the house can fail.
 *
 * A boundary check that sees no file is green for ever, so each rule is shown a file that breaks it, in a copy of the
 * folders with the project's own settings, and one that keeps it.
 */
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { spawnSync } from "node:child_process"
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join, resolve } from "node:path"

const run = (tool: string, cwd: string, ...args: ReadonlyArray<string>): string => {
  const { error, stderr, stdout } = spawnSync(resolve("node_modules/.bin", tool), args, {
    cwd,
    encoding: "utf8",
    timeout: 60_000
  })
  if (error !== undefined) throw error
  return stdout + stderr
}

const write = (folder: string, files: Readonly<Record<string, string>>) => {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    writeFileSync(join(folder, path), text)
  }
}

/** `[from, what it imports, whether it may]` */
const imports: ReadonlyArray<readonly [from: string, to: string, allowed: boolean]> = [
  ["src/domain/Job", "effect", true],
  ["src/domain/Job", "./Lease.ts", true],
  ["src/domain/Job", "../ports/JobStore.ts", false],
  ["src/domain/Job", "../adapters/memory/JobStoreMemory.ts", false],
  ["src/domain/Job", "../programs/Main.ts", false],
  ["src/domain/Job", "node:crypto", false],
  ["src/domain/Job", "pg", false],
  ["src/domain/Job", "eff", false],
  ["src/domain/Job", "effect/sql", false],
  ["src/domain/Job", "@effect/platform-node", false],
  ["src/ports/JobStore", "effect", true],
  ["src/ports/JobStore", "../domain/Job.ts", true],
  ["src/ports/JobStore", "../adapters/memory/JobStoreMemory.ts", false],
  ["src/ports/JobStore", "../programs/Main.ts", false],
  ["src/ports/JobStore", "@effect/sql-pg", false],
  ["src/ports/JobStore", "effect/sql", false],
  ["src/adapters/redis/Redis", "ioredis", true],
  ["src/adapters/redis/Redis", "effect/sql", true],
  ["src/adapters/redis/Redis", "./Script.ts", true],
  ["src/adapters/redis/Redis", "../../ports/LeaseRegister.ts", true],
  ["src/adapters/redis/Redis", "../postgres/Postgres.ts", false],
  ["src/adapters/redis/Redis", "../../programs/Main.ts", false],
  ["src/adapters/http/Api", "../../domain/Job.ts", true],
  ["src/adapters/http/Api", "../memory/JobStoreMemory.ts", false],
  ["src/adapters/postgres/migrations/0001", "../Postgres.ts", true],
  ["src/adapters/postgres/migrations/0001", "../../../domain/Job.ts", true],
  ["src/adapters/postgres/migrations/0001", "../../redis/Redis.ts", false],
  ["src/programs/server", "../adapters/http/Api.ts", true],
  ["src/programs/server", "@effect/platform-node", true],
  ["src/programs/server", "../../test/support/Clock.ts", false],
  ["src/programs/worker/ClaimLoop", "effect", true],
  ["src/programs/worker/ClaimLoop", "../keeper/Reaper.ts", true],
  ["src/programs/worker/ClaimLoop", "../../ports/JobStore.ts", true],
  ["src/programs/worker/ClaimLoop", "../../adapters/memory/JobStoreMemory.ts", false],
  ["src/programs/worker/ClaimLoop", "../Adapters.ts", false],
  ["src/programs/worker/ClaimLoop", "@effect/sql-pg", false],
  ["src/programs/worker/ClaimLoop", "effect/sql", false],
  ["src/programs/chaos/Simulation", "effect/testing", true],
  ["src/programs/chaos/Simulation", "node:fs", false],
  ["src/programs/chaos/Simulation", "../../adapters/memory/JobStoreMemory.ts", false],
  ["test/contracts/JobStoreContract", "../../src/ports/JobStore.ts", true],
  ["test/contracts/JobStoreContract", "../support/Clock.ts", true],
  ["test/contracts/JobStoreContract", "@effect/vitest", true],
  ["test/contracts/JobStoreContract", "../../src/adapters/memory/JobStoreMemory.ts", false],
  ["test/contracts/JobStoreContract", "../../src/programs/Main.ts", false],
  ["test/contracts/JobStoreContract", "@effect/sql-pg", false]
]

const file = (index: number) => `${imports[index]?.[0]}_${index}.ts`

describe("the import table", () => {
  let folder = ""
  let refused: ReadonlyArray<string> = []

  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "deadman-house-"))
    copyFileSync(".oxlintrc.json", join(folder, ".oxlintrc.json"))
    write(folder, Object.fromEntries(imports.map(([, to], index) => [file(index), `export * from "${to}"\n`])))
    write(folder, {
      "src/domain/Round.ts": `import { trip } from "./Trip.ts"\nexport const round = () => trip()\n`,
      "src/domain/Trip.ts": `import { round } from "./Round.ts"\nexport const trip = (): unknown => round\n`
    })
    const report = JSON.parse(run("oxlint", folder, "--format=json", "src", "test"))
    refused = report.diagnostics.map((found: { readonly code: string; readonly filename: string }) =>
      `${found.code} ${found.filename}`
    )
  })
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  it.each(imports.map(([from, to, allowed], index) => ({ from, to, allowed, index })))(
    "$from may import $to: $allowed",
    ({ allowed, index }) => {
      assert.strictEqual(!refused.includes(`eslint(no-restricted-imports) ${file(index)}`), allowed)
    }
  )

  it("refuses a cycle", () => {
    assert.isTrue(refused.some((found) => found.startsWith("import(no-cycle) src/domain/")), refused.join("\n"))
  })
})

describe("the Effect diagnostics", () => {
  let folder = ""
  let report = ""

  beforeAll(() => {
    // Inside the project's folder tree nothing of it may be seen by other checks that run meanwhile.
    folder = mkdtempSync(join(tmpdir(), "deadman-types-"))
    for (const name of ["tsconfig.json", "package.json"]) copyFileSync(name, join(folder, name))
    symlinkSync(resolve("node_modules"), join(folder, "node_modules"), "dir")
    write(folder, {
      "src/domain/Clock.ts": `export const now = () => Date.now()\n`,
      "src/domain/Dice.ts": `export const draw = () => Math.random()\n`,
      "src/domain/Floating.ts":
        `import { Effect } from "effect"\nexport const run = Effect.gen(function*() {\n  Effect.log("lost")\n  yield* Effect.void\n})\n`,
      "src/domain/Promise.ts": `export const wait = async () => 1\n`,
      "src/domain/Disk.ts": `import { readFileSync } from "node:fs"\nexport const read = readFileSync\n`,
      "src/domain/Console.ts": `export const say = () => console.log("hello")\n`,
      "src/adapters/redis/Disk.ts": `import { readFileSync } from "node:fs"\nexport const read = readFileSync\n`
    })
    report = run("tsc", folder, "--pretty", "false")
  }, 180_000)
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  it.each([
    ["src/domain/Clock.ts", "globalDate"],
    ["src/domain/Dice.ts", "globalRandom"],
    ["src/domain/Floating.ts", "floatingEffect"],
    ["src/domain/Promise.ts", "asyncFunction"],
    ["src/domain/Disk.ts", "nodeBuiltinImport"],
    ["src/domain/Console.ts", "globalConsole"]
  ])("%s is an error: %s", (path, rule) => {
    const found = report.split("\n").some((line) =>
      line.startsWith(`${path}(`) && line.includes(": error ") && line.includes(rule)
    )
    assert.isTrue(found, `tsc does not report ${rule}. Is it patched (effect-tsgo patch)?\n${report}`)
  })

  it("let an adapter use what Node has", () => {
    assert.notInclude(report, "src/adapters/redis/Disk.ts")
  })
})
