/** What the laws of `JobStore` are tested with: ways to bring a job somewhere, through the port and nothing else. */
import { assert, type Vitest } from "@effect/vitest"
import { Effect } from "effect"
import { type Claim, Epoch, type LeaseId } from "../../src/domain/Claim.ts"
import type { ClaimedJob, NewJob } from "../../src/domain/Job.ts"
import type { JobId } from "../../src/domain/JobId.ts"
import type { Settlement } from "../../src/domain/Outcome.ts"
import { type ClaimRequest, JobStore, type Reclaimed, type Settled } from "../../src/ports/JobStore.ts"
import type * as Clock from "../support/Clock.ts"
import * as Jobs from "../support/Jobs.ts"

/** One part of the suite. */
export type Laws = (it: Vitest.MethodsNonLive<JobStore>, pass: Clock.Pass) => void

export const worker = "ada"
const polls = 400
const pollMs = 25

export interface Held {
  readonly claim: Claim
  readonly job: ClaimedJob
}

export const claimOf = (lease: LeaseId, { epoch, id }: Pick<ClaimedJob, "id" | "epoch">): Claim => ({
  id,
  epoch: Epoch.make(epoch),
  lease
})

/** A request for jobs like `job`, under a fresh lease, with room for plenty. */
export const request = Effect.fnUntraced(function*(
  job: Pick<NewJob, "type">,
  change: Partial<ClaimRequest> = {}
) {
  const made: ClaimRequest = {
    lease: yield* Jobs.freshLease,
    leaseMs: 60_000,
    worker,
    types: [job.type],
    limit: 100,
    freeSlots: 100,
    bytes: 10_000_000,
    ...change
  }
  return made
})

/** Claims by order, once. */
export const take = Effect.fnUntraced(function*(job: Pick<NewJob, "type">, change: Partial<ClaimRequest> = {}) {
  const store = yield* JobStore
  return yield* store.claim(yield* request(job, change))
})

export const submitted = Effect.fnUntraced(function*(change: Partial<NewJob> = {}) {
  const store = yield* JobStore
  const job = yield* Jobs.job(change)
  const { answers } = yield* store.submit([job], { atomic: false })
  assert.strictEqual(answers[0]?._tag, "Created")
  return job
})

export const submittedAll = Effect.fnUntraced(function*(count: number, change: Partial<NewJob> = {}) {
  const store = yield* JobStore
  const jobs = yield* Jobs.jobs(count, { type: yield* Jobs.freshType, ...change })
  const { answers } = yield* store.submit(jobs, { atomic: false })
  assert.deepStrictEqual(answers.map(({ _tag }) => _tag), jobs.map(() => "Created"))
  return jobs
})

/** Lets time pass until `check` answers something else than `null`. */
export const eventually = Effect.fnUntraced(function*<A, E, R>(
  pass: Clock.Pass,
  what: string,
  check: Effect.Effect<A | null, E, R>
) {
  for (let round = 0; round < polls; round++) {
    const found = yield* check
    if (found !== null) {
      return found
    }
    yield* pass(pollMs)
  }
  return assert.fail(`${what}: not within ${polls * pollMs} ms`)
})

/** Until the store's clock says so much: what was submitted for then is due, however long that took. */
export const reached = (pass: Clock.Pass, atMs: number) =>
  eventually(
    pass,
    "the time has come",
    Effect.flatMap(JobStore, (store) => Effect.map(store.now, (now) => now > atMs ? true : null))
  )

/** Claims this one job, as soon as it is due. */
export const held = (pass: Clock.Pass, job: Pick<NewJob, "id" | "type">, change: Partial<ClaimRequest> = {}) =>
  eventually(
    pass,
    "the job is claimed",
    Effect.gen(function*() {
      const store = yield* JobStore
      const asked = yield* request(job, change)
      yield* store.promoteIds([job.id])
      const { claimed, inOrder } = yield* store.claimIds({ ...asked, ids: [job.id] })
      // One that must keep its place is not taken by id, and is the only one of its type where a test holds it.
      const [taken] = inOrder.length === 0 ? claimed : yield* store.claim({ ...asked, limit: 1 })
      assert.include([undefined, job.id], taken?.id)
      return taken === undefined ? null : { claim: claimOf(asked.lease, taken), job: taken } satisfies Held
    })
  )

