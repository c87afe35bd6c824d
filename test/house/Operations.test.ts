/**
 * `docs/operations.md` names whatever the programs say about themselves, and nothing that they do not say: metrics, loops,
 * readiness, log lines, codes of the API and of the doctor. Who is woken at night looks there.
 */
import { assert, describe, it } from "@effect/vitest"
import { globSync, readFileSync } from "node:fs"
import { codes } from "../../src/adapters/http/ApiError.ts"
import { counters } from "../../src/programs/process/Meters.ts"

const docs = readFileSync("docs/operations.md", "utf8")

const section = (title: string): string => {
  const [, after] = docs.split(`\n## ${title}\n`)
  assert.isDefined(after, `docs/operations.md has no section ${title}`)
  return after!.split("\n## ")[0]!
}

/** Cells of the rows of its tables, headings left out. */
const rowsOf = (text: string): ReadonlyArray<ReadonlyArray<string>> =>
  [...text.matchAll(/^\|(.*)\|$/gm)].map(([, row = ""]) => row.split(/(?<!\\)\|/).map((cell) => cell.trim()))
    .filter((row, index, all) => !/^-+$/.test(row[0]!) && !/^-+$/.test(all[index + 1]?.[0] ?? ""))

const quoted = (text: string) => [...text.matchAll(/`([^`]+)`/g)].map(([, name = ""]) => name)

/** What runs in production: the programs that load, measure and torment say what they please. */
const sources = globSync("src/**/*.ts").filter((file) => !/chaos|[bB]ench|\/load|\/testing|\/Cli|\/cli/.test(file))
const code = new Map(sources.map((file) => [file, readFileSync(file, "utf8")]))
const all = [...code.values()].join("\n")

const found = (pattern: RegExp): ReadonlyArray<string> => [...all.matchAll(pattern)].map(([, name = ""]) => name)

const sorted = (names: Iterable<string>) => [...new Set(names)].sort()

describe("the metrics", () => {
  interface Metric {
    readonly name: string
    readonly type: string
  }
  const inCode: ReadonlyArray<Metric> = [
    ...Object.values(counters).map(({ id }) => ({ name: id, type: "counter" })),
    ...[...all.matchAll(/Metric\.(counter|gauge|histogram|summary|frequency)\(\s*"(\w+)"/g)].map((
      [, type = "", name = ""]
    ) => ({ name, type }))
  ]
  const inDocs = rowsOf(section("Metrics")).flatMap(([names = "", meaning = ""]) =>
    quoted(names).map((name) => ({
      name: name.replace(/\{.*/, ""),
      type: meaning.startsWith("histogram") ? "histogram" : name.endsWith("_total") ? "counter" : "gauge"
    }))
  )

  it("are found, and made where this looks for them", () => {
    assert.isAtLeast(inCode.length, 15)
    const calls = all.match(/Metric\.(counter|gauge|histogram|summary|frequency|timer)\(/g)?.length
    // The one that makes `counters`.
    assert.strictEqual(calls, inCode.length - Object.keys(counters).length + 1, "name a metric by a plain string")
  })

  it("of the code are those of the page, by name and kind", () => {
    const lines = (metrics: ReadonlyArray<Metric>) => sorted(metrics.map(({ name, type }) => `${name} ${type}`))
    assert.deepStrictEqual(lines(inDocs), lines(inCode))
  })

  it("end as their kind does: counters in _total, lengths in _ms", () => {
    const gaugesOfLength = new Set(["deadman_oldest_ready_ms"])
    for (const { name, type } of inCode) {
      assert.match(name, /^deadman_[a-z_]+$/)
      assert.strictEqual(name.endsWith("_total"), type === "counter", name)
      assert.strictEqual(name.endsWith("_ms"), type === "histogram" || gaugesOfLength.has(name), name)
    }
  })
})

describe("the codes of the API", () => {
  it("of the code are those of the page, by status", () => {
    const inDocs: Array<string> = []
    for (const [first = ""] of rowsOf(section("Answers of the API"))) {
      let status = ""
      for (const [, number, name] of first.matchAll(/(\d{3})|`(\w+)`/g)) {
        status = number ?? status
        if (name !== undefined) {
          inDocs.push(`${status} ${name}`)
        }
      }
    }
    assert.deepStrictEqual(sorted(inDocs), sorted(Object.entries(codes).map(([name, status]) => `${status} ${name}`)))
  })
})

describe("health and readiness", () => {
  const text = section("Health and readiness")

  it("names each loop", () => {
    const tables = rowsOf(text.slice(text.indexOf("| loop |"))).map(([name = ""]) => quoted(name)[0] ?? "")
    const loops = [...found(/loops\.register\("([\w-]+)"/g), ...found(/Steady\.run\(\s*\{\s*name: "([\w-]+)"/g)]
    assert.isAtLeast(loops.length, 10)
    assert.deepStrictEqual(sorted(tables), sorted(loops))
    assert.strictEqual(all.match(/loops\.register\(/g)?.length, found(/loops\.register\(("|options\.name)/g).length)
  })

  it("names what is degraded, and each reason", () => {
    const said = [
      ...found(/degraded: \{[^}]*?reason: "([^"]+)"/gs),
      ...found(/setDegraded\(\s*"\w+",\s*\w+ \? null : "([^"]+)"/g),
      ...found(/\? \["([^"]+)"\]/g).filter((words) => words === "shutting down"),
      ...found(/\? \[\] : \["([^"]+)"\]/g).filter((words) => words.startsWith("the database")),
      ": no round yet",
      ": no progress for",
      "not ended after interruption: restart this process if "
    ]
    assert.isAtLeast(said.length, 7)
    for (const words of said) {
      assert.include(text, words)
      assert.include(all, words)
    }
  })
})

describe("the log lines", () => {
  const text = section("Log lines")

  /** The pieces of a literal between what is put in. */
  const pieces = (source: string, from: number): ReadonlyArray<string> | null => {
    const quote = source[from]
    if (quote === "\"") {
      return [/^"((?:[^"\\]|\\.)*)"/.exec(source.slice(from))?.[1] ?? ""]
    }
    if (quote !== "`") {
      return null
    }
    const made = [""]
    let depth = 0
    for (let at = from + 1; at < source.length; at++) {
      const two = source.slice(at, at + 2)
      if (depth === 0 && source[at] === "`") {
        return made
      }
      if (two === "${") {
        depth += 1
        at += 1
        made.push("")
      } else if (depth > 0 && source[at] === "{") {
        depth += 1
      } else if (depth > 0 && source[at] === "}") {
        depth -= 1
      } else if (depth === 0) {
        made.push(`${made.pop() ?? ""}${source[at] ?? ""}`)
      }
    }
    return made
  }

  const lines = [...code].flatMap(([file, source]) =>
    [...source.matchAll(/Effect\.log(?:Warning|Error|Fatal)\(\s*/g)].map((match) => ({
      place: `${file}:${source.slice(0, match.index).split("\n").length}`,
      pieces: pieces(source, match.index + match[0].length)
    }))
  )
  // These say what they were given: below, by where it comes from.
  const given = lines.filter(({ pieces }) => pieces === null || pieces.every((piece) => piece.length < 8))

  it("are found", () => assert.isAtLeast(lines.length, 30))

  it.each(lines.filter((line) => !given.includes(line)))("$place is on the page", ({ pieces, place }) => {
    // The page may leave out how a long one goes on.
    const named = pieces?.flatMap((piece) => piece.split(/[:;.]/)).some((piece) =>
      piece.trim().length >= 8 && text.includes(piece.trim())
    )
    assert.isTrue(named, `${place}: say in docs/operations.md what it means and what to do`)
  })

  it("that say what they were given are those that are known", () => {
    assert.deepStrictEqual(given.map(({ place }) => place.split(":")[0]!.split("/").at(-1)).sort(), [
      "EmbeddedPostgres.ts",
      "StatusView.ts",
      "Strangers.ts"
    ])
    for (
      const words of ["no process has a handler for it", "is not a variable of Deadman and is ignored", "The embedded"]
    ) {
      assert.include(text, words)
      assert.include(all, words)
    }
  })

  it("of outages and of rounds are named by what fails", () => {
    const outages = found(/Outage\.make\("([^"]+)"\)/g)
    const troubles = found(/Trouble\.make\("([^"]+)"/g)
    const rounds = found(/Steady\.run\(\s*\{\s*name: "([\w-]+)"/g)
    assert.isAtLeast(outages.length + troubles.length, 12)
    assert.strictEqual(all.match(/Outage\.make\(/g)?.length, outages.length)
    for (const what of [...outages, ...troubles]) {
      assert.include(text, `\`${what} failed`)
    }
    const row = text.split("\n").find((line) => line.includes("round failed, trying again")) ?? ""
    assert.deepStrictEqual(sorted(rounds.filter((name) => !row.includes(`\`${name}`))), [])
  })

  it("of the page are said somewhere, and each with what to do", () => {
    const failed = [...found(/Outage\.make\("([^"]+)"\)/g), ...found(/Trouble\.make\("([^"]+)"/g)]
    const said = [all.replaceAll(/(["`])\s*\+\s*["`]/g, ""), ...failed.map((what) => `${what} failed`)].join("\n")
    const rows = rowsOf(text)
    assert.isAtLeast(rows.length, 40)
    for (const [message = "", meaning = "", advice = ""] of rows) {
      assert.isNotEmpty(meaning, message)
      assert.isNotEmpty(advice, message)
      for (const line of quoted(message)) {
        // Without what is put in, such as names and numbers.
        const parts = line.split(/[…:;,.()`]|\bNAME\b|\bN\b|DEADMAN_\w+|\btype x\b|\b\d+s?\b/).map((part) =>
          part.trim()
        )
        assert.isTrue(parts.some((part) => part.length >= 5 && said.includes(part)), `nothing says: ${line}`)
      }
    }
  })
})

describe("the doctor", () => {
  it("has the codes that docs/cli.md names", () => {
    const [, page = ""] = readFileSync("docs/cli.md", "utf8").split("\n## doctor\n")
    const rows = rowsOf(page.split("\n## ")[0]!)
    const inDocs = new Set(rows.flatMap(([, names = ""]) => quoted(names.replaceAll(/\([^)]*\)/g, ""))))
    const findings = globSync("src/programs/doctor/*.ts").map((file) => readFileSync(file, "utf8")).join("\n")
    const inCode = [...findings.matchAll(/(?:good|look|bad)\(\s*(?:"\w+"|about),\s*"(\w+)"/g)].map(([, name = ""]) =>
      name
    )
    assert.isAtLeast(inCode.length, 25)
    assert.deepStrictEqual(sorted(inCode.filter((name) => !inDocs.has(name))), [])
  })
})
