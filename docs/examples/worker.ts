/** A process that runs jobs until it is told to stop. `node worker.ts`, in as many terminals as you like. */
// #region worker
import { Deadman } from "deadman"
import { handlers } from "./handlers.ts"

await Deadman.start({ handlers, slots: 8, stopOnSignals: true })
console.log("running jobs")
// #endregion
