/**
 * What handlers throw where nobody catches it: a promise they did not await, a timer, an event of a socket.
 *
 * Left alone, one of these ends the process, and with it the runs of every other job. Here the process lives on: the
 * error is logged with the types that were running, since one of them is likely to have left it behind, and counted.
 * The job itself is not failed by it: nobody can say whose it was, and its own promise or its timeout ends it. What a
 * stray error may have left half done in the memory of this process is the handlers' affair, since Deadman keeps
 * nothing between two statements that such an error could reach; a loop of ours that no longer turns shows in readiness.
 */
import { Effect, Layer, Metric } from "effect"
import { WorkerPool } from "./WorkerPool.ts"

export const strays = Metric.counter("deadman_stray_errors_total", {
  description: "Errors that handlers left to nobody",
  incremental: true
})

const make = Effect.gen(function*() {
  const pool = yield* WorkerPool
  const runFork = Effect.runForkWith(yield* Effect.context<never>())

  const tell = (what: string) => (error: unknown) => {
    runFork(Effect.flatMap(pool.runningTypes, (types) =>
      Effect.andThen(
        Metric.update(strays, 1),
        Effect.logError(`${what} that no handler caught; the process goes on. Await it, or catch it where it is`, error)
          .pipe(Effect.annotateLogs({ running: types.slice(0, 10).join(" ") }))
      )))
  }
  const rejected = tell("a promise was rejected")
  const thrown = tell("an error was thrown")

  // Never taken off again: what is left behind may be thrown in the middle of the drain, and outlives this layer.
  yield* Effect.sync(() => {
    process.on("unhandledRejection", rejected)
    process.on("uncaughtException", thrown)
  })
})

/** For entry points: it is about the whole process, so a pool in somebody else's program does not bring it along. */
export const layer: Layer.Layer<never, never, WorkerPool> = Layer.effectDiscard(make)
