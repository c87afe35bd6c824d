/** Ids to test with, unlike any other of the run. */
import { randomBytes, randomUUID } from "node:crypto"
import { LeaseId } from "../../src/domain/Claim.ts"
import * as JobId from "../../src/domain/JobId.ts"

let drawn = 0

/** Later ids are greater. */
export const jobId = (): JobId.JobId => {
  drawn += 1
  return JobId.make(1_700_000_000_000 + drawn, randomBytes(10))
}

export const leaseId = (): LeaseId => LeaseId.make(randomUUID())
