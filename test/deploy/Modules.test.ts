/**
 * What the built programs load: single modules of Effect instead of whole packages, and no driver that is not used.
 *
 * A program that loads more than it uses still works, and is slower and bigger at every start: nothing else would tell.
 */
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { build, type Plugin } from "esbuild"
import { spawnSync } from "node:child_process"
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { pathToFileURL } from "node:url"

interface Modules {
  readonly modulesOfEffect: Plugin
  readonly withModules: (source: string) => string
}

const { modulesOfEffect, withModules }: Modules = await import(pathToFileURL(resolve("deploy/modules.mjs")).href)

describe("a source file", () => {
  it.each([
    [`import { Effect } from "effect"`, `import * as Effect from "effect/Effect"`],
    [`import { Cron as Fields } from "effect"`, `import * as Fields from "effect/Cron"`],
    [`import { pipe, type Scope } from "effect"`, `import { pipe } from "effect/Function"`],
    [`import { Headers } from "effect/http"`, `import * as Headers from "effect/http/Headers"`],
    [`import { PgClient } from "@effect/sql-pg"`, `import * as PgClient from "@effect/sql-pg/PgClient"`],
    [`import { type Scope } from "effect"`, ``],
    [`import type { Scope } from "effect"`, ``],
    [`import * as Headers from "effect/http/Headers"`, `import * as Headers from "effect/http/Headers"`],
    [`import { Kafka, logLevel } from "kafkajs"`, `import { Kafka, logLevel } from "kafkajs"`]
  ])("of %s makes %s", (source, made) => {
    assert.strictEqual(withModules(source), made)
  })

  it("keeps its lines, and all that is below its imports", () => {
    const source = `#!/usr/bin/env node
/** import { Effect } from "effect" */
import { existsSync } from "node:fs"
// And of Effect:
import {
  Effect,
  Layer,
  type Scope
} from "effect"
import { Server } from "./Server.ts"
const text = \`
import { Effect } from "effect"
\`
`
    const lines = withModules(source).split("\n")
    const expected = source.split("\n")
    expected.splice(
      4,
      5,
      `import * as Effect from "effect/Effect"; import * as Layer from "effect/Layer"`,
      "",
      "",
      "",
      ""
    )
    assert.deepStrictEqual(lines, expected)
  })
})

/** Sources that must not be built, and what is said. */
const endings: ReadonlyArray<readonly [what: string, source: string, message: string]> = [
  ["a name that no barrel has", `import { Efect } from "effect"`, `"effect" exports no "Efect"`],
  ["everything", `export * from "effect"`, `imports all of "effect"`],
  [
    "a package under one name",
    `import * as Http from "effect/http"\nconsole.log(Http)`,
    `imports all of "effect/http"`
  ],
  [
    "an import behind other lines",
    `let a\nimport { Effect } from "effect"\nconsole.log(Effect)`,
    `imports all of "effect"`
  ],
  ["a barrel at run time", `console.log(await import("@effect/sql-pg"))`, `imports all of "@effect/sql-pg"`],
  ["a barrel in a file that is loaded later", `await import("./more.ts")`, `imports all of "effect"`]
]

