/** Ways to let time pass, one for each kind of clock an adapter may keep. */
import { type Duration, Effect } from "effect"
import { TestClock } from "effect/testing"
import { live } from "./Eventually.ts"

export type Pass = (duration: Duration.Input) => Effect.Effect<void>

/** For adapters on the Effect clock: no time passes, the clock is moved. */
export const adjust: Pass = TestClock.adjust

/** For adapters whose server keeps its own time: wait for it. */
export const wait: Pass = (duration) => live(Effect.sleep(duration))
