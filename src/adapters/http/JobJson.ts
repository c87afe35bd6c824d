/** A job as JSON: absent values are `null`, names are snake_case. By hand, since each answer goes through here. */
import type { Job, JobError, JobEvent } from "../../domain/Job.ts"
import type { JobDraft } from "../../ports/Submitter.ts"

const errorJson = (error: JobError) => ({
  attempt: error.attempt,
  epoch: error.epoch,
  worker: error.worker,
  claimed_at_ms: error.claimedAtMs,
  at_ms: error.atMs,
  name: error.name,
  message: error.message
})

// `JSON.stringify` leaves out what a kind does not say.
const eventJson = (event: JobEvent) => ({
  kind: event.kind,
  epoch: event.epoch,
  worker: event.worker,
  at_ms: event.atMs,
  claimed_at_ms: event.claimedAtMs,
  last_seen_ms: event.lastSeenMs,
  counted: event.counted,
  outcome: event.outcome,
  current_epoch: event.currentEpoch
})

export const toJson = (job: Job) => ({
  id: job.id,
  type: job.type,
  queue: job.queue,
  priority: job.priority,
  state: job.state,
  payload: job.payload ?? null,
  tags: job.tags,
  attempts: job.attempts,
  max_attempts: job.maxAttempts,
  backoff: job.backoff,
  timeout_ms: job.timeoutMs,
  start_by_ms: job.startByMs,
  retain_ms: job.retainMs,
  unique: job.unique,
  run_at_ms: job.runAtMs,
  created_at_ms: job.createdAtMs,
  started_at_ms: job.startedAtMs,
  finished_at_ms: job.finishedAtMs,
  worker: job.worker,
  epoch: job.epoch,
  deliveries: job.deliveries,
  lease_losses: job.leaseLosses,
  stale_writes: job.staleWrites,
  reason: job.reason,
  result: job.result ?? null,
  errors: job.errors.map(errorJson),
  errors_omitted: job.errorsOmitted,
  events: job.events.map(eventJson),
  events_omitted: job.eventsOmitted,
  progress: job.progress ?? null,
  logs: job.logs.map(({ atMs, attempt, line }) => ({ attempt, at_ms: atMs, line })),
  logs_omitted: job.logsOmitted,
  resubmitted_from: job.resubmittedFrom,
  resubmitted_as: job.resubmittedAs,
  schedule: job.schedule,
  tick_ms: job.tickMs
})

export const toText = (job: Job): string => JSON.stringify(toJson(job))

/** A job that was just stored, as text. Its payload is text already, so it is not written out a second time. */
export const createdText = (
  draft: JobDraft,
  stored: { readonly id: string; readonly createdAtMs: number; readonly runAtMs: number }
): string =>
  `{"id":"${stored.id}","type":"${draft.type}","queue":"${draft.queue}","priority":${draft.priority}` +
  `,"state":"pending","payload":${draft.payload},"tags":${
    draft.tags.length === 0 ? "[]" : JSON.stringify(draft.tags)
  }` +
  `,"attempts":0,"max_attempts":${draft.maxAttempts},"backoff":${JSON.stringify(draft.backoff)}` +
  `,"timeout_ms":${draft.timeoutMs},"start_by_ms":${draft.startByMs ?? null},"retain_ms":${draft.retainMs ?? null}` +
  `,"unique":${
    draft.unique === undefined ? "null" : JSON.stringify(draft.unique)
  },"run_at_ms":${stored.runAtMs},"created_at_ms":${stored.createdAtMs}` +
  `,"started_at_ms":null,"finished_at_ms":null,"worker":null,"epoch":0,"deliveries":0,"lease_losses":0` +
  `,"stale_writes":0,"reason":null,"result":null,"errors":[],"errors_omitted":0,"events":[],"events_omitted":0` +
  `,"progress":null,"logs":[],"logs_omitted":0` +
  `,"resubmitted_from":${draft.resubmittedFrom === null ? "null" : `"${draft.resubmittedFrom}"`}` +
  `,"resubmitted_as":null,"schedule":null,"tick_ms":null}`
