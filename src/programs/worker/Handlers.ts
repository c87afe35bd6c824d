/** Which handler runs which type of job. A process claims the types it has a handler for, and no others. */
import { Context, Effect, Layer } from "effect"
import { JobType, namePattern } from "../../domain/Job.ts"
import type { Handler } from "./HandlerApi.ts"
import { WorkerMisconfigured } from "./WorkerConfig.ts"

export class Handlers extends Context.Service<Handlers, {
  readonly types: ReadonlyArray<JobType>
  readonly get: (type: string) => Handler | undefined
}>()("deadman/programs/worker/Handlers") {}

export const make = Effect.fnUntraced(
  function*(handlers: Readonly<Record<string, Handler>>): Effect.fn.Return<Handlers["Service"], WorkerMisconfigured> {
    // A map rather than the record: a job of type `constructor` must not find `Object`.
    const byType = new Map<string, Handler>()
    for (const [type, handler] of Object.entries(handlers)) {
      if (!namePattern.test(type)) {
        return yield* new WorkerMisconfigured({ message: `"${type}" is not a type a job can have` })
      }
      if (typeof handler !== "function") {
        return yield* new WorkerMisconfigured({ message: `the handler of "${type}" is not a function` })
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