export const settlement = (
  claim: Claim,
  step: Settlement["step"],
  change: Partial<Settlement> = {}
): Settlement => {
  const ended = step === "fail" || step === "die"
  return {
    claim,
    step,
    reason: step === "die" ? "attempts_exhausted" : null,
    delayMs: 0,
    result: step === "complete" ? "{\"ok\":true}" : null,
    failure: ended ? { name: "Boom", message: "it went wrong" } : null,
    recorded: step === "release",
    ...change
  }
}

/** Settles one claim, asking again while somebody has its row locked. */
export const settle = Effect.fnUntraced(function*(
  claim: Claim,
  step: Settlement["step"],
  change: Partial<Settlement> = {}
) {
  const store = yield* JobStore
  for (let round = 0; round < polls; round++) {
    const [answer] = yield* store.settle([settlement(claim, step, change)])
    if (answer !== undefined && answer._tag !== "Undecided") {
      return answer
    }
  }
  return assert.fail("undecided for ever")
})

export const written: Settled = { _tag: "Settled", repeated: false }
export const repeated: Settled = { _tag: "Settled", repeated: true }

/** Settles, and insists that this wrote it. */
export const settled = Effect.fnUntraced(function*(
  claim: Claim,
  step: Settlement["step"],
  change: Partial<Settlement> = {}
) {
  assert.deepStrictEqual(yield* settle(claim, step, change), written)
})

export const read = Effect.fnUntraced(function*(id: JobId) {
  const store = yield* JobStore
  const [job] = yield* store.get([id])
  return job ?? assert.fail(`no job ${id}`)
})

export const recorded = Effect.fnUntraced(function*(lease: LeaseId) {
  const store = yield* JobStore
  const { leases } = yield* store.look
  return leases.find((record) => record.lease === lease) ?? null
})

/** The token of a lease that stands. */
export const tokenOf = Effect.fnUntraced(function*(lease: LeaseId) {
  const record = yield* recorded(lease)
  return record?.token ?? assert.fail(`no record of lease ${lease}`)
})

export const counting = { counted: true, lossesMax: 5 }

/** Reclaims one lease, asking again while somebody has a row of it locked. */
export const reclaim = Effect.fnUntraced(function*(
  lease: LeaseId,
  token: string,
  options: { readonly counted: boolean; readonly lossesMax: number } = counting
) {
  const store = yield* JobStore
  for (let round = 0; round < polls; round++) {
    const [answer] = yield* store.reclaim([{ lease, token }], options)
    if (answer !== undefined && answer._tag !== "Locked") {
      return answer
    }
  }
  return assert.fail("locked for ever")
})

/** Reclaims a lease that nobody renews, and insists that this took it. */
export const lapsed = Effect.fnUntraced(function*(
  lease: LeaseId,
  options: { readonly counted: boolean; readonly lossesMax: number } = counting
) {
  const answer: Reclaimed = yield* reclaim(lease, yield* tokenOf(lease), options)
  return answer._tag === "Reclaimed" ? answer : assert.fail(`reclaim answered ${answer._tag}`)
})

/** A job that has lost its lease so often. */
export const lost = Effect.fnUntraced(function*(
  pass: Clock.Pass,
  job: NewJob,
  losses: number,
  options: { readonly counted: boolean; readonly lossesMax: number } = counting
) {
  for (let loss = 0; loss < losses; loss++) {
    const { claim } = yield* held(pass, job)
    yield* lapsed(claim.lease, options)
  }
})

export const idsOf = (jobs: ReadonlyArray<Pick<ClaimedJob, "id">>): ReadonlyArray<JobId> => jobs.map(({ id }) => id)

/** In an order that does not depend on where they come from. */
export const sortedIds = (jobs: ReadonlyArray<Pick<ClaimedJob, "id">>): ReadonlyArray<JobId> => idsOf(jobs).toSorted()
