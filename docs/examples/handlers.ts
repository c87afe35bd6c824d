/** The handlers of the examples' worker, in a module of their own: the shipped worker can load it too. */
// #region handlers
import { Job } from "deadman"
import { resize } from "./jobs.ts"

const resizer = resize.handle(async ({ url, width }, { job, log, progress, signal }) => {
  if (!url.startsWith("https://")) throw new Job.Rejected("only https addresses are fetched") // dead at once
  if (url.includes("/not-yet/")) return Job.again(60_000) // once more in a minute, at no cost
  log(`attempt ${job.attempt}, delivery ${job.delivery}`)
  for (let done = 1; done <= 3; done++) {
    signal.throwIfAborted() // cancelled, out of time, or the process stops
    progress({ done, of: 3 })
  }
  return { bytes: width * 3 }
})

export const handlers = [resizer]
// #endregion
