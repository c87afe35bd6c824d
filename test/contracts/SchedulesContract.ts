/**
 * The laws of `Schedules`, for any adapter.
 *
 * `pass` lets time pass on the clock that the adapter keeps. The tests share one store and look only at schedules of
 * their own names; those that would fire at any time are removed or paused when a test is done with them. What the laws
 * are tested with is in `SchedulesContractSteps.ts`.
 */
import { it } from "@effect/vitest"
import type { Layer } from "effect"
import type { JobStore } from "../../src/ports/JobStore.ts"
import type { Schedules } from "../../src/ports/Schedules.ts"
import * as Clock from "../support/Clock.ts"
import { bookingLaws } from "./SchedulesContractBooking.ts"
import { firingLaws } from "./SchedulesContractFiring.ts"
import { runningLaws } from "./SchedulesContractRunning.ts"

export const suite = <E>(
  adapter: string,
  layer: Layer.Layer<JobStore | Schedules, E>,
  { pass = Clock.adjust }: { readonly pass?: Clock.Pass } = {}
) =>
  it.layer(layer, { timeout: "2 minutes", excludeTestServices: pass === Clock.wait })(
    `Schedules (${adapter})`,
    (it) => {
      for (const laws of [bookingLaws, firingLaws, runningLaws]) {
        laws(it, pass)
      }
    }
  )
