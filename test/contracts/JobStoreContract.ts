/**
 * The laws of `JobStore`, for any adapter.
 *
 * Every test takes fresh types, queues and leases, so the tests share one store without sharing rows; only pruning and
 * promoting reach further, so a suite has a store of its own. `pass` lets time pass on the clock the adapter keeps:
 * `Clock.adjust` moves a memory adapter's, `Clock.wait` waits for a server's, and then the adapter's own deadlines run
 * on real time too. What the laws are tested with is in `JobStoreContractSteps.ts`.
 *
 * Not reachable through the port, so tested beside the adapters: paused queues, locks of other sessions.
 */
import { it } from "@effect/vitest"
import type { Layer } from "effect"
import type { JobStore } from "../../src/ports/JobStore.ts"
import * as Clock from "../support/Clock.ts"
import { claimLaws } from "./JobStoreContractClaim.ts"
import { controlLaws } from "./JobStoreContractControl.ts"
import { delayLaws } from "./JobStoreContractDelays.ts"
import { edgeLaws } from "./JobStoreContractEdges.ts"
import { keyLaws } from "./JobStoreContractKeys.ts"
import { leaseLaws } from "./JobStoreContractLeases.ts"
import { noteLaws } from "./JobStoreContractNotes.ts"
import { orderLaws } from "./JobStoreContractOrder.ts"
import { readLaws } from "./JobStoreContractReads.ts"
import { reclaimLaws } from "./JobStoreContractReclaim.ts"
import { retentionLaws } from "./JobStoreContractRetention.ts"
import { settleLaws } from "./JobStoreContractSettle.ts"
import { submitLaws } from "./JobStoreContractSubmit.ts"
import { termLaws } from "./JobStoreContractTerms.ts"
import { uniqueLaws } from "./JobStoreContractUnique.ts"

const parts = [
  submitLaws,
  keyLaws,
  claimLaws,
  orderLaws,
  leaseLaws,
  settleLaws,
  noteLaws,
  edgeLaws,
  reclaimLaws,
  controlLaws,
  readLaws,
  retentionLaws,
  uniqueLaws,
  termLaws,
  delayLaws
]

interface Options {
  readonly pass?: Clock.Pass
}

const options = (pass: Clock.Pass) => ({ timeout: "2 minutes", excludeTestServices: pass === Clock.wait } as const)

export const suite = <E>(
  adapter: string,
  layer: Layer.Layer<JobStore, E>,
  { pass = Clock.adjust }: Options = {}
) =>
  it.layer(layer, options(pass))(`JobStore (${adapter})`, (it) => {
    for (const laws of parts) {
      laws(it, pass)
    }
  })

export { suiteOfKeys } from "./JobStoreContractKeys.ts"
