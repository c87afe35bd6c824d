/**
 * `GuardedEffects` in a map, beside a store in the same process: for tests and simulation.
 *
 * The epoch and the state are the whole fence here: a store in memory has no
 * failover that could hand one epoch out twice.
 */
import { Effect, Layer } from "effect"
import { ClaimNotCurrent, GuardedEffects, GuardedEffectsUnavailable } from "../../ports/GuardedEffects.ts"
import { JobStore } from "../../ports/JobStore.ts"

const make = Effect.gen(function*() {
  const store = yield* JobStore
  const effects = new Set<string>()

  const once: GuardedEffects["Service"]["once"] = Effect.fn("GuardedEffectsMemory.once")(function*(claim, key) {
    const [job] = yield* store.get([claim.id]).pipe(
      Effect.mapError((cause) => new GuardedEffectsUnavailable({ cause }))
    )
    if (job === undefined || job.state !== "running" || job.epoch !== claim.epoch) {
      return yield* new ClaimNotCurrent({ claim })
    }
    // Check and record in one step: nothing else runs between them.
    const already = effects.has(key)
    effects.add(key)
    return already ? "already" as const : "fired" as const
  })

  return GuardedEffects.of({ once })
})

export const layer: Layer.Layer<GuardedEffects, never, JobStore> = Layer.effect(GuardedEffects, make)
