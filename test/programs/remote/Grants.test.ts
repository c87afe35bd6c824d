/** What a server remembers of workers elsewhere stays bounded, however many there are and for however long. */
import { assert, it } from "@effect/vitest"
import type { LeaseId } from "../../../src/domain/Claim.ts"
import type { JobId } from "../../../src/domain/JobId.ts"
import * as Grants from "../../../src/programs/remote/Grants.ts"

const lease = (n: number) => `lease-${n}` as LeaseId

const jobs = (n: number) =>
  new Map(Array.from({ length: n }, (_, job) => [
    `job-${job}` as JobId,
    { epoch: 1, terms: null, queue: null, timeoutMs: null, deadlineMs: null }
  ]))

const granted = (grants: Grants.Grants, n: number, held: number, atMs = 0) =>
  grants.add({ lease: lease(n), leaseMs: 30_000, worker: "w", verifiedMs: atMs, jobs: jobs(held) })

const sizes = (grants: Grants.Grants) => {
  const all = Array.from(grants.all())
  return { leases: all.length, jobs: all.reduce((sum, grant) => sum + grant.jobs.size, 0) }
}

it("of more leases than are kept those that were heard of last stay", () => {
  const grants = Grants.make()
  for (let n = 0; n < Grants.grantsMax; n++) {
    granted(grants, n, 1)
  }
  grants.heard(lease(0), null, 10)
  for (let n = Grants.grantsMax; n < Grants.grantsMax + 500; n++) {
    granted(grants, n, 1)
  }
  assert.deepStrictEqual(sizes(grants), { leases: Grants.grantsMax, jobs: Grants.grantsMax })
  assert.isDefined(grants.get(lease(0)))
  assert.isUndefined(grants.get(lease(1)))
  assert.isDefined(grants.get(lease(Grants.grantsMax + 499)))
})

it("of more jobs than are kept those of the leases that were heard of last stay", () => {
  const grants = Grants.make()
  const each = 1_000
  const fit = Grants.jobsMax / each
  for (let n = 0; n < 3 * fit; n++) {
    granted(grants, n, each)
    // It looks at every hundredth lease.
    assert.isAtMost(sizes(grants).jobs, Grants.jobsMax + 100 * each)
  }
  grants.sweep(0)
  assert.deepStrictEqual(sizes(grants), { leases: fit, jobs: Grants.jobsMax })
  assert.isDefined(grants.get(lease(3 * fit - 1)))
})

it("what was silent for two lengths of its lease is forgotten, and what was heard of is not", () => {
  const grants = Grants.make()
  granted(grants, 1, 3)
  granted(grants, 2, 3)
  grants.heard(lease(2), null, 30_000)
  grants.sweep(60_000)
  assert.deepStrictEqual(sizes(grants), { leases: 2, jobs: 6 })
  grants.sweep(60_001)
  assert.isUndefined(grants.get(lease(1)))
  assert.isDefined(grants.get(lease(2)))
  grants.sweep(90_001)
  assert.deepStrictEqual(sizes(grants), { leases: 0, jobs: 0 })
})
