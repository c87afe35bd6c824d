/**
 * What has happened to a job, read from the job itself.
 *
 * A job keeps when it was made, claimed, failed, lost, handed back and ended. So whoever looks now and then can say what
 * happened in between, in its order and with its times, and misses nothing but what a job does not keep: the middle of
 * more errors or events than it has room for, and a run that asked for `again` if another one was begun since.
 */
import type { ShownJob } from "./JobText.ts"

type State = ShownJob["state"]

export interface TimedJob extends ShownJob {
  readonly errors: ReadonlyArray<
    ShownJob["errors"][number] & { readonly epoch: number; readonly claimed_at_ms: number }
  >
  readonly events: ReadonlyArray<ShownJob["events"][number] & { readonly claimed_at_ms?: number }>
}

/** Where a step stands among those of its job. By the claim first: a clock may have gone back. */
export interface Place {
  readonly epoch: number
  /** The claim itself, what came of it, or how it is now. */
  readonly rank: 0 | 1 | 2
  readonly atMs: number
}

export interface Step<Job> extends Place {
  /** The job as it was then, as far as it says. */
  readonly job: Job
  /** `null` where the job does not keep it. */
  readonly saidMs: number | null
  /** The same, or a guess: among the steps of one job it never goes back. */
  readonly orderMs: number
}

/** A claim is made once: when it was made is forgotten with the next one, where it was handed back. */
const compare = (a: Place, b: Place): number =>
  a.epoch - b.epoch || a.rank - b.rank || (a.rank === 1 ? a.atMs - b.atMs : 0)

export const isAfter = (a: Place, b: Place): boolean => compare(a, b) > 0

interface Raw extends Place {
  readonly saidMs: number | null
  readonly state: State
  readonly worker?: string | null
}

const ended: ReadonlySet<State> = new Set(["completed", "dead"])
export const isEnded = ({ state }: Pick<ShownJob, "state">): boolean => ended.has(state)

/** Its last failure or loss is its end. */
const endedBy = ({ epoch, reason }: TimedJob, kind: "error" | "lease_lost", of: number): boolean =>
  of === epoch &&
  (kind === "error" ? reason === "attempts_exhausted" || reason === "rejected" : reason === "crash_loop")

const claimsOf = (job: TimedJob): ReadonlyArray<Raw> => {
  const claims = new Map<number, Raw>()
  const add = (epoch: number, saidMs: number | null, byMs: number, worker: string | null) => {
    if (epoch > 0 && (saidMs !== null || !claims.has(epoch))) {
      claims.set(epoch, { epoch, rank: 0, atMs: saidMs ?? byMs, saidMs, state: "running", worker })
    }
  }
  add(job.epoch, job.started_at_ms, job.run_at_ms, job.worker)
  job.errors.forEach(({ at_ms, claimed_at_ms, epoch, worker }) => add(epoch, claimed_at_ms, at_ms, worker))
  for (const { at_ms, claimed_at_ms = null, epoch, kind, worker } of job.events) {
    if (kind === "lease_lost" || kind === "released") {
      add(epoch, claimed_at_ms, at_ms, worker)
    }
  }
  return [...claims.values()]
}

const waitsAgain = new Set(["lease_lost", "released", "retried"])

const rawOf = (job: TimedJob): ReadonlyArray<Raw> => {
  const steps: Array<Raw> = [
    { epoch: 0, rank: 0, atMs: job.created_at_ms, saidMs: job.created_at_ms, state: "pending" },
    ...claimsOf(job)
  ]
  for (const { at_ms, epoch } of job.errors) {
    if (!endedBy(job, "error", epoch)) {
      steps.push({ epoch, rank: 1, atMs: at_ms, saidMs: at_ms, state: "failed" })
    }
  }
  for (const { at_ms, epoch, kind } of job.events) {
    if (waitsAgain.has(kind) && !(kind === "lease_lost" && endedBy(job, kind, epoch))) {
      steps.push({ epoch, rank: 1, atMs: at_ms, saidMs: at_ms, state: "pending" })
    }
  }
  steps.sort(compare)
  const last = steps.at(-1)
  if (isEnded(job)) {
    const saidMs = job.finished_at_ms
    steps.push({ epoch: Number.POSITIVE_INFINITY, rank: 2, atMs: saidMs ?? 0, saidMs, state: job.state })
  } else if (last?.state !== job.state) {
    // Handed back without a word, or whatever else it does not keep.
    steps.push({ epoch: job.epoch, rank: 2, atMs: job.run_at_ms, saidMs: null, state: job.state })
  }
  return steps
}

const asItWas = <Job extends TimedJob>(job: Job, { atMs, epoch, state, worker }: Raw): Job => {
  const errors = job.errors.filter((error) => error.epoch <= epoch && error.at_ms <= atMs)
  return {
    ...job,
    state,
    epoch,
    worker: worker ?? (epoch === 0 ? null : job.worker),
    attempts: errors.length === job.errors.length ? job.attempts : errors.length,
    errors,
    events: job.events.filter((event) => event.epoch <= epoch && event.at_ms <= atMs),
    started_at_ms: epoch === 0 ? null : job.started_at_ms,
    finished_at_ms: null,
    reason: null,
    result: null
  } as Job
}

/** From its making to how it is now, which is the job as it is. */
export const stepsOf = <Job extends TimedJob>(job: Job): ReadonlyArray<Step<Job>> => {
  const steps = rawOf(job)
  let orderMs = 0
  return steps.map((raw, index) => {
    const { atMs, epoch, rank, saidMs } = raw
    // What is so at present may stand under a time that is to come.
    orderMs = Math.max(orderMs, saidMs ?? (rank === 2 ? orderMs : atMs))
    return { epoch, rank, atMs, saidMs, orderMs, job: index === steps.length - 1 ? job : asItWas(job, raw) }
  })
}
