/** What is told of a process where there is no /proc: on this machine, by programs that take it for another one. */
import { assert, it } from "@effect/vitest"
import { spawnSync } from "node:child_process"
import { fileURLToPath } from "node:url"
import * as ProcessIdentity from "../../../src/adapters/embedded/ProcessIdentity.ts"

const module = new URL("../../../src/adapters/embedded/ProcessIdentity.ts", import.meta.url)

const startOf = (pid: number, zone: string): string => {
  const program = `Object.defineProperty(process, "platform", { value: "darwin" })
    const { startOf } = await import(${JSON.stringify(module.href)})
    process.stdout.write(startOf(${pid}))`
  const { stderr, stdout } = spawnSync(process.execPath, ["--input-type=module", "-e", program], {
    cwd: fileURLToPath(new URL(".", module)),
    encoding: "utf8",
    env: { ...process.env, TZ: zone }
  })
  assert.match(stdout, /\d\d:\d\d:\d\d \d{4}$/, stderr)
  return stdout
}

// The watcher of an embedded Postgres lives in UTC, its members where their users do.
it("a process is the same one to whoever looks at it from another time zone", () => {
  assert.strictEqual(startOf(process.pid, "America/New_York"), startOf(process.pid, "UTC"))
})

it("a process that could not learn in which boot of the machine it runs is not taken for dead", () => {
  const self = ProcessIdentity.self()
  const lifeOf = (change: Partial<ProcessIdentity.ProcessIdentity>) =>
    ProcessIdentity.lifeOf({ ...self, ...change }, "/nowhere")
  assert.strictEqual(lifeOf({ boot: "" }), "alive")
  assert.strictEqual(lifeOf({ boot: "", started: "1" }), "dead")
  assert.strictEqual(lifeOf({ boot: "", host: "another" }), "elsewhere")
  assert.strictEqual(lifeOf({ boot: "another" }), "dead")
})
