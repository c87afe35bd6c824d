/** The members of `Deadman`: how to start it, what it consists of, and the types of what it answers. */
export type { JobError, JobEvent } from "../domain/Job.ts"
export type { DeadReason, JobState } from "../domain/JobState.ts"
export type { JobLog } from "../domain/Notes.ts"
export { Queues, type QueueView } from "../ports/Queues.ts"
export { Schedules } from "../ports/Schedules.ts"
export type { ListedSession } from "../ports/Sessions.ts"
export type { Readiness } from "../ports/Status.ts"
export { DatabaseUrl } from "./Adapters.ts"
export { Client } from "./client/Client.ts"
export {
  type About,
  type Ended,
  type Entries,
  type Entry,
  type JobPage,
  type ListOptions,
  type PageOptions,
  type QueueChange,
  type QueuePage,
  type RunOptions,
  type ScheduleEntry,
  ScheduleNotFound,
  type SchedulePage,
  type Stats,
  type Submission,
  SubmitRefused,
  SubmitUncertain,
  type WaitOptions,
  WrongState
} from "./client/Contract.ts"
export type { Jobs, QueueCalls, ScheduleCalls } from "./client/Promises.ts"
export type { Backoff, SubmitOptions, Unique } from "./client/SubmitOptions.ts"
export type { Job, Schedule, UniqueTerms } from "./client/Views.ts"
export { JobNotFound, WaitTimedOut } from "./client/Waiting.ts"
export { Health } from "./Health.ts"
export {
  type Found,
  type HandlersOf,
  layer,
  layerClient,
  layerKeeper,
  layerPorts,
  layerWorker,
  type Options,
  type Ports
} from "./Layers.ts"
export { StartFailed } from "./Options.ts"
export { type Deadman as Started, start, type StartOptions } from "./Start.ts"
