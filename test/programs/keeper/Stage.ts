/** A stage for the chores: memory adapters on the test clock, faults by wrapping the ports. */
import { Duration, Effect, Layer, Ref } from "effect"
import { TestClock } from "effect/testing"
import * as JobStoreMemory from "../../../src/adapters/memory/JobStoreMemory.ts"
import * as LeaseRegisterMemory from "../../../src/adapters/memory/LeaseRegisterMemory.ts"
import type { LeaseId } from "../../../src/domain/Claim.ts"
import { JobType, type NewJob } from "../../../src/domain/Job.ts"
import { JobStore, JobStoreUnavailable } from "../../../src/ports/JobStore.ts"
import { LeaseRegister, LeaseRegisterUnavailable } from "../../../src/ports/LeaseRegister.ts"
import * as KeeperConfig from "../../../src/programs/keeper/KeeperConfig.ts"
import * as Ids from "../../support/Ids.ts"
import * as Jobs from "../../support/Jobs.ts"

export const leaseMs = 5_000
export const heartbeatMs = 1_000
export const type = JobType.make("test")

export const newJob = (change: Partial<NewJob> = {}): NewJob => ({
  id: Ids.jobId(),
  ...Jobs.draft({ type, ...change })
})

/** One claimed job under a lease of its own, known to the register. */
export const claimed = Effect.gen(function*() {
  const store = yield* JobStore
  const register = yield* LeaseRegister
  const job = newJob()
  const lease = Ids.leaseId()
  yield* store.submit([job], { atomic: false })
  const claims = yield* store.claim({
    lease,
    leaseMs,
    worker: "ada",
    types: [type],
    limit: 1,
    freeSlots: 1,
    bytes: 1_000_000
  })
  yield* register.hold([{ lease, leaseMs }])
  return { id: job.id, lease, claims }
})

export const stateOf = (id: NewJob["id"]) =>
  Effect.flatMap(JobStore, (store) => Effect.map(store.get([id]), ([job]) => job))

export const renew = (lease: LeaseId) =>
  Effect.flatMap(LeaseRegister, (register) => register.renew([{ lease, leaseMs }]))

/** Lets the reaper look every 200 ms for so long. */
export const looking = <E, R>(round: Effect.Effect<unknown, E, R>, ms: number) =>
  Effect.gen(function*() {
    for (let passed = 0; passed < ms; passed += 200) {
      yield* TestClock.adjust(Duration.millis(200))
      yield* Effect.exit(round)
    }
  })

export const memory = Layer.mergeAll(
  JobStoreMemory.layer,
  LeaseRegisterMemory.layer,
  KeeperConfig.layer({ lossesMax: 3 })
)

/** The store, away while `away` says so. */
export const storeAway = (away: Ref.Ref<boolean>) =>
  Effect.map(JobStore, (store): JobStore["Service"] => ({
    ...store,
    look: Effect.flatMap(Ref.get(away), (down) =>
      down ? Effect.fail(new JobStoreUnavailable({ operation: "look", cause: "away" })) : store.look)
  }))

/** The register, silent while `away` says so. */
export const registerAway = (away: Ref.Ref<boolean>) =>
  Effect.map(LeaseRegister, (register): LeaseRegister["Service"] => ({
    ...register,
    look: (leases) =>
      Effect.flatMap(Ref.get(away), (down) =>
        down
          ? Effect.fail(new LeaseRegisterUnavailable({ operation: "look", cause: "away" }))
          : register.look(leases))
  }))

/** Claims what is ready, under a new lease. */
export const claimAgain = (worker: string) =>
  Effect.gen(function*() {
    const store = yield* JobStore
    const register = yield* LeaseRegister
    const lease = Ids.leaseId()
    const claims = yield* store.claim({
      lease,
      leaseMs,
      worker,
      types: [type],
      limit: 1,
      freeSlots: 1,
      bytes: 1_000_000
    })
    yield* register.hold([{ lease, leaseMs }])
    return claims
  })
