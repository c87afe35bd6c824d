import { assert, it } from "@effect/vitest"
import { readdirSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import * as Strangers from "../../src/programs/Strangers.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))

it("names the nearest variable, and leaves alone what is known or somebody else's", () => {
  assert.deepStrictEqual(
    Strangers.lines(["DEADMAN_WORKERS_THREADS", "DEADMAN_PRT", "DEADMAN_PORT", "PATH", "DEADMAN_TEST_X", "DEADMANS"]),
    [
      "DEADMAN_PRT is not a variable of Deadman and is ignored: is DEADMAN_PORT meant?",
      "DEADMAN_WORKERS_THREADS is not a variable of Deadman and is ignored: is DEADMAN_WORKER_THREADS meant?"
    ]
  )
  for (const other of ["SERVICES_DIR", "SERVICES", "SIEGE_MS", "CHAOS_RECORD", "BENCH_WORK"]) {
    assert.deepStrictEqual(Strangers.lines([`DEADMAN_${other}`]), [])
  }
})

it("says no more than a few", () => {
  const lines = Strangers.lines(Array.from({ length: 50 }, (_, n) => `DEADMAN_${"X".repeat(10_000)}${n}`))
  assert.strictEqual(lines.length, 11)
  assert.strictEqual(lines.at(-1), "40 more such variables are ignored")
  assert.isBelow(Math.max(...lines.map(({ length }) => length)), 200)
})

it("knows the variables that the code reads and the README lists, and no others", () => {
  const read = new Set<string>()
  for (const file of readdirSync(`${root}/src`, { recursive: true, encoding: "utf8" })) {
    if (file.endsWith(".ts") && !file.endsWith("Strangers.ts")) {
      for (const [name] of readFileSync(`${root}/src/${file}`, "utf8").matchAll(/DEADMAN_[A-Z_]*[A-Z]/g)) {
        if (!Strangers.reserved.test(name)) {
          read.add(name)
        }
      }
    }
  }
  assert.deepStrictEqual([...read].sort(), Strangers.known)
  const table = readFileSync(`${root}/README.md`, "utf8")
  assert.deepStrictEqual(Strangers.known.filter((name) => !table.includes(`\`${name}\``)), [])
})
