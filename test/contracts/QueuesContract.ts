/**
 * The laws of `Queues`, for any adapter, beside the store whose claims heed them.
 *
 * Every test takes queues and types of its own, so the tests share one layer; the one that fills the limits frees them.
 * What is said of all jobs there are is asked of a layer of its own.
 */
import { it } from "@effect/vitest"
import type { Layer } from "effect"
import type { JobStore } from "../../src/ports/JobStore.ts"
import type { Queues } from "../../src/ports/Queues.ts"
import * as Clock from "../support/Clock.ts"
import { claimLaws } from "./QueuesContractClaims.ts"
import { oldestLaws } from "./QueuesContractOldest.ts"
import { settingLaws } from "./QueuesContractSettings.ts"

export const suite = <E>(
  adapter: string,
  layer: Layer.Layer<JobStore | Queues, E>,
  { pass = Clock.adjust }: { readonly pass?: Clock.Pass } = {}
) => {
  const options = { timeout: "2 minutes", excludeTestServices: pass === Clock.wait } as const
  it.layer(layer, options)(`Queues (${adapter})`, (it) => {
    for (const laws of [settingLaws, claimLaws]) {
      laws(it, pass)
    }
  })
  it.layer(layer, options)(`JobStore and Queues (${adapter}), the oldest of all`, (it) => oldestLaws(it, pass))
}
