import { Effect, Layer } from "effect"
import * as GuardedEffectsMemory from "../../../src/adapters/memory/GuardedEffectsMemory.ts"
import * as JobStoreMemory from "../../../src/adapters/memory/JobStoreMemory.ts"
import { type Claim, Epoch } from "../../../src/domain/Claim.ts"
import { JobType } from "../../../src/domain/Job.ts"
import { JobStore } from "../../../src/ports/JobStore.ts"
import * as GuardedEffectsContract from "../../contracts/GuardedEffectsContract.ts"
import * as Ids from "../../support/Ids.ts"
import * as Jobs from "../../support/Jobs.ts"

const type = JobType.make("noop")

const claim = Effect.gen(function*() {
  const store = yield* JobStore
  const [id, lease] = [Ids.jobId(), Ids.leaseId()]
  yield* store.submit([{ id, ...Jobs.draft({ type }) }], { atomic: false })
  const [job] = yield* store.claim({
    lease,
    leaseMs: 5_000,
    worker: "ada",
    types: [type],
    limit: 1,
    freeSlots: 1,
    bytes: 1_000
  })
  return { id, lease, epoch: Epoch.make(job!.epoch) }
})

const end = Effect.fnUntraced(function*(claim: Claim) {
  const store = yield* JobStore
  yield* store.settle([
    { claim, step: "complete", reason: null, delayMs: 0, result: null, failure: null, recorded: false }
  ])
})

const lose = Effect.fnUntraced(function*({ lease }: Claim) {
  const store = yield* JobStore
  const { token } = (yield* store.look).leases.find((record) => record.lease === lease)!
  yield* store.reclaim([{ lease, token }], { counted: true, lossesMax: 5 })
})

GuardedEffectsContract.suite(
  "memory",
  Layer.provideMerge(GuardedEffectsMemory.layer, JobStoreMemory.layer),
  { claim, end, lose }
)
