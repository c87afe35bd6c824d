/**
 * Says to those who publish for which types workers elsewhere wait here, since these are given no ids: of a type that was
 * not said lately at once, and again while somebody waits for it.
 */
import { Effect } from "effect"
import type { JobType } from "../../domain/Job.ts"
import { awaitedMs, type Transport } from "../../ports/Transport.ts"
import * as Signal from "../worker/Signal.ts"

/** Within what is remembered it is said this often: one of them may get lost. */
const againMs = awaitedMs / 3
/** What is said anew gathers for so long. */
const gatherMs = 20
/** Types that are known to have been said; beyond so many they are said anew. */
const saidMax = 10_000

export interface Awaiting {
  /** Somebody waits for these. */
  readonly waits: (types: ReadonlyArray<JobType>) => void
  /** Ends only by interruption. */
  readonly run: Effect.Effect<never>
}

export const make = (options: { readonly transport: Transport["Service"]; readonly now: () => number }): Awaiting => {
  const { now, transport } = options
  const said = new Map<JobType, number>()
  let unsaid = new Set<JobType>()
  const some = Signal.make()

  const say = Effect.suspend(() => {
    const types = Array.from(unsaid)
    unsaid = new Set()
    if (said.size > saidMax) {
      said.clear()
    }
    const atMs = now()
    types.forEach((type) => said.set(type, atMs))
    // Whoever waits on says it again.
    return Effect.catch(transport.awaits(types), () => Effect.sync(() => types.forEach((type) => said.delete(type))))
  })

  return {
    waits: (types) => {
      const atMs = now()
      for (const type of types) {
        if (atMs - (said.get(type) ?? Number.NEGATIVE_INFINITY) >= againMs && !unsaid.has(type)) {
          unsaid.add(type)
          some.notify()
        }
      }
    },
    run: Effect.forever(
      Effect.andThen(some.wait(Number.POSITIVE_INFINITY), Effect.andThen(say, Effect.sleep(gatherMs)))
    )
  }
}
