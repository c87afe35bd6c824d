/** Entries of one flush with the same Idempotency-Key: the first is stored, and the others are answered from it. */
import type { NewJob } from "../../../domain/Job.ts"
import type { Answers } from "./SubmitLanes.ts"

/** The first entry of each key, and the others, which are answered from it. */
export const firsts = (jobs: ReadonlyArray<NewJob>) => {
  const byKey = new Map<string, NewJob>()
  const later: Array<readonly [NewJob, NewJob]> = []
  for (const job of jobs) {
    const first = byKey.get(job.key!.key)
    if (first === undefined) byKey.set(job.key!.key, job)
    else later.push([job, first])
  }
  return { first: [...byKey.values()], later }
}

/** Those that must be asked about themselves: what is stored is neither theirs nor the first's. */
export const answerLater = (
  later: ReadonlyArray<readonly [NewJob, NewJob]>,
  answers: Answers
): ReadonlyArray<NewJob> => {
  const open: Array<NewJob> = []
  for (const [job, first] of later) {
    const answer = answers.get(first)
    const same = job.key!.fingerprint === first.key!.fingerprint
    if (answer?._tag === "Created" && job.id === first.id) {
      answers.set(job, answer)
    } else if (answer?._tag === "Created" || answer?._tag === "Replayed" || answer?._tag === "Skipped") {
      answers.set(job, { _tag: same ? "Replayed" : "KeyMismatch", id: answer.id })
    } else if (
      answer?._tag === "KeyLocked" || answer?._tag === "Undecided" || (answer?._tag === "KeyMismatch" && same)
    ) {
      answers.set(job, answer)
    } else {
      open.push(job)
    }
  }
  return open
}