describe("a build", () => {
  let folder = ""

  beforeAll(() => {
    // Inside the project: what is imported is looked for from here.
    mkdirSync(".test-report", { recursive: true })
    folder = mkdtempSync(resolve(".test-report/modules-"))
  })
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  const built = (source: string, more = "") => {
    const entry = join(folder, "entry.ts")
    writeFileSync(entry, source)
    writeFileSync(join(folder, "more.ts"), more)
    return Effect.tryPromise(() =>
      build({
        entryPoints: [entry],
        bundle: true,
        splitting: true,
        format: "esm",
        platform: "node",
        packages: "external",
        plugins: [modulesOfEffect],
        sourcemap: true,
        outdir: join(folder, "dist"),
        outExtension: { ".js": ".mjs" },
        logLevel: "silent"
      })
    )
  }

  it.effect.each(endings.map(([what, source, message]) => ({ what, source, message })))(
    "ends with $what",
    Effect.fnUntraced(function*({ message, source }) {
      const failed = yield* Effect.flip(built(source, `export * from "effect"`))
      assert.include(String(failed.cause), message)
    })
  )

  it.effect(
    "tells in which line of the source something was thrown, and has the modules that others have",
    Effect.fnUntraced(function*() {
      yield* built(`import {
  Effect,
  Layer
} from "effect"
import * as all from "#all"
if (all.Effect !== Effect || all.Layer !== Layer) throw new Error("others")
throw new Error("line 7")
`)
      writeFileSync(join(folder, "package.json"), JSON.stringify({ imports: { "#all": "./all.mjs" } }))
      writeFileSync(join(folder, "all.mjs"), `export * from "effect"`)
      const { stderr } = spawnSync(process.execPath, ["--enable-source-maps", join(folder, "dist/entry.mjs")], {
        encoding: "utf8",
        timeout: 60_000
      })
      assert.include(stderr, "Error: line 7")
      assert.match(stderr, /entry\.ts:7:/)
    })
  )
})

/** What a file of dist imports before its first line runs, by way of the chunks. */
const loadedBy = (entry: string): ReadonlySet<string> => {
  const packages = new Set<string>()
  const seen = new Set<string>()
  const follow = (file: string): void => {
    if (seen.has(file)) return
    seen.add(file)
    const text = readFileSync(join("dist", file), "utf8")
    for (const [, from = ""] of text.matchAll(/^(?:import|export|\}) (?:[^;"]* )?(?:from )?"([^"]+)";$/gm)) {
      if (from.startsWith("./")) follow(from)
      else packages.add(from)
    }
  }
  follow(entry)
  return packages
}

const barrel = /^(?:effect|@effect\/[a-z-]+)(?:\/[a-z-]+)?$/
const drivers = ["kafkajs", "ioredis"]
const programs: ReadonlyArray<readonly [file: string, uses: string, unused: ReadonlyArray<string>]> = [
  ["worker.js", "@effect/sql-pg/PgClient", [
    ...drivers,
    "@effect/platform-node/NodeHttpServer",
    "effect/http-api/HttpApi"
  ]],
  ["server.js", "@effect/platform-node/NodeHttpServer", drivers],
  ["deadman.js", "@effect/sql-pg/PgClient", [...drivers, "@effect/platform-node/NodeHttpServer"]]
]

describe("a program", () => {
  it.each(programs)(
    "%s loads %s at its start, and no whole package and no driver that may not be used",
    (file, uses, unused) => {
      const loaded = loadedBy(file)
      assert.isTrue(loaded.has(uses), [...loaded].join("\n"))
      assert.deepStrictEqual([...loaded].filter((name) => barrel.test(name) || unused.includes(name)), [])
    }
  )

  it("that only says its version loads no whole package and no driver", () => {
    const hooks = `import { registerHooks } from "node:module"
      registerHooks({ load: (url, context, next) => (process.stderr.write(url + "\\n"), next(url, context)) })`
    const { stderr, stdout } = spawnSync(
      process.execPath,
      ["--import", `data:text/javascript,${encodeURIComponent(hooks)}`, "dist/cli.js", "--version"],
      { encoding: "utf8", timeout: 60_000 }
    )
    assert.match(stdout, /^\d+\.\d+\.\d+\n$/)
    assert.include(stderr, "/effect/dist/Effect.js\n")
    const needless =
      /\/(?:effect|@effect\/[a-z-]+)\/dist\/(?:[a-z-]+\/)?index\.js$|\/(?:kafkajs|ioredis|redis|sql-pg)\//
    assert.deepStrictEqual(stderr.split("\n").filter((line) => needless.test(line)), [])
  })
})
