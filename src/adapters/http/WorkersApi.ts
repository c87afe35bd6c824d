/** What workers in any language say and are told: a group of `Api.ts`. `WorkersBody.ts` decodes it, strictly. */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Backoff, delayMaxMs } from "../../domain/Backoff.ts"
import { JobType, namePattern, Queue } from "../../domain/Job.ts"
import { Uuid } from "../../domain/JobId.ts"
import { always, Count, Error413, Error415 } from "./ApiShapes.ts"

export const claimsMax = 1_000
export const namesMax = 100
export const waitMaxMs = 60_000
export const leaseDefaultMs = 30_000
export const leaseMinMs = 500
export const leaseMaxMs = 3_600_000
export const leasesMax = 1_000
export const outcomesMax = 1_000
export const askMaxBytes = 65_536
export const outcomesMaxBytes = 16 * 1_048_576

export const outcomeKinds = ["completed", "failed", "rejected", "released", "again"] as const

const between = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

const Worker = Schema.String.check(Schema.isPattern(namePattern)).annotate({
  description: "The worker's name, for people: shown on its jobs and in /stats"
})
const Lease = Uuid.annotate({
  description: "A random UUID, drawn anew for each claim that is to take something: whoever knows it may write under it"
})

const ClaimBody = Schema.Struct({
  worker: Worker,
  lease: Schema.optionalKey(Lease),
  types: Schema.Array(JobType).check(Schema.isBetweenLength(1, namesMax)),
  queues: Schema.optionalKey(Schema.Array(Queue).check(Schema.isBetweenLength(1, namesMax))),
  limit: Schema.optionalKey(between(1, claimsMax)).annotate({ description: "Jobs at most; 1 by default" }),
  wait_ms: Schema.optionalKey(between(0, waitMaxMs)).annotate({
    description: "How long to wait for work; 0 by default"
  }),
  lease_ms: Schema.optionalKey(between(leaseMinMs, leaseMaxMs)).annotate({
    description: `How long the lease lives without a heartbeat; ${leaseDefaultMs} by default`
  })
}).annotate({ identifier: "ClaimRequest" })

const ClaimedJobBody = Schema.Struct({
  id: Schema.String,
  type: Schema.String,
  queue: Schema.String,
  state: Schema.Literal("running"),
  payload: Schema.Json,
  attempts: Count.annotate({ description: "Failures so far" }),
  max_attempts: Count,
  backoff: Backoff,
  timeout_ms: Schema.NullOr(Schema.Int).annotate({
    description: "End the run by then, as failed; the server does so itself at a heartbeat soon after"
  }),
  worker: Schema.String,
  epoch: Count,
  deliveries: Count,
  lease_losses: Count,
  effect_key: Schema.String.annotate({
    description: "The same for every delivery of the job: give it to a provider as its idempotency key"
  })
}).annotate({ identifier: "ClaimedJob" })

const ClaimsBody = Schema.Struct({
  lease: Schema.String,
  lease_ms: Schema.Int,
  claims: Schema.Array(Schema.Struct({ job: ClaimedJobBody, epoch: Count }))
}).annotate({ identifier: "Claims" })

const HeartbeatBody = Schema.Struct({
  worker: Worker,
  leases: Schema.Array(Lease).check(Schema.isMaxLength(leasesMax))
}).annotate({ identifier: "Heartbeat" })

const BeatBody = Schema.Struct({
  held: Schema.Array(Schema.String),
  lost: Schema.Array(Schema.String).annotate({
    description: "Nothing runs under these any more: interrupt what you run under them and report nothing"
  }),
  revoked: Schema.Array(Schema.Struct({ id: Schema.String, epoch: Count, reason: Schema.String })).annotate({
    description: "Runs to be interrupted, under leases that go on; told again with each heartbeat"
  })
}).annotate({ identifier: "HeartbeatAnswer" })

const OutcomeBody = Schema.Struct({
  id: Schema.String,
  epoch: between(1, 2_147_483_647),
  lease: Lease,
  kind: Schema.Literals(outcomeKinds),
  result: Schema.optionalKey(Schema.Json).annotate({ description: "With completed: any JSON, kept up to 256 KiB" }),
  error: Schema.optionalKey(Schema.Json).annotate({
    description: "With failed and rejected: `{\"name\", \"message\"}` or a text"
  }),
  delay_ms: Schema.optionalKey(between(0, delayMaxMs)).annotate({ description: "With again: how long until it runs" })
}).annotate({ identifier: "Outcome" })

const OutcomesBody = Schema.Struct({
  outcomes: Schema.Array(OutcomeBody).check(Schema.isBetweenLength(1, outcomesMax))
}).annotate({ identifier: "Outcomes" })

const SettledBody = Schema.Struct({
  settled: Schema.Array(Schema.String).annotate({
    description: "Their ending is on record, from this request or from an earlier one under the same claim"
  }),
  stale: Schema.Array(Schema.String).annotate({ description: "Refused for good: the job was another's by then" }),
  undecided: Schema.Array(Schema.String).annotate({ description: "Not known yet: send these again" })
}).annotate({ identifier: "OutcomesAnswer" })

const errors = [...always, Error413, Error415] as const

export class Workers extends HttpApiGroup.make("workers").add(
  HttpApiEndpoint.post("claim", "/claims", { payload: ClaimBody, success: ClaimsBody, error: errors })
    .annotate(OpenApi.Summary, "Claim ready jobs")
    .annotate(
      OpenApi.Description,
      "Takes ready jobs under one lease, waiting for them if told to. Asked again under the same lease it answers " +
        "what that took, so a lost answer costs nothing."
    ),
  HttpApiEndpoint.post("heartbeat", "/heartbeats", { payload: HeartbeatBody, success: BeatBody, error: errors })
    .annotate(OpenApi.Summary, "Renew leases")
    .annotate(
      OpenApi.Description,
      "Renews leases: at least every fifth of their length. A lease in none of the lists is not decided: ask again soon."
    ),
  HttpApiEndpoint.post("settle", "/outcomes", { payload: OutcomesBody, success: SettledBody, error: errors })
    .annotate(OpenApi.Summary, "Settle runs")
    .annotate(
      OpenApi.Description,
      "Says how runs ended. Repeating it is always safe: a repeat is known by its claim (id, epoch, lease)."
    )
).prefix("/workers") {}
