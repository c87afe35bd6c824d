/**
 * The handlers of a process: the modules that `DEADMAN_HANDLERS` names, or the built-in ones.
 *
 * A module exports its handlers, by type, as `handlers` or as its default: `export const handlers = { "mail.send":
 * async (job, { signal }) => ... }`. JavaScript loads everywhere, TypeScript where Node can load it. The word `built-in`
 * in the list stands for the built-in ones.
 */
import { type Config, Effect, Layer } from "effect"
import { isAbsolute, resolve } from "node:path"
import { pathToFileURL } from "node:url"
import type { GuardedEffects } from "../ports/GuardedEffects.ts"
import * as BuiltIn from "./handlers/BuiltIn.ts"
import * as Variables from "./process/Variables.ts"
import type { Handler } from "./worker/HandlerApi.ts"
import * as Handlers from "./worker/Handlers.ts"
import type { WorkerMisconfigured } from "./worker/WorkerConfig.ts"

const variable = "DEADMAN_HANDLERS"
const builtIn = "built-in"
const loadWithin = "30 seconds"

const wrong = (path: string, rule: string) => Variables.wrong(variable, `names ${path}, but ${rule}`)

/** What to do about a module that could not be loaded. */
const refusal = (path: string, error: unknown) => {
  const code = (error as { readonly code?: unknown } | null)?.code
  const message = error instanceof Error ? error.message.split("\n")[0] : String(error)
  if (code === "ERR_UNKNOWN_FILE_EXTENSION") {
    return wrong(
      path,
      `Node ${process.versions.node} cannot load it: use Node 22.18 or newer, or compile it to JavaScript`
    )
  }
  if (code === "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX") {
    return wrong(path, `it uses TypeScript that Node cannot strip (${message}): compile it to JavaScript`)
  }
  if (code === "ERR_MODULE_NOT_FOUND") {
    return wrong(path, `that, or something it imports, is not there: ${message}`)
  }
  return wrong(path, `it could not be loaded: ${message}`)
}

const load = Effect.fnUntraced(function*(path: string) {
  const url = path.startsWith("file:")
    ? path
    : pathToFileURL(isAbsolute(path) ? path : resolve(process.cwd(), path)).href
  const module = yield* Effect.tryPromise({
    try: () => import(url) as Promise<{ readonly handlers?: unknown; readonly default?: unknown }>,
    catch: (error) => refusal(path, error)
  }).pipe(Effect.timeoutOrElse({
    duration: loadWithin,
    orElse: () => Effect.fail(wrong(path, `it was not loaded within ${loadWithin}: does it wait for something?`))
  }))
  const exported = module.handlers ?? module.default
  if (typeof exported !== "object" || exported === null || Object.keys(exported).length === 0) {
    return yield* wrong(
      path,
      "it exports no handlers: export an object of functions by type, as `handlers` or as default"
    )
  }
  return exported as Readonly<Record<string, Handler>>
})

type Modules = ReadonlyArray<readonly [path: string, handlers: Readonly<Record<string, Handler>>]>

/** One record of all handlers; two modules with a handler for one type are a mistake. */
const merge = Effect.fnUntraced(function*(modules: Modules) {
  const all: Record<string, Handler> = {}
  const from = new Map<string, string>()
  for (const [path, handlers] of modules) {
    for (const [type, handler] of Object.entries(handlers)) {
      const fault = Handlers.fault(type, handler)
      if (fault !== null) {
        return yield* wrong(path, fault)
      }
      const other = from.get(type)
      if (other !== undefined) {
        return yield* wrong(path, `it has a handler for "${type}", and so has ${other}`)
      }
      from.set(type, path)
      all[type] = handler
    }
  }
  return yield* Handlers.make(all)
})

type Failed = Variables.Misconfigured | WorkerMisconfigured

/**
 * Loads the modules, and answers the layer of all handlers. In two steps, so that what is wrong with a module is said
 * before a process waits for a database: only the built-in handlers need one.
 */
export const fromEnv: Effect.Effect<
  Layer.Layer<Handlers.Handlers, Failed, GuardedEffects>,
  Failed | Config.ConfigError
> = Effect.gen(function*() {
  const given = yield* Variables.text(variable)
  const paths = given === null ? [builtIn] : given.split(/[\s,]+/).filter((path) => path !== "")
  const modules = yield* Effect.forEach(
    paths.filter((path) => path !== builtIn),
    (path) => Effect.map(load(path), (handlers) => [path, handlers] as const)
  )
  if (!paths.includes(builtIn)) {
    return Layer.succeed(Handlers.Handlers, yield* merge(modules))
  }
  if (modules.length > 0) {
    yield* merge(modules)
  }
  return Layer.effect(
    Handlers.Handlers,
    Effect.flatMap(BuiltIn.make, (handlers) => merge([...modules, [builtIn, handlers]]))
  )
})
