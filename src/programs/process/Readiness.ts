/**
 * Whether this process is ready: its loops make progress, the database answers, and nobody has told it to stop.
 *
 * Who asks often does not ask the database often, and never waits for it for longer than a probe has patience.
 */
import { Clock, Deferred, Effect, Option } from "effect"
import { JobStore } from "../../ports/JobStore.ts"
import type { Readiness } from "../../ports/Status.ts"
import { Loops } from "./Loops.ts"
import { Stopping } from "./Stopping.ts"

const pingMs = 1_500
const pingCacheMs = 1_000
const storeName = "store"

const monotonicMs = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos / 1_000_000n))

export const make: Effect.Effect<Effect.Effect<Readiness>, never, JobStore | Loops | Stopping> = Effect.gen(
  function*() {
    const store = yield* JobStore
    const loops = yield* Loops
    const stopping = yield* Stopping
    let ping: { readonly up: boolean; readonly atMs: number } | null = null

    const isUp = Effect.gen(function*() {
      const now = yield* monotonicMs
      if (ping === null || now - ping.atMs > pingCacheMs) {
        const answer = yield* Deferred.make<boolean>()
        yield* Effect.forkDetach(Effect.flatMap(
          Effect.match(store.now, { onFailure: () => false, onSuccess: () => true }),
          (up) => Deferred.succeed(answer, up)
        ))
        const up = yield* Effect.timeoutOption(Deferred.await(answer), pingMs)
        ping = { up: Option.getOrElse(up, () => false), atMs: yield* monotonicMs }
      }
      return ping.up
    })

    return Effect.gen(function*() {
      const up = yield* isUp
      const states = yield* loops.status
      const reasons = [
        ...(stopping.isStopping() ? ["shutting down"] : []),
        ...(up ? [] : ["the database does not answer"]),
        ...states.filter(({ ok }) => !ok).map(({ lastOkMsAgo, name }) =>
          lastOkMsAgo === null ? `${name}: no round yet` : `${name}: no progress for ${lastOkMsAgo} ms`
        ),
        ...(yield* loops.reasons)
      ]
      const answer: Readiness = {
        ready: reasons.length === 0,
        reasons,
        degraded: yield* loops.degraded,
        loops: states.map(({ lastOkMsAgo, name }) => ({ name, lastOkMsAgo })),
        services: { [storeName]: up ? "up" : "away", ...(yield* loops.services) }
      }
      return answer
    })
  }
)
