/**
 * `npm run build`: bundles every entry point of src/programs into dist.
 *
 * A file there whose name starts in lower case is a process, or what the package exports: server.ts becomes
 * dist/server.js. Packages stay outside the bundle, and what the entry points share is split into chunks, so that a
 * handler module loaded at run time meets the same classes as the process that loads it. Of Effect only the modules are
 * imported that are used: see modules.mjs.
 *
 * `--package`, which `npm pack` gives, builds what is shipped: from an empty dist, without source maps, and with the
 * types of what the package exports.
 */
import { build } from "esbuild"
import { spawnSync } from "node:child_process"
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { modulesOfEffect } from "./modules.mjs"

const root = fileURLToPath(new URL("..", import.meta.url))
const dist = join(root, "dist")
const packing = process.argv.includes("--package")
const entryPoints = readdirSync(`${root}/src/programs`)
  .filter((file) => /^[a-z].*\.ts$/.test(file))
  .map((file) => `src/programs/${file}`)

/** Emits the types of everything that the exported entries reach, and nothing else. */
const declarations = () => {
  const emitted = join(dist, "types.tmp")
  const { error, status, stdout } = spawnSync(
    process.execPath,
    [join(root, "node_modules/typescript/bin/tsc"), "-p", join(root, "deploy/types.tsconfig.json")],
    { cwd: root, encoding: "utf8" }
  )
  if (error !== undefined || status !== 0) {
    throw error ?? new Error(`the types could not be built:\n${stdout}`)
  }
  const { files } = JSON.parse(readFileSync(join(root, "deploy/types.tsconfig.json"), "utf8"))
  const found = new Set(files.map((file) => join(emitted, file.replace(/^\.\.\//, "").replace(/\.ts$/, ".d.ts"))))
  for (const file of found) {
    // Types say `./X.ts`, which is not there: `./X.js` is what every compiler reads as the `.d.ts` beside it.
    const text = readFileSync(file, "utf8").replaceAll(/(["'])(\.{1,2}\/[^"']+)\.ts\1/g, (_, quote, path) => {
      found.add(join(dirname(file), `${path}.d.ts`))
      return `${quote}${path}.js${quote}`
    })
    const target = file.replace(join(emitted, "src"), join(dist, "types"))
    mkdirSync(dirname(target), { recursive: true })
    writeFileSync(target, text)
  }
  rmSync(emitted, { recursive: true })
}

// Only a package to be shipped is cleaned: a running server may still load a chunk of the build before.
if (packing) rmSync(dist, { recursive: true, force: true })

if (entryPoints.length > 0) {
  await build({
    absWorkingDir: root,
    entryPoints,
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node20",
    packages: "external",
    plugins: [modulesOfEffect],
    sourcemap: !packing,
    outdir: "dist",
    logLevel: "warning"
  })
}

if (packing) declarations()
