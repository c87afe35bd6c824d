/**
 * In which fields a request differs from the job that another request made: for who used one Idempotency-Key for both.
 * Never their values.
 */
import { dueMs, type Job, type NewJob } from "./Job.ts"
import * as JsonText from "./JsonText.ts"

type Asked = Omit<NewJob, "id">

const same = (one: unknown, other: unknown): boolean => JsonText.canonical(one) === JsonText.canonical(other)

/** Later it is when the job is due again, and no longer what was asked for. */
const isAsAsked = (job: Job): boolean => job.epoch === 0 && job.events.length === 0

const isDueElsewhen = (asked: Asked, job: Job): boolean =>
  isAsAsked(job) && dueMs(asked, job.createdAtMs) !== job.runAtMs

/** Of the job's fields those that a request sets. A time to run at is told only until the job has run, or was moved. */
const differs: ReadonlyArray<readonly [field: keyof Asked, differs: (asked: Asked, job: Job) => boolean]> = [
  ["type", (asked, job) => asked.type !== job.type],
  ["payload", (asked, job) => !same(JSON.parse(asked.payload), job.payload)],
  ["queue", (asked, job) => asked.queue !== job.queue],
  ["priority", (asked, job) => asked.priority !== job.priority],
  ["maxAttempts", (asked, job) => asked.maxAttempts !== job.maxAttempts],
  ["backoff", (asked, job) => !same(asked.backoff, job.backoff)],
  ["timeoutMs", (asked, job) => asked.timeoutMs !== job.timeoutMs],
  ["runAtMs", (asked, job) => asked.delayMs === undefined && isDueElsewhen(asked, job)],
  ["delayMs", (asked, job) => asked.delayMs !== undefined && isDueElsewhen(asked, job)],
  ["startByMs", (asked, job) => (asked.startByMs ?? null) !== job.startByMs],
  ["retainMs", (asked, job) => (asked.retainMs ?? null) !== job.retainMs],
  ["tags", (asked, job) => !same(asked.tags, job.tags)],
  ["unique", (asked, job) => !same(asked.unique ?? null, job.unique)]
]

export const between = (asked: Asked, job: Job): ReadonlyArray<keyof Asked> =>
  differs.filter(([, differs]) => differs(asked, job)).map(([field]) => field)
