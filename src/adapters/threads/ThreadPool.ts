/**
 * Runs functions of a module in threads, so that one which computes for long does not block the process: its heartbeat
 * goes on, and its neighbours keep their leases.
 *
 * There are as many threads as were asked for and no more; what finds none free waits, which its own signal ends. A run
 * that is interrupted has its thread terminated, wherever it is, and a thread that dies takes down its run alone. What
 * is sent and answered is copied by structured clone. An idle thread is kept for the next run, and no process alive.
 */
import { availableParallelism } from "node:os"
import { Worker } from "node:worker_threads"
import { threadCode } from "./ThreadCode.ts"

export interface Call {
  readonly url: string
  readonly name: string
  readonly payload: unknown
  readonly job: object
  readonly claim: object
  readonly signal: AbortSignal
  readonly progress: (value: unknown) => void
  readonly log: (line: string) => void
}

export interface ThreadPool {
  readonly run: (call: Call) => Promise<unknown>
  /** Threads that are there, idle ones included. */
  readonly size: () => number
}

/** A thread ended before its run did. */
export class ThreadEnded extends Error {
  override readonly name = "ThreadEnded"
}

/** What a run in a thread threw, as far as it can be brought across. */
export class ThreadError extends Error {
  readonly retry?: false

  constructor(said: Said) {
    super(said.message, said.cause === undefined ? {} : { cause: new Error(said.cause) })
    this.name = said.tag ?? said.name
    if (said.stack !== undefined) {
      this.stack = said.stack
    }
    if (said.retry === false) {
      this.retry = false
    }
  }
}

interface Said {
  readonly name: string
  readonly message: string
  readonly tag?: string
  readonly stack?: string
  readonly cause?: string
  readonly retry?: false
  readonly delayMs?: number
}

type Message =
  | { readonly run: number; readonly kind: "value"; readonly value: unknown }
  | { readonly run: number; readonly kind: "error"; readonly error: Said }
  | { readonly run: number; readonly kind: "progress"; readonly value: unknown }
  | { readonly run: number; readonly kind: "log"; readonly line: string }

interface Running {
  readonly run: number
  readonly call: Call
  readonly end: (value: unknown, error: unknown) => void
}

interface Thread {
  readonly worker: Worker
  running: Running | null
}

const waitingMax = 10_000

/** One core is left to the process itself. */
export const threadsDefault = (): number => Math.max(1, availableParallelism() - 1)

export const make = (threadsMax: number): ThreadPool => {
  const threads = new Set<Thread>()
  const waiting = new Set<() => void>()
  let runs = 0

  const next = () => {
    const [first] = waiting
    if (first !== undefined) {
      waiting.delete(first)
      first()
    }
  }

  const lose = (thread: Thread, error: unknown) => {
    if (!threads.delete(thread)) {
      return
    }
    thread.running?.end(undefined, error)
    thread.running = null
    next()
  }

  const heed = (thread: Thread, message: Message) => {
    const running = thread.running
    if (running === null || running.run !== message.run) {
      return
    }
    switch (message.kind) {
      case "progress":
        return running.call.progress(message.value)
      case "log":
        return running.call.log(message.line)
      case "value":
        rest(thread)
        return running.end(message.value, undefined)
      case "error":
        rest(thread)
        return running.end(
          undefined,
          message.error.delayMs === undefined
            ? new ThreadError(message.error)
            : { _tag: "deadman/Again", delayMs: message.error.delayMs }
        )
    }
  }

  const rest = (thread: Thread) => {
    thread.running = null
    thread.worker.unref()
    next()
  }

  const open = (): Thread => {
    const worker = new Worker(threadCode, { eval: true, name: "deadman" })
    const thread: Thread = { worker, running: null }
    threads.add(thread)
    worker.on("message", (message: Message) => heed(thread, message))
    // A message that cannot be read is an answer that never comes.
    worker.on("messageerror", (error) => {
      lose(thread, error)
      void worker.terminate()
    })
    worker.on("error", (error) => lose(thread, error))
    worker.on("exit", (code) => lose(thread, new ThreadEnded(`the thread of the run ended with code ${code}`)))
    return thread
  }

  const idle = (): Thread | null => {
    for (const thread of threads) {
      if (thread.running === null) {
        return thread
      }
    }
    return threads.size < threadsMax ? open() : null
  }

  const run: ThreadPool["run"] = (call) =>
    new Promise((resolve, reject) => {
      const { signal } = call
      const stopped = () => signal.reason instanceof Error ? signal.reason : new Error("the run was interrupted")
      if (signal.aborted) {
        return reject(stopped())
      }
      let thread: Thread | null = null
      const onAbort = () => {
        waiting.delete(begin)
        if (thread === null) {
          return end(undefined, stopped())
        }
        // Gone from the pool at once; the run has ended when its thread has.
        const { worker } = thread
        thread.running = null
        lose(thread, undefined)
        void worker.terminate().then(() => end(undefined, stopped()))
      }
      const end = (value: unknown, error: unknown) => {
        signal.removeEventListener("abort", onAbort)
        if (error === undefined) {
          resolve(value)
        } else {
          reject(error)
        }
      }
      const begin = () => {
        const taken = idle()
        if (taken === null) {
          waiting.add(begin)
          return
        }
        thread = taken
        runs += 1
        taken.running = { run: runs, call, end }
        taken.worker.ref()
        const { claim, job, name, payload, url } = call
        try {
          // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread has no origin
          taken.worker.postMessage({ run: runs, url, name, payload, job: { ...job, payload: undefined }, claim })
        } catch (error) {
          rest(taken)
          end(undefined, error)
        }
      }
      if (waiting.size >= waitingMax) {
        return reject(new Error(`${waitingMax} runs wait for a thread already`))
      }
      signal.addEventListener("abort", onAbort, { once: true })
      begin()
    })

  return { run, size: () => threads.size }
}
