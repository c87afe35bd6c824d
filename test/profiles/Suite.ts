/** Runs the laws on whatever system it is given. */
import { type Vitest } from "@effect/vitest"
import { Effect } from "effect"
import * as Laws from "./Laws.ts"
import * as RemoteLaws from "./RemoteLaws.ts"
import { type System } from "./System.ts"

export const suite = <R>(it: Vitest.MethodsNonLive<System | R>) => {
  for (const [name, law] of Object.entries({ ...Laws.laws, ...RemoteLaws.laws })) {
    it.effect(name, () => Effect.scoped(law), { concurrent: true, timeout: 180_000 })
  }
  for (const [name, law] of Object.entries({ ...Laws.timedLaws, ...RemoteLaws.timedLaws })) {
    it.effect(name, () => Effect.scoped(law), 180_000)
  }
}
