/**
 * A project of somebody else's, in a folder of its own: the package is packed as `npm pack` packs it, and installed
 * there by npm, with nothing of this repository in reach.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { delimiter, dirname, join, resolve } from "node:path"

export interface Ran {
  readonly code: number | null
  readonly output: string
  readonly ms: number
}

export interface Running {
  readonly child: ChildProcess
  readonly output: () => string
  readonly ended: Promise<Ran>
}

export interface Consumer {
  readonly folder: string
  readonly archive: string
  /** What is in the package, as npm lists it. */
  readonly files: ReadonlyArray<string>
  readonly start: (command: string, args: ReadonlyArray<string>, env?: Readonly<Record<string, string>>) => Running
  readonly run: (command: string, args: ReadonlyArray<string>, env?: Readonly<Record<string, string>>) => Promise<Ran>
  readonly remove: () => void
}

const limitMs = 120_000
const packed = ["package.json", "tsconfig.json", "README.md", "src", "deploy", "docs"]

/** What npm needs to reach its registry, and nothing of the run's own environment. */
const kept =
  /^(HOME|USERPROFILE|TMPDIR|npm_config_(registry|cache|userconfig|globalconfig|cafile|proxy|https_proxy|noproxy)|(https?|no)_proxy|NODE_EXTRA_CA_CERTS)$/i

const environment = (env: Readonly<Record<string, string>>): Record<string, string | undefined> => ({
  ...Object.fromEntries(Object.entries(process.env).filter(([name]) => kept.test(name))),
  // The Node that runs the tests, also for npm itself.
  PATH: `${dirname(process.execPath)}${delimiter}${process.env["PATH"] ?? ""}`,
  NO_COLOR: "1",
  ...env
})

const starting = (cwd: string): Consumer["start"] => (command, args, env = {}) => {
  const from = performance.now()
  const child = spawn(command, args, {
    cwd,
    env: environment(env),
    stdio: ["ignore", "pipe", "pipe"],
    timeout: limitMs,
    killSignal: "SIGKILL"
  })
  let output = ""
  const keep = (chunk: Buffer) => {
    output += chunk.toString()
  }
  child.stdout.on("data", keep)
  child.stderr.on("data", keep)
  const ended = new Promise<Ran>((end) => {
    const over = (code: number | null) => end({ code, output, ms: Math.round(performance.now() - from) })
    child.on("close", over)
    child.on("error", (error) => {
      output += String(error)
      over(null)
    })
  })
  return { child, output: () => output, ended }
}

const must = (what: string) => (ran: Ran): Ran => {
  if (ran.code !== 0) {
    throw new Error(`${what} ended with ${ran.code}:\n${ran.output.slice(-4_000)}`)
  }
  return ran
}

/** Packs this repository, in a copy, so that the `dist` that other tests run from is left alone. */
const pack = (root: string): Promise<{ readonly archive: string; readonly files: ReadonlyArray<string> }> => {
  const stage = join(root, "stage")
  mkdirSync(stage)
  for (const name of packed) {
    cpSync(resolve(name), join(stage, name), { recursive: true })
  }
  symlinkSync(resolve("node_modules"), join(stage, "node_modules"), "dir")
  const run = starting(stage)
  return run("npm", ["run", "--silent", "prepack"]).ended
    .then(must("npm run prepack"))
    // The script above is what npm would run now; the other one patches the compiler that the tests use.
    .then(() => run("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", root]).ended)
    .then(must("npm pack"))
    .then(({ output }) => {
      const listed = JSON.parse(output.slice(output.search(/^[[{]/m)))
      const [{ filename, files }] = Object.values(listed) as [
        { readonly filename: string; readonly files: ReadonlyArray<{ readonly path: string }> }
      ]
      return { archive: join(root, filename), files: files.map(({ path }) => path) }
    })
}

/** An empty project with the package in it, by `npm install` of the archive and no further step. */
export const make = (): Promise<Consumer> => {
  const root = mkdtempSync(join(tmpdir(), "deadman-consumer-"))
  const folder = join(root, "project")
  mkdirSync(folder)
  writeFileSync(join(folder, "package.json"), `{ "name": "project", "type": "module" }\n`)
  const start = starting(folder)
  const remove = () => rmSync(root, { recursive: true, force: true })
  return pack(root)
    .then(({ archive, files }) =>
      start("npm", ["install", archive, "--prefer-offline", "--no-audit", "--no-fund"]).ended
        .then(must("npm install"))
        .then((): Consumer => ({
          folder,
          archive,
          files,
          start,
          run: (command, args, env) => start(command, args, env).ended,
          remove
        }))
    )
    .catch((error: unknown) => {
      remove()
      throw error
    })
}
