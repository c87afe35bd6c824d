/**
 * The judge is judged: each fault that is planted in the product is caught by a short run, by the law it breaks.
 *
 * The seed is fixed. The limits of time are those of a busy machine; alone a run takes about forty seconds.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync } from "node:fs"
import { pathToFileURL } from "node:url"
import type { Law } from "../../../src/programs/chaos/Laws.ts"
import { chaos } from "./ChaosRun.ts"
import { faults } from "./plants.mjs"

const small = ["--seed", "planted", "--workers", "3", "--threads-per-worker", "24", "--lease-ms", "1000"]
const limits = ["--timeout-sec", "150"]

const planted: ReadonlyArray<readonly [fault: string, title: string, args: ReadonlyArray<string>, law: Law]> = [
  [
    "settle",
    "a settle without the check of its claim",
    ["--jobs", "200", "--faults", "freeze=30"],
    "no write of a stale claim was taken"
  ],
  [
    "reaper",
    "a reaper that trusts a stale snapshot",
    ["--jobs", "400", "--faults", "freeze=10"],
    "nobody was reclaimed who had renewed within the lease"
  ],
  [
    "effect",
    "an effect outside its transaction",
    ["--jobs", "200", "--faults", "freeze=30"],
    "no side effect fired twice"
  ],
  [
    "publish",
    "a submit that publishes before it commits",
    ["--jobs", "400", "--faults", "none", "--profile", "scale"],
    "no id was published before its job was stored"
  ],
  [
    "receipt",
    "an offset that is committed on receipt",
    ["--jobs", "400", "--faults", "none", "--profile", "scale"],
    "offsets are committed after execution"
  ]
]

/** What the servers and workers of the last build consist of. Chunks of older builds may lie beside it. */
const built = (): string => {
  const texts = new Map<string, string>()
  const open = ["server.js", "worker.js"]
  for (let name = open.pop(); name !== undefined; name = open.pop()) {
    if (texts.has(name)) continue
    const text = readFileSync(`dist/${name}`, "utf8")
    texts.set(name, text)
    open.push(...Array.from(text.matchAll(/(?:from |import\()"\.\/([\w-]+\.js)"/g), ([, chunk]) => chunk!))
  }
  return [...texts.values()].join("\n")
}

const preload = (fault: string) => `--import=${pathToFileURL("test/programs/chaos/plant.mjs").href}?${fault}`

const suite = (runs: typeof planted) => {
  for (const [fault, title, args, law] of runs) {
    it.live(title, () =>
      Effect.gen(function*() {
        for (const [from] of faults[fault] ?? []) assert.include(built(), from, "plant it where the code is now")
        const { exit, output, report } = yield* chaos([...small, ...limits, ...args], preload(fault))
        const check = report?.judgement.checks.find((check) => check.law === law)
        assert.isFalse(check?.held ?? true, output)
        assert.isNotEmpty(check?.jobs ?? [], "it names the jobs")
        assert.include(output, "--seed planted", "it says how to replay it")
        assert.strictEqual(exit, 1)
      }), 300_000)
  }
}

const onScale = (args: ReadonlyArray<string>) => args.includes("scale")

// All five at once would leave little of a small machine to the tests that run beside them. Suites that are concurrent
// themselves run beside each other, so each has one around it that is not.
describe("over Postgres", () => {
  describe.concurrent("the judge catches", () => {
    suite(planted.filter(([, , args]) => !onScale(args)))
  })
})
describe("over all three", () => {
  describe.concurrent("the judge catches", () => {
    suite(planted.filter(([, , args]) => onScale(args)))
  })
})
