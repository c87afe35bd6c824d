/**
 * `node dist/worker.js`: claims jobs and runs them until told to stop.
 *
 * Shutdown is the layers closing in reverse: the pool drains first, the connections go last.
 */
import { Effect, Layer } from "effect"
import * as Access from "./Access.ts"
import * as Adapters from "./Adapters.ts"
import * as Banner from "./Banner.ts"
import * as HandlerModules from "./HandlerModules.ts"
import * as Main from "./Main.ts"
import * as Loops from "./process/Loops.ts"
import * as Variables from "./process/Variables.ts"
import { version } from "./Version.ts"
import { Handlers } from "./worker/Handlers.ts"
import * as Strays from "./worker/Strays.ts"
import * as WorkerConfig from "./worker/WorkerConfig.ts"
import * as WorkerPool from "./worker/WorkerPool.ts"

const metricsFromEnv = Effect.gen(function*() {
  const port = yield* Variables.whole("DEADMAN_METRICS_PORT", -1, { minimum: 1, maximum: 65_535 })
  if (port === -1) {
    return Layer.empty
  }
  const { host, token } = yield* Access.fromEnv
  // Nothing else of a worker needs what serves HTTP.
  const [MetricsServer, Server] = yield* Effect.promise(() =>
    Promise.all([import("../adapters/http/MetricsServer.ts"), import("../adapters/http/Server.ts")])
  )
  return Layer.effectDiscard(Server.ServerAddress).pipe(Layer.provide(MetricsServer.layer({ host, port, token })))
})

const banner = Layer.effectDiscard(Effect.gen(function*() {
  const { dataDir, names, profile } = yield* Adapters.Adapters
  const { types } = yield* Handlers
  const { name, slots } = yield* WorkerPool.WorkerPool
  yield* Banner.say({
    program: "worker",
    version,
    profile,
    dataDir,
    worker: name,
    pid: process.pid,
    adapters: names,
    handlers: types,
    slots
  })
}))

// The configuration first: what is wrong with it is said before anything is waited for.
const Worker = Layer.unwrap(Effect.gen(function*() {
  const config = yield* WorkerConfig.fromEnv({ role: "worker", version })
  const metrics = yield* metricsFromEnv
  const handlers = yield* HandlerModules.fromEnv
  return Layer.mergeAll(Strays.layer, banner, metrics).pipe(
    Layer.provideMerge(WorkerPool.layer),
    Layer.provideMerge(handlers),
    Layer.provideMerge(Adapters.layer("worker")),
    Layer.provideMerge(Loops.layer),
    Layer.provide(Layer.succeed(WorkerConfig.WorkerConfig, config))
  )
}))

Main.run(Worker)
