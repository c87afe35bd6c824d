/** Builds the program of this folder with the Go, the settings and the module proxy of whoever runs it. */
import { execFile } from "node:child_process"
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"

const folder = fileURLToPath(new URL(".", import.meta.url))
// On PATH, or where the archives of go.dev are unpacked to.
const places = ["go", "/usr/local/go/bin/go"]
const minutes = 3

const module = readFileSync(new URL("./go.mod", import.meta.url), "utf8")
export const version = /riverqueue\/river v(\S+)/.exec(module)[1]
const needed = /^go (\d+\.\d+)/m.exec(module)[1]

const gist = (said) => said.replaceAll(/^go: downloading .*$/gm, "").trim().replaceAll(/\s+/g, " ").slice(0, 300)

const run = (go, to) =>
  new Promise((resolve) => {
    // Neither a workspace around the clone, nor who owns it, nor a C compiler is to matter.
    const env = { CGO_ENABLED: "0", ...process.env, GOWORK: "off" }
    const options = { cwd: folder, env, timeout: minutes * 60_000, killSignal: "SIGKILL" }
    execFile(go, ["build", "-buildvcs=false", "-o", to, "."], options, (error, _out, said) => {
      if (error === null) resolve({ isBuilt: true })
      else if (error.code === "ENOENT") resolve({ isBuilt: false })
      else if (error.killed) {
        resolve({ isBuilt: false, why: `It took more than ${minutes} minutes; what it compiled is kept.` })
      } else resolve({ isBuilt: false, why: `It said: ${gist(said)}` })
    })
  })

/** Why River is left out, in one line, or nothing if it was built. */
export const build = async (to) => {
  const failed = []
  for (const go of places) {
    const { isBuilt, why } = await run(go, to)
    if (isBuilt) return
    if (why !== undefined) failed.push(why)
  }
  return failed.length === 0
    ? `River is left out: there is no Go on PATH or in /usr/local/go. Install Go ${needed} or later (go.dev/dl) to have it.`
    : `River is left out: \`go build\` in test/peers/river needs Go ${needed} or later and its modules. ${failed[0]}`
}
