/**
 * `node dist/server.js`: takes jobs in over HTTP, does the chores, and runs jobs itself unless told not to.
 *
 * Shutdown is the layers closing, in the reverse of the order in which they are built here: the flag goes up (readiness
 * says 503, submits are refused), the workers drain, the chores end, requests in flight are answered and the listener
 * closes, and the connections go last.
 */
import { type Config, Effect, Layer } from "effect"
import * as Server from "../adapters/http/Server.ts"
import type { DelayedJobs } from "../ports/DelayedJobs.ts"
import type { GuardedEffects } from "../ports/GuardedEffects.ts"
import type { JobStore } from "../ports/JobStore.ts"
import type { LeaseRegister } from "../ports/LeaseRegister.ts"
import type { Queues } from "../ports/Queues.ts"
import type { Schedules } from "../ports/Schedules.ts"
import type { Sessions } from "../ports/Sessions.ts"
import type { Transport } from "../ports/Transport.ts"
import * as Access from "./Access.ts"
import * as Adapters from "./Adapters.ts"
import * as Banner from "./Banner.ts"
import * as HandlerModules from "./HandlerModules.ts"
import * as Keeper from "./keeper/Keeper.ts"
import * as KeeperConfig from "./keeper/KeeperConfig.ts"
import * as Main from "./Main.ts"
import * as Loops from "./process/Loops.ts"
import * as Stopping from "./process/Stopping.ts"
import * as Variables from "./process/Variables.ts"
import * as RemoteWorkers from "./remote/RemoteWorkers.ts"
import * as Presence from "./server/Presence.ts"
import * as StatusView from "./server/StatusView.ts"
import * as GroupCommit from "./submit/GroupCommit.ts"
import { version } from "./Version.ts"
import { Handlers } from "./worker/Handlers.ts"
import * as Strays from "./worker/Strays.ts"
import * as WorkerConfig from "./worker/WorkerConfig.ts"
import * as WorkerPool from "./worker/WorkerPool.ts"

type Ports = JobStore | LeaseRegister | Transport | DelayedJobs | Sessions | Queues | Schedules | GuardedEffects

const Program = Layer.unwrap(Effect.gen(function*() {
  const { host, token } = yield* Access.fromEnv
  const port = yield* Variables.whole("DEADMAN_PORT", 8_080, { minimum: 0, maximum: 65_535 })
  const slots = yield* Variables.whole("DEADMAN_WORKER_THREADS", WorkerConfig.defaults.slots, {
    minimum: 0,
    maximum: WorkerConfig.slotsMax
  })

  // All of the configuration first: what is wrong with it is said before anything is listened on or waited for.
  const keeper = yield* KeeperConfig.fromEnv
  const worker = slots === 0 ? null : {
    config: yield* WorkerConfig.fromEnv({ role: "server", version }),
    handlers: yield* HandlerModules.fromEnv
  }

  const identity = Layer.effect(
    StatusView.Identity,
    Effect.map(Adapters.Adapters, ({ names, profile }) => ({ version, profile, adapters: names }))
  )
  const workers: Layer.Layer<
    Handlers,
    Config.ConfigError | Variables.Misconfigured | WorkerConfig.WorkerMisconfigured,
    Ports | Loops.Loops | Stopping.Stopping | StatusView.Identity
  > = worker === null
    ? Layer.succeed(Handlers, { types: [], get: () => undefined })
    : Strays.layer.pipe(
      Layer.provideMerge(WorkerPool.layer),
      Layer.provideMerge(worker.handlers),
      Layer.provide(Layer.succeed(WorkerConfig.WorkerConfig, worker.config))
    )
  const banner = Layer.effectDiscard(Effect.gen(function*() {
    const address = yield* Server.ServerAddress
    const { dataDir, names, profile } = yield* Adapters.Adapters
    const { types } = yield* Handlers
    const shown = host.includes(":") ? `[${host}]` : host === "0.0.0.0" ? "localhost" : host
    yield* Banner.say({
      program: "server",
      version,
      profile,
      dataDir,
      worker: worker?.config.name ?? null,
      pid: process.pid,
      adapters: names,
      handlers: types,
      slots,
      address: `http://${shown}:${address.port}`
    })
  }))

  return Layer.merge(Stopping.first, banner).pipe(
    Layer.provideMerge(workers),
    Layer.provideMerge(Keeper.layer.pipe(Layer.provide(KeeperConfig.layer(keeper)))),
    Layer.provideMerge(Server.layer({ host, port, token })),
    Layer.provideMerge(StatusView.layer),
    Layer.provideMerge(Layer.merge(GroupCommit.layer, RemoteWorkers.layer)),
    // Below what counts, so that its last report holds the last submits and reclaims.
    Layer.provideMerge(slots === 0 ? Presence.layer : Layer.empty),
    Layer.provideMerge(identity),
    Layer.provideMerge(Adapters.layer("server")),
    Layer.provideMerge(Layer.merge(Loops.layer, Stopping.layer))
  )
}))

Main.run(Program)
