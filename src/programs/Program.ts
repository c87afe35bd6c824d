/** The members of `Deadman`: how to start it, what it consists of, and the types of what it answers. */
export {
  Client,
  type Ended,
  type Entry,
  type ListOptions,
  type ScheduleEntry,
  type Submission,
  SubmitRefused,
  SubmitUncertain,
  type WaitOptions,
  WrongState
} from "./client/Client.ts"
export type { SubmitOptions, Unique } from "./client/SubmitOptions.ts"
export { JobNotFound, WaitTimedOut } from "./client/Waiting.ts"
export {
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
