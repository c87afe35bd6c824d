/**
 * A store whose cancels are counted, and said to the register too where that is not the store's own record.
 *
 * The worker is told at once by a wake, which may be lost; the flag makes its next renewal answer `check`, so that it
 * looks at the record then and not only once per length of the lease.
 */
import { Effect, Layer } from "effect"
import { JobStore } from "../../ports/JobStore.ts"
import { LeaseRegister } from "../../ports/LeaseRegister.ts"
import * as Meters from "./Meters.ts"

const make = Effect.gen(function*() {
  const store = yield* JobStore
  const register = yield* LeaseRegister
  const cancel: JobStore["Service"]["cancel"] = (id) =>
    Effect.tap(store.cancel(id), (answer) => {
      if (answer._tag !== "Cancelled") {
        return Effect.void
      }
      const flag = answer.cutOff === null || register.isRecord
        ? Effect.void
        : Effect.asVoid(Effect.forkDetach(Effect.ignore(register.flag([answer.cutOff.lease]))))
      return Effect.andThen(Meters.add("dead", 1), flag)
    })
  return JobStore.of({ ...store, cancel })
})

/** In place of the store that it is given. */
export const layer: Layer.Layer<JobStore, never, JobStore | LeaseRegister> = Layer.effect(JobStore, make)
