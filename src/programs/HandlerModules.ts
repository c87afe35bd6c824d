/**
 * The handlers of a process: the modules that `DEADMAN_HANDLERS` names, or the built-in ones.
 *
 * A module exports its handlers as `handlers` or as its default: an array of typed ones (`[sendMail.handle(...)]`), or
 * an object of functions by type, `{ "mail.send": async (job, { signal }) => ... }`, among which typed ones may be. What
 * its Effects need it exports as `layer`. JavaScript loads everywhere, TypeScript where Node can load it. The word
 * `built-in` in the list stands for the built-in ones.
 */
import { type Config, Context, Effect, Layer } from "effect"
import { isAbsolute, resolve } from "node:path"
import { pathToFileURL } from "node:url"
import * as Sanitise from "../domain/Sanitise.ts"
import type { GuardedEffects } from "../ports/GuardedEffects.ts"
import * as BuiltIn from "./handlers/BuiltIn.ts"
import { isTypedHandler, type TypedHandler } from "./job/TypedHandler.ts"
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

type Handling = Handler | TypedHandler<never>

/** What one module has: by type, and whatever its Effects need. */
interface Module {
  readonly path: string
  readonly handlers: ReadonlyArray<readonly [type: string, handler: Handling]>
  readonly layer: Layer.Layer<never, unknown> | null
}

const handlersOf = (path: string, exported: unknown): Module["handlers"] | Variables.Misconfigured => {
  if (typeof exported !== "object" || exported === null || Object.keys(exported).length === 0) {
    return wrong(
      path,
      "it exports no handlers: export an array of typed handlers or an object of functions by type, as `handlers` or " +
        "as default"
    )
  }
  if (isTypedHandler(exported)) {
    return [[exported.type, exported]]
  }
  if (!Array.isArray(exported)) {
    return Object.entries(exported).map(([type, handler]: [string, Handling]) =>
      isTypedHandler(handler) ? [handler.type, handler] as const : [type, handler] as const
    )
  }
  const stranger = exported.findIndex((handler) => !isTypedHandler(handler))
  return stranger === -1
    ? exported.map((handler: TypedHandler<never>) => [handler.type, handler] as const)
    : wrong(
      path,
      `number ${stranger + 1} of its array is no typed handler: make it with handle() of its definition, or export ` +
        "an object of functions by type"
    )
}

const load = Effect.fnUntraced(function*(path: string): Effect.fn.Return<Module, Variables.Misconfigured> {
  const url = path.startsWith("file:")
    ? path
    : pathToFileURL(isAbsolute(path) ? path : resolve(process.cwd(), path)).href
  const module = yield* Effect.tryPromise({
    try: () =>
      import(url) as Promise<{ readonly handlers?: unknown; readonly default?: unknown; readonly layer?: unknown }>,
    catch: (error) => refusal(path, error)
  }).pipe(Effect.timeoutOrElse({
    duration: loadWithin,
    orElse: () => Effect.fail(wrong(path, `it was not loaded within ${loadWithin}: does it wait for something?`))
  }))
  const handlers = handlersOf(path, module.handlers ?? module.default)
  if (!Array.isArray(handlers)) {
    return yield* handlers as Variables.Misconfigured
  }
  if (module.layer !== undefined && !Layer.isLayer(module.layer)) {
    return yield* wrong(path, "what it exports as `layer` is no Layer of Effect")
  }
  return { path, handlers, layer: (module.layer as Module["layer"] | undefined) ?? null }
})

/** One record of all handlers; two modules with a handler for one type are a mistake. */
const merge = Effect.fnUntraced(function*(
  modules: ReadonlyArray<Module>,
  services: ReadonlyMap<Module, Context.Context<never>>
) {
  const all: Record<string, Handler> = Object.create(null)
  const from = new Map<string, string>()
  for (const module of modules) {
    for (const [type, handling] of module.handlers) {
      const handler = isTypedHandler(handling) ? handling.toHandler(services.get(module) ?? Context.empty()) : handling
      const fault = Handlers.fault(type, handler)
      if (fault !== null) {
        return yield* wrong(module.path, fault)
      }
      const other = from.get(type)
      if (other !== undefined) {
        return yield* wrong(
          module.path,
          other === module.path
            ? `it has two handlers for "${type}"`
            : `it has a handler for "${type}", and so has ${other}`
        )
      }
      from.set(type, module.path)
      all[type] = handler
    }
  }
  return yield* Handlers.make(all)
})

const builtWithin = "30 seconds"

/** What the Effects of the modules need, for as long as the process runs. */
const build = Effect.fnUntraced(function*(modules: ReadonlyArray<Module>) {
  const services = new Map<Module, Context.Context<never>>()
  for (const module of modules) {
    if (module.layer !== null) {
      const { path } = module
      services.set(
        module,
        yield* Layer.build(module.layer).pipe(
          Effect.catchCause((cause) =>
            Effect.fail(wrong(path, `its layer could not be built: ${Sanitise.failure(cause).message}`))
          ),
          Effect.timeoutOrElse({
            duration: builtWithin,
            orElse: () => Effect.fail(wrong(path, `its layer was not built within ${builtWithin}`))
          })
        )
      )
    }
  }
  return services
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
  const modules = yield* Effect.forEach(paths.filter((path) => path !== builtIn), load)
  if (modules.length > 0) {
    yield* merge(modules, new Map())
  }
  return Layer.effect(
    Handlers.Handlers,
    Effect.gen(function*() {
      const ours = paths.includes(builtIn)
        ? [{ path: builtIn, handlers: Object.entries(yield* BuiltIn.make), layer: null }]
        : []
      return yield* merge([...modules, ...ours], yield* build(modules))
    })
  )
})
