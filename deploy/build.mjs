/**
 * `npm run build`: bundles every entry point of src/programs into dist.
 *
 * A file there whose name starts in lower case is a process: server.ts becomes dist/server.js. Packages stay outside
 * the bundle, and what the entry points share is split into chunks, so that a handler module loaded at run time meets
 * the same classes as the process that loads it.
 */
import { build } from "esbuild"
import { readdirSync, rmSync } from "node:fs"
import { fileURLToPath } from "node:url"

const root = fileURLToPath(new URL("..", import.meta.url))
const entryPoints = readdirSync(`${root}/src/programs`)
  .filter((file) => /^[a-z].*\.ts$/.test(file))
  .map((file) => `src/programs/${file}`)

// Only a package to be shipped is cleaned: a running server may still load a chunk of the build before.
if (process.argv.includes("--clean")) rmSync(`${root}/dist`, { recursive: true, force: true })

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
    sourcemap: true,
    outdir: "dist",
    logLevel: "warning"
  })
}
