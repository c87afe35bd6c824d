/** How a request becomes what can be stored: the rules of the HTTP API, whichever way it comes in. */
import { Context, type Result } from "effect"
import type { KeyClaim, Queue } from "../../domain/Job.ts"
import type { QueueSettings } from "../../domain/QueueSettings.ts"
import type { NewSchedule, ScheduleName } from "../../domain/Schedule.ts"
import type { ListRequest } from "../../ports/JobStore.ts"
import type { JobDraft } from "../../ports/Submitter.ts"
import type { ListOptions, SubmitRefused } from "./Contract.ts"

type Body = Readonly<Record<string, unknown>>
type Read<A> = Result.Result<A, SubmitRefused>

export class Drafts extends Context.Service<Drafts, {
  readonly read: (body: Body) => Read<JobDraft>
  readonly readSchedule: (name: string, body: Body) => Read<NewSchedule>
  readonly readScheduleName: (name: string) => Read<ScheduleName>
  /** Of a run by hand. */
  readonly readRun: (
    name: string,
    key: string | null
  ) => Read<{ readonly name: ScheduleName; readonly key: KeyClaim | null }>
  readonly readQueue: (body: Body) => Read<Partial<QueueSettings>>
  readonly readQueueName: (name: string) => Read<Queue>
  readonly readList: (options: ListOptions) => Read<ListRequest>
}>()("deadman/programs/client/Drafts") {}
