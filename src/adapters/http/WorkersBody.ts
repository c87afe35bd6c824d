/**
 * Reads what workers say, strictly, and says which field is wrong.
 *
 * Results and errors are no such fields: they are whatever a handler made, and a worker that was told to send another
 * result could only run its job again. They are made fit to be stored instead, as those of any handler here.
 */
import { delayMaxMs } from "../../domain/Backoff.ts"
import type { Claim, LeaseId } from "../../domain/Claim.ts"
import { effectKey, type JobType, namePattern, nameRule, type Queue } from "../../domain/Job.ts"
import type { JobId } from "../../domain/JobId.ts"
import type { Outcome } from "../../domain/Outcome.ts"
import * as Sanitise from "../../domain/Sanitise.ts"
import type { RemoteClaims, RemoteOutcome, RemoteRequest } from "../../ports/RemoteWorkers.ts"
import * as ApiError from "./ApiError.ts"
import { type Fields, isRecord, isWhole, notKnown, unknownOf, whole, wrong } from "./Fields.ts"
import * as Limits from "./WorkersApi.ts"

const leaseRule = "must be a UUID: draw a random one for each claim"

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

const leaseOf = (value: unknown): LeaseId | null =>
  typeof value === "string" && uuid.test(value) ? value.toLowerCase() as LeaseId : null

const isNames = (value: unknown): value is ReadonlyArray<string> =>
  Array.isArray(value) && value.length > 0 && value.length <= Limits.namesMax &&
  value.every((one) => typeof one === "string" && namePattern.test(one))

const namesRule =
  `must be an array of 1 to ${Limits.namesMax} names, each of 1 to 128 characters of A-Z a-z 0-9 . _ : -`

const unknownField = (value: Fields, prefix: string, known: ReadonlyArray<string>): ApiError.ApiError | null => {
  const field = unknownOf(value, known)
  return field === undefined
    ? null
    : notKnown(`${prefix}${field} is not known here; these are: ${known.join(", ")}.`, field, known, prefix)
}

/** The body as an object; what a text holds that Postgres cannot store is seen to later. */
const parse = (text: string): Fields | ApiError.ApiError => {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return ApiError.make("invalid_json", "The body is not JSON.")
  }
  return isRecord(value) ? value : ApiError.make("invalid_body", "The body must be a JSON object.")
}

/** A member that may be missing, or `null`, which says the same. */
const given = (value: unknown): boolean => value !== undefined && value !== null

export const claims = (text: string): RemoteRequest | ApiError.ApiError => {
  const body = parse(text)
  if (body instanceof ApiError.ApiError) return body
  const strange = unknownField(body, "", ["worker", "lease", "types", "queues", "limit", "wait_ms", "lease_ms"])
  if (strange !== null) return strange
  const { lease, lease_ms, limit = 1, queues, types, wait_ms = 0, worker } = body
  if (typeof worker !== "string" || !namePattern.test(worker)) return wrong("worker", nameRule)
  const drawn = given(lease) ? leaseOf(lease) : null
  if (given(lease) && drawn === null) return wrong("lease", leaseRule)
  if (!isNames(types)) return wrong("types", namesRule)
  if (given(queues) && !isNames(queues)) return wrong("queues", namesRule)
  if (!isWhole(limit, 1, Limits.claimsMax)) return wrong("limit", whole(1, Limits.claimsMax))
  if (!isWhole(wait_ms, 0, Limits.waitMaxMs)) return wrong("wait_ms", whole(0, Limits.waitMaxMs))
  const leaseMs = given(lease_ms) ? lease_ms : Limits.leaseDefaultMs
  if (!isWhole(leaseMs, Limits.leaseMinMs, Limits.leaseMaxMs)) {
    return wrong("lease_ms", whole(Limits.leaseMinMs, Limits.leaseMaxMs))
  }
  return {
    worker,
    lease: drawn,
    leaseMs,
    types: Array.from(new Set(types)) as Array<JobType>,
    queues: isNames(queues) ? Array.from(new Set(queues)) as Array<Queue> : null,
    limit,
    waitMs: wait_ms
  }
}

export interface Heartbeat {
  readonly worker: string
  readonly leases: ReadonlyArray<LeaseId>
}

