/**
 * `JobStore` in maps: for tests and for the simulation, on Effect's clock.
 *
 * It keeps every law of the port, held to the same suite as Postgres. It has no open transactions of others, so it
 * never answers `KeyLocked`, `Undecided` or `Locked`, and is never unavailable: wrap it to have faults.
 */
import { Context, Effect, Layer, Random } from "effect"
import { JobStore } from "../../ports/JobStore.ts"
import * as Claims from "./Claims.ts"
import * as Controls from "./Controls.ts"
import * as Noting from "./Noting.ts"
import * as Reads from "./Reads.ts"
import * as Reclaims from "./Reclaims.ts"
import * as Settles from "./Settles.ts"
import * as Submits from "./Submits.ts"
import * as Tables from "./Tables.ts"

export interface Options {
  /** How long an Idempotency-Key outlives its job's end. */
  readonly keyTtlMs?: number
  /** In `[0, 1)`: spreads what was reclaimed. Random where it is not given. */
  readonly draw?: () => number
}

/** A day. */
const keyTtlDefaultMs = 86_400_000

/** The tables, for the adapters of other ports over the same jobs. */
export class SharedTables
  extends Context.Service<SharedTables, Tables.Tables>()("deadman/adapters/memory/JobStoreMemory/SharedTables")
{}

const makeTables = Effect.fnUntraced(function*(options: Options) {
  const random = yield* Random.Random
  return Tables.make({
    keyTtlMs: options.keyTtlMs ?? keyTtlDefaultMs,
    draw: options.draw ?? (() => random.nextDoubleUnsafe())
  })
})

const make = Effect.map(SharedTables, (tables) =>
  JobStore.of({
    ...Submits.make(tables),
    ...Claims.make(tables),
    ...Settles.make(tables),
    ...Noting.make(tables),
    ...Reclaims.make(tables),
    ...Controls.make(tables),
    ...Reads.make(tables)
  }))

export const layerWith = (options: Options): Layer.Layer<JobStore | SharedTables> =>
  Layer.effect(JobStore, make).pipe(Layer.provideMerge(Layer.effect(SharedTables, makeTables(options))))

export const layer: Layer.Layer<JobStore | SharedTables> = layerWith({})
