/**
 * What `import … from "deadman"` gives: the public names, and nothing else of this package.
 *
 * `Deadman` takes part from within a program, as promises or as Layers; `Job` defines job types and what handlers may
 * say; `Effects` happen exactly once, in a handler's own transaction; `Transaction` submits in a transaction of one's
 * own; `connect` talks to a server, and so does `Http`, as a service of Effect. Names that are not here may change at
 * any time.
 */
export * as Http from "../adapters/http/Client.ts"
export * as Effects from "../adapters/postgres/OwnTransaction.ts"
export { CurrentJob } from "../ports/CurrentJob.ts"
export { type Call, connect, type Connected } from "./Connect.ts"
export * as Job from "./Job.ts"
export * as Deadman from "./Program.ts"
export * as Transaction from "./Transaction.ts"