export const heartbeat = (text: string): Heartbeat | ApiError.ApiError => {
  const body = parse(text)
  if (body instanceof ApiError.ApiError) return body
  const strange = unknownField(body, "", ["worker", "leases"])
  if (strange !== null) return strange
  const { leases, worker } = body
  if (typeof worker !== "string" || !namePattern.test(worker)) return wrong("worker", nameRule)
  if (!Array.isArray(leases) || leases.length > Limits.leasesMax) {
    return wrong("leases", `must be an array of at most ${Limits.leasesMax} leases`)
  }
  const ids = leases.map(leaseOf)
  const at = ids.indexOf(null)
  return at === -1
    ? { worker, leases: Array.from(new Set(ids.flatMap((id) => id ?? []))) }
    : wrong(`leases[${at}]`, "must be the lease of a claim")
}

const noReason = { name: "Error", message: "The worker gave no reason." }

const outcomeOf = (entry: Fields, prefix: string): Outcome | ApiError.ApiError => {
  const { delay_ms, error, kind, result } = entry
  const misplaced = [
    given(result) && kind !== "completed" ? wrong(`${prefix}result`, "goes with completed only") : null,
    given(error) && kind !== "failed" && kind !== "rejected"
      ? wrong(`${prefix}error`, "goes with failed and rejected only")
      : null,
    given(delay_ms) && kind !== "again"
      ? wrong(`${prefix}delay_ms`, "goes with again only; how long a failed job waits is said by its backoff")
      : null
  ].find((one) => one !== null)
  switch (kind) {
    case "completed":
      return misplaced ?? { _tag: "Completed", result: given(result) ? Sanitise.result(result) : null }
    case "failed":
    case "rejected":
      return misplaced ?? {
        _tag: kind === "failed" ? "Failed" : "Rejected",
        failure: given(error) ? Sanitise.failure(error) : noReason
      }
    case "released":
      return misplaced ?? { _tag: "Released", started: true }
    case "again":
      return misplaced ?? (isWhole(delay_ms, 0, delayMaxMs)
        ? { _tag: "Again", delayMs: delay_ms }
        : wrong(`${prefix}delay_ms`, whole(0, delayMaxMs)))
    default:
      return wrong(`${prefix}kind`, `must be one of ${Limits.outcomeKinds.join(", ")}`)
  }
}

const entryOf = (entry: unknown, prefix: string): RemoteOutcome | ApiError.ApiError => {
  if (!isRecord(entry)) return wrong(prefix.slice(0, -1), "must be an object")
  const strange = unknownField(entry, prefix, ["id", "epoch", "lease", "kind", "result", "error", "delay_ms"])
  if (strange !== null) return strange
  const { epoch, id } = entry
  if (typeof id !== "string" || !uuid.test(id)) return wrong(`${prefix}id`, "must be the id of a job")
  if (!isWhole(epoch, 1, 2_147_483_647)) return wrong(`${prefix}epoch`, "must be the epoch of the claim")
  const lease = leaseOf(entry["lease"])
  if (lease === null) return wrong(`${prefix}lease`, "must be the lease of the claim")
  const outcome = outcomeOf(entry, prefix)
  return outcome instanceof ApiError.ApiError
    ? outcome
    : { claim: { id: id.toLowerCase() as JobId, epoch, lease } as Claim, outcome }
}

export const outcomes = (text: string): ReadonlyArray<RemoteOutcome> | ApiError.ApiError => {
  const body = parse(text)
  if (body instanceof ApiError.ApiError) return body
  const strange = unknownField(body, "", ["outcomes"])
  if (strange !== null) return strange
  const { outcomes: entries } = body
  if (!Array.isArray(entries) || entries.length === 0 || entries.length > Limits.outcomesMax) {
    return wrong("outcomes", `must be an array of 1 to ${Limits.outcomesMax} outcomes`)
  }
  const decoded: Array<RemoteOutcome> = []
  for (const [index, entry] of entries.entries()) {
    const one = entryOf(entry, `outcomes[${index}].`)
    if (one instanceof ApiError.ApiError) return one
    decoded.push(one)
  }
  return decoded
}

export const claimsText = ({ jobs, lease, leaseMs }: RemoteClaims, worker: string): string =>
  JSON.stringify({
    lease,
    lease_ms: leaseMs,
    claims: jobs.map((job) => ({
      job: {
        id: job.id,
        type: job.type,
        queue: job.queue,
        state: "running",
        payload: job.payload ?? null,
        attempts: job.attempts,
        max_attempts: job.maxAttempts,
        backoff: job.backoff,
        timeout_ms: job.timeoutMs,
        worker,
        epoch: job.epoch,
        deliveries: job.deliveries,
        lease_losses: job.leaseLosses,
        effect_key: effectKey(job)
      },
      epoch: job.epoch
    }))
  })
