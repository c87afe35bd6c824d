/**
 * The laws of `Queues`, for any adapter, beside the store whose claims heed them.
 *
 * Every test takes queues and types of its own, so the tests share one layer; the one that fills the limits frees them.
 */
import { it } from "@effect/vitest"
import type { Layer } from "effect"
import type { JobStore } from "../../src/ports/JobStore.ts"
import type { Queues } from "../../src/ports/Queues.ts"
import * as Clock from "../support/Clock.ts"
import { claimLaws } from "./QueuesContractClaims.ts"
import { settingLaws } from "./QueuesContractSettings.ts"

export const suite = <E>(
  adapter: string,
  layer: Layer.Layer<JobStore | Queues, E>,
  { pass = Clock.adjust }: { readonly pass?: Clock.Pass } = {}
) =>
  it.layer(layer, { timeout: "2 minutes", excludeTestServices: pass === Clock.wait })(`Queues (${adapter})`, (it) => {
    for (const laws of [settingLaws, claimLaws]) {
      laws(it, pass)
    }
  })
