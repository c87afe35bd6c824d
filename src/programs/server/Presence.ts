/** Reports a process that runs no jobs, so that its counters are in the totals. A pool of workers reports itself. */
import { Clock, Effect, Layer, Random } from "effect"
import * as Rhythm from "../../ports/Rhythm.ts"
import { type Session, Sessions } from "../../ports/Sessions.ts"
import * as Meters from "../process/Meters.ts"
import { RhythmPhase } from "../process/RhythmPhase.ts"
import { Stopping } from "../process/Stopping.ts"
import * as Reports from "../worker/Reports.ts"
import * as Signal from "../worker/Signal.ts"
import { Identity } from "./StatusView.ts"

export const layer = Layer.effectDiscard(Effect.gen(function*() {
  const sessions = yield* Sessions
  const stopping = yield* Stopping
  const { version } = yield* Identity
  const clock = yield* Clock.Clock
  const suffix = Math.floor((yield* Random.next) * 2 ** 32).toString(16).padStart(8, "0")
  const name = `server-${suffix}`
  const context = yield* Effect.context<never>()
  const session = Effect.map(Meters.read, (counters): Session => ({
    name,
    role: "server",
    version,
    handlers: [],
    slots: 0,
    running: 0,
    runaways: 0,
    draining: stopping.isStopping(),
    counters
  }))
  const now = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
  yield* Effect.addFinalizer(() => Reports.leave(sessions, session))
  yield* Effect.forkScoped(Reports.run({
    sessions,
    session,
    stamp: () => `${Meters.stamp(context)} ${stopping.isStopping()}`,
    quiet: () => false,
    stirred: Signal.make(),
    now,
    rhythm: Rhythm.make(yield* RhythmPhase, now)
  }))
}))
