/** Which handler runs which type of job. A process claims the types it has a handler for, and no others. */
import { Context, Effect, Layer } from "effect"
import { JobType, namePattern, nameRule } from "../../domain/Job.ts"
import { isTypedHandler, type TypedHandler } from "../job/TypedHandler.ts"
import type { Handler } from "./HandlerApi.ts"
import { WorkerMisconfigured } from "./WorkerConfig.ts"

export class Handlers extends Context.Service<Handlers, {
  readonly types: ReadonlyArray<JobType>
  readonly get: (type: string) => Handler | undefined
}>()("deadman/programs/worker/Handlers") {}

/** What is wrong with one of them; `null` if nothing is. */
export const fault = (type: string, handler: unknown): string | null =>
  !namePattern.test(type)
    ? `"${type.slice(0, 120)}" is not a type a job can have: it ${nameRule}`
    : typeof handler !== "function"
    ? `the handler of "${type}" is not a function`
    : null

export const make = Effect.fnUntraced(
  function*(handlers: Readonly<Record<string, Handler>>): Effect.fn.Return<Handlers["Service"], WorkerMisconfigured> {
    // A map rather than the record: a job of type `constructor` must not find `Object`.
    const byType = new Map<string, Handler>()
    for (const [type, handler] of Object.entries(handlers)) {
      const message = fault(type, handler)
      if (message !== null) {
        return yield* new WorkerMisconfigured({ message })
      }
      byType.set(type, handler)
    }
    if (byType.size === 0) {
      return yield* new WorkerMisconfigured({ message: "there is no handler: a worker would have nothing to do" })
    }
    return Handlers.of({
      types: Array.from(byType.keys(), (type) => JobType.make(type)),
      get: (type) => byType.get(type)
    })
  }
)

export const layer = (
  handlers: Readonly<Record<string, Handler>>
): Layer.Layer<Handlers, WorkerMisconfigured> => Layer.effect(Handlers, make(handlers))

/** One record of typed handlers, or what is wrong with them. */
const byType = <R>(handlers: ReadonlyArray<TypedHandler<R>>, services: Context.Context<R>) => {
  const all: Record<string, Handler> = Object.create(null)
  for (const handler of handlers) {
    if (!isTypedHandler(handler)) {
      return "one of the handlers is no typed handler: make it with handle() of its definition"
    }
    if (handler.type in all) {
      return `there are two handlers for "${handler.type}"`
    }
    all[handler.type] = handler.toHandler(services)
  }
  return all
}

/** Typed handlers, with what their Effects need taken from the context. */
export const makeTyped = Effect.fnUntraced(function*<R = never>(
  handlers: ReadonlyArray<TypedHandler<R>>
): Effect.fn.Return<Handlers["Service"], WorkerMisconfigured, R> {
  const all = byType(handlers, yield* Effect.context<R>())
  return typeof all === "string" ? yield* new WorkerMisconfigured({ message: all }) : yield* make(all)
})

export const layerTyped = <R = never>(
  handlers: ReadonlyArray<TypedHandler<R>>
): Layer.Layer<Handlers, WorkerMisconfigured, R> => Layer.effect(Handlers, makeTyped(handlers))
