/**
 * Whether this process was told to stop.
 *
 * The flag goes up as the first step of the shutdown, before anything closes, so that readiness says 503 and new
 * submits are refused while the rest still serves.
 */
import { Context, Deferred, Effect, Layer } from "effect"

export class Stopping extends Context.Service<Stopping, {
  readonly isStopping: () => boolean
  readonly begin: Effect.Effect<void>
  /** Ends when it begins. */
  readonly begun: Effect.Effect<void>
}>()("deadman/programs/process/Stopping") {}

export const layer: Layer.Layer<Stopping> = Layer.sync(Stopping, () => {
  let stopping = false
  const begun = Deferred.makeUnsafe<void>()
  return {
    isStopping: () => stopping,
    begin: Effect.sync(() => {
      stopping = true
      Deferred.doneUnsafe(begun, Effect.void)
    }),
    begun: Deferred.await(begun)
  }
})

/** Raises the flag when its scope closes: to be built last, since finalizers run in reverse. */
export const first: Layer.Layer<never, never, Stopping> = Layer.effectDiscard(
  Effect.flatMap(Stopping, (stopping) => Effect.addFinalizer(() => stopping.begin))
)
