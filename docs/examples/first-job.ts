/** A job type, its handler, and one job: all in one process. `node first-job.ts` */
// #region define
import { Deadman, Job } from "deadman"
import { Schema } from "effect"

const greet = Job.define({
  type: "greet",
  payload: Schema.Struct({ name: Schema.String }),
  result: Schema.String
})
// #endregion

// #region handle
const greeter = greet.handle(async ({ name }) => `Hello, ${name}!`)
// #endregion

// #region run
const deadman = await Deadman.start({ handlers: [greeter] })

const job = await deadman.submit(greet, { name: "Ada" })
const ended = await deadman.wait(job)
console.log(ended.state, ended.result)

await deadman.stop()
// #endregion
