/**
 * What a user's program says about jobs: `Job.define`, and what handlers are made of and may say.
 *
 * `Job.offload` runs a handler's function in a thread: for work that computes for longer than a heartbeat may wait, a
 * fifth of a lease. The function stands in a module of its own, since a thread shares nothing with who started it.
 */
import { pathToFileURL } from "node:url"
import * as ThreadPool from "../adapters/threads/ThreadPool.ts"
import type { Definition } from "./job/Definition.ts"
import type { TypedHandler } from "./job/TypedHandler.ts"

export { define, type Definition, DefinitionInvalid, type JobContext, JobValueRefused } from "./job/Definition.ts"
export type { TypedHandler } from "./job/TypedHandler.ts"
export { Again, again, Rejected } from "./worker/HandlerApi.ts"

/** What the function in a thread gets beside its payload. There is no signal: an interrupted run's thread is ended. */
export interface ThreadContext {
  readonly job: { readonly id: string; readonly attempt: number; readonly delivery: number; readonly key: string }
  readonly claim: { readonly id: string; readonly epoch: number; readonly lease: string }
  readonly progress: (value: unknown) => void
  readonly log: (line: string) => void
}

const pools = new Map<number, ThreadPool.ThreadPool>()

const poolOf = (threads: number): ThreadPool.ThreadPool => {
  const found = pools.get(threads) ?? ThreadPool.make(threads)
  pools.set(threads, found)
  return found
}

export interface OffloadOptions {
  /** What the module exports the function as. */
  readonly name?: string
  /** Threads at most, shared by all handlers that ask for as many: all cores but one by default. */
  readonly threads?: number
}

/** A handler that runs `module`'s function in a thread. The payload arrives decoded, as a structured clone. */
export const offload = <Type extends string, Payload, Value>(
  definition: Definition<Type, Payload, Value>,
  module: URL | string,
  options: OffloadOptions = {}
): TypedHandler => {
  const { name = "default", threads = ThreadPool.threadsDefault() } = options
  if (!Number.isInteger(threads) || threads < 1 || threads > 256) {
    throw new RangeError(`offload() takes 1 to 256 threads, not ${threads}`)
  }
  const url = String(module).startsWith("file:") ? String(module) : pathToFileURL(String(module)).href
  const pool = poolOf(threads)
  return definition.handle((payload, context) =>
    pool.run({
      url,
      name,
      payload,
      job: context.job,
      claim: context.claim,
      signal: context.signal,
      progress: context.progress,
      log: context.log
    }) as Promise<Value>
  )
}
