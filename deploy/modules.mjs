/**
 * Has the built programs load only the modules of Effect that they use.
 *
 * Sources import names from a barrel, `import { Effect } from "effect"`, which reads well; a program that does so at
 * run time loads all of that package, used or not, at each start. So the build turns each name into an import of the
 * module behind it, `import * as Effect from "effect/Effect"`. The package stays outside the bundle and its modules
 * are the same ones by either way: a handler that imports the barrel meets the classes of the program that loads it.
 *
 * What a barrel exports is read from the barrel itself. A name that it does not export ends the build, and so does an
 * import of a barrel that is left in what was built, however it was written.
 */
import { readFileSync } from "node:fs"
import { basename } from "node:path"
import { fileURLToPath } from "node:url"

/** Where a program imports from, up to the first line that is something else. */
const head = /^(?:#!.*\n|\s|\/\*[\s\S]*?\*\/|\/\/.*\n|import [^"]*"[^"\n]*"(?: with \{[^}]*\})?;?)*/

const named = /^import (type )?\{([^}]*)\} from "([^"\n]+)"/gm

/** The modules of a package of Effect by the names under which its barrel has them; `null` for what is no barrel. */
const read = (specifier) => {
  if (!/^(?:effect|@effect\/[a-z-]+)(?:\/|$)/.test(specifier)) return null
  const url = import.meta.resolve(specifier)
  if (basename(url) !== "index.js") return null
  const text = readFileSync(fileURLToPath(url), "utf8").replaceAll(/\/\*[\s\S]*?\*\//g, "")
  const modules = new Map()
  const moduleOf = (file) => {
    const module = `${specifier}/${file.slice("./".length, -".js".length)}`
    if (import.meta.resolve(module) !== new URL(file, url).href) {
      throw new Error(`${module} is not the file that ${specifier} exports: deploy/modules.mjs has to learn its layout`)
    }
    return module
  }
  for (const [, name, file] of text.matchAll(/^export \* as (\w+) from "([^"]+)"/gm)) {
    modules.set(name, { name: "*", file })
  }
  for (const [, names, file] of text.matchAll(/^export \{([^}]*)\} from "([^"]+)"/gm)) {
    for (const part of names.split(",").map((part) => part.trim()).filter((part) => part !== "")) {
      const [name, shown = name] = part.split(/\s+as\s+/)
      modules.set(shown, { name, file })
    }
  }
  return {
    /** The import of one name, which the importer calls `local`. */
    importOf: (name, local) => {
      const found = modules.get(name)
      if (found === undefined) {
        throw new Error(`"${specifier}" exports no "${name}" that can be told to be of one module`)
      }
      const what = found.name === "*"
        ? `* as ${local}`
        : `{ ${found.name === local ? local : `${found.name} as ${local}`} }`
      return `import ${what} from "${moduleOf(found.file)}"`
    }
  }
}

const barrels = new Map()
const barrelOf = (specifier) => {
  if (!barrels.has(specifier)) barrels.set(specifier, read(specifier))
  return barrels.get(specifier)
}

/** A source file with its imports from barrels turned into imports of modules: line for line, and no types. */
export const withModules = (source) => {
  const [top] = head.exec(source)
  const imports = top.replaceAll(named, (statement, type, names, specifier) => {
    const barrel = barrelOf(specifier)
    if (barrel === null) return statement
    const values = type === undefined
      ? names.split(",").map((part) => part.trim()).filter((part) => part !== "" && !part.startsWith("type "))
      : []
    const statements = values.map((value) => {
      const [name, local = name] = value.split(/\s+as\s+/)
      return barrel.importOf(name, local)
    })
    return statements.join("; ") + "\n".repeat(statement.split("\n").length - 1)
  })
  return imports + source.slice(top.length)
}

/** The imports of barrels that what esbuild wrote has nevertheless. */
export const barrelsIn = (metafile) =>
  Object.entries(metafile.outputs).flatMap(([file, { imports }]) =>
    imports.filter(({ external, path }) => external === true && barrelOf(path) !== null)
      .map(({ path }) => `${file} imports all of "${path}"`)
  )

/** For esbuild. */
export const modulesOfEffect = {
  name: "modules of effect",
  setup: (build) => {
    build.initialOptions.metafile = true
    build.onLoad({ filter: /\.ts$/ }, ({ path }) => {
      try {
        return { contents: withModules(readFileSync(path, "utf8")), loader: "ts" }
      } catch (error) {
        return { errors: [{ text: error.message, location: { file: path } }] }
      }
    })
    build.onEnd(({ metafile }) => ({
      errors: (metafile === undefined ? [] : barrelsIn(metafile)).map((text) => ({
        text: `${text}: import its names in braces, at the top of the source file`
      }))
    }))
  }
}
