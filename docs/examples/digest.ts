/** The module that a thread loads, with what a function in a thread gets beside its payload. */
// #region digest
import type { Job } from "deadman"
import { createHash } from "node:crypto"

interface Work {
  readonly text: string
  readonly rounds: number
}

export const digest = ({ rounds, text }: Work, { job, progress }: Job.ThreadContext): string => {
  let hash = `${job.id} ${text}`
  for (let round = 1; round <= rounds; round++) {
    hash = createHash("sha256").update(hash).digest("hex")
    if (round % 10_000 === 0) progress({ round, of: rounds })
  }
  return hash
}
// #endregion
