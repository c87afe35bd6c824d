/**
 * Whatever TypeScript the docs and the README show is a piece of an example that is run, letter by letter.
 *
 * `<!-- docs/examples/first-job.ts#define -->` in front of a block names the example and its region.
 */
import { assert, describe, it } from "@effect/vitest"
import { existsSync, globSync, readFileSync } from "node:fs"
import { dirname, join, normalize, sep } from "node:path"

interface Block {
  readonly file: string
  readonly line: number
  readonly language: string
  readonly from: string | undefined
  readonly text: string
}

const blocksOf = (file: string): ReadonlyArray<Block> => {
  const text = readFileSync(file, "utf8")
  return [...text.matchAll(/(?:^<!-- (\S+) -->\n)?^```(\w*)\n([\s\S]*?)^```$/gm)].map((match) => ({
    file,
    line: text.slice(0, match.index).split("\n").length,
    language: match[2] ?? "",
    from: match[1],
    text: match[3] ?? ""
  }))
}

/** The lines between `// #region name` and the next `// #endregion`; the file's, without its header, if there is no name. */
const regionOf = (block: Block): string | null => {
  const [path = "", name] = (block.from ?? "").split("#")
  const text = readFileSync(normalize(join(dirname(block.file), path)), "utf8")
  if (name === undefined) {
    return text.replace(/^\/\*\*[\s\S]*?\*\/\n/, "").replaceAll(/^\/\/ #(region .*|endregion)\n/gm, "")
  }
  const from = text.indexOf(`// #region ${name}\n`)
  const until = text.indexOf("// #endregion\n", from)
  return from === -1 || until === -1 ? null : text.slice(text.indexOf("\n", from) + 1, until)
}

const blocks = ["README.md", ...globSync("docs/**/*.md").sort()].flatMap(blocksOf).filter(({ language }) =>
  ["ts", "js", "typescript", "javascript"].includes(language)
)

describe("the docs", () => {
  it.each([["docs/guide.md", 8], ["docs/handlers.md", 8], ["docs/cli.md", 3], ["README.md", 1]] as const)(
    "%s shows code, so that the checks of it are not vacuous",
    (name, least) => assert.isAtLeast(blocks.filter(({ file }) => file === name).length, least)
  )

  it.each(blocks)("$file:$line is a piece of $from", (block) => {
    assert.isDefined(block.from, `${block.file}:${block.line}: name the example that this block is a piece of`)
    assert.strictEqual(block.text, regionOf(block), `${block.file}:${block.line}: copy ${block.from} anew`)
  })
})

describe("the guide", () => {
  const shown = blocks.filter(({ file }) => file === "docs/guide.md")
  const paths = [...new Set(shown.map(({ from }) => from?.split("#")[0] ?? ""))]
  const lines = (text: string) => text.split("\n").filter((line) => line !== "")

  it.each(paths)("shows all of %s, in its order: whoever pastes the blocks has the file", (path) => {
    const pasted = shown.filter(({ from }) => from?.split("#")[0] === path).map(({ text }) => text).join("\n")
    assert.deepStrictEqual(
      lines(pasted),
      lines(regionOf({ file: "docs/guide.md", line: 0, language: "ts", from: path, text: "" }) ?? "")
    )
  })

  it("names each of them in front of its blocks", () => {
    const guide = readFileSync("docs/guide.md", "utf8")
    const unnamed = paths.map((path) => path.replace("examples/", "")).filter((name) =>
      guide.indexOf(`\`${name}\``) === -1 || guide.indexOf(`\`${name}\``) > guide.indexOf(`<!-- examples/${name}`)
    )
    assert.deepStrictEqual(unnamed, [])
  })
})

describe("the examples", () => {
  const examples = globSync("docs/examples/**/*.ts")

  it("are packed without what they are about: none reaches out of their folder", () => {
    assert.isAtLeast(examples.length, 20)
    const wrong = examples.flatMap((file) =>
      [...readFileSync(file, "utf8").matchAll(/(?:from |import |import\(|new URL\()"(\.[^"]*)"/g)].flatMap(
        ([, path = ""]) => {
          const target = normalize(join(dirname(file), path))
          return target.startsWith(normalize(`docs/examples${sep}`)) && existsSync(target) ? [] : [`${file}: ${path}`]
        }
      )
    )
    assert.deepStrictEqual(wrong, [])
  })
})

describe("the guide's commands", () => {
  const guide = readFileSync("docs/guide.md", "utf8")
  const commands = [...guide.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].flatMap(([, text = ""]) => text.trim().split("\n"))

  it("run files that are there, or are those that install", () => {
    const files = commands.flatMap((command) => /^node (?:--test )?(\S+\.ts)/.exec(command)?.[1] ?? [])
    assert.isAtLeast(files.length, 4)
    assert.deepStrictEqual(files.filter((file) => !existsSync(`docs/examples/${file}`)), [])
    const others = commands.filter((command) => !command.startsWith("node "))
    // What test/support/Consumer.ts does, in the words of a terminal.
    assert.deepStrictEqual(others.map((command) => command.replace(/ +#.*/, "")), [
      "npm install && npm pack",
      "mkdir ../my-jobs && cd ../my-jobs && npm init -y && npm pkg set type=module",
      "npm install ../deadman/deadman-0.1.0.tgz",
      "npm install pg"
    ])
  })
})
